"""On-demand prices from AWS's price list.

It has many rows for one type (reservations at nothing, dedicated machines, other systems, SQL software), and one filter too few gives the price of
another thing (facts/cloud-api.md §1.3). So every attribute that was asked for is looked at again in what comes back, and a type for which more than
one price is left has none.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from spotd.core.errors import ProviderError, ProviderUnavailable
from spotd_aws.clients import PRICING_REGION
from spotd_aws.errors import reads
from spotd_aws.keeping import Kept, Known, Now, Terms
from spotd_aws.paging import pages
from spotd_aws.prices import amount

if TYPE_CHECKING:
    from spotd_aws.clients import Clients

SOURCE = "price list"
#: What is meant by "the on-demand price": Linux, shared hardware, nothing installed, capacity in use and not reserved.
FILTERS = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "licenseModel": "No License required",
    "marketoption": "OnDemand",
}
#: Renewed before a day is over: policies refuse older prices by default, and a renewal may fail a few times.
TERMS = Terms(fresh=timedelta(hours=20), retry=timedelta(minutes=5))
#: From this age on a failed renewal is told.
_OLD = timedelta(hours=24)
_PAGE = 100


class OnDemandPrices:
    """Prices by type, for all regions at once: one question a day for each type in use. A renewal that fails leaves the old price with its age."""

    def __init__(self, clients: Clients, now: Now) -> None:
        self._clients = clients
        self._now = now
        self._kept: Kept[str, Mapping[str, Decimal]] = Kept(now, TERMS)

    def due(self, instance_type: str) -> bool:
        """Whether it is time to ask."""
        return self._kept.due(instance_type)

    def refresh(self, instance_type: str, stop: threading.Event) -> None:
        """Ask, if it is time. What goes wrong is kept for `problem`."""
        self._kept.refresh(instance_type, lambda: self._ask(instance_type, stop))

    def _ask(self, instance_type: str, stop: threading.Event) -> Mapping[str, Decimal]:
        filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in {**FILTERS, "instanceType": instance_type}.items()]
        found: list[object] = []
        with reads(f"looking up the on-demand price of {instance_type}"):
            client = self._clients.get("pricing", PRICING_REGION)
            for page in pages(client.get_products, stop, ServiceCode="AmazonEC2", Filters=filters, MaxResults=_PAGE):
                found += _products(page)
            return by_region(found, instance_type)

    def known(self, instance_type: str, region: str) -> Known[Decimal] | None:
        """The price of a type in a region and when it was asked for; None where the list has none, or has not been read."""
        known = self._kept.known(instance_type)
        usd = None if known is None else known.value.get(region)
        return None if known is None or usd is None else Known(usd, known.seen_at)

    def problem(self, instance_type: str) -> ProviderError | None:
        """Why there is no price that is a day old at most; None where there is one, or the list has none."""
        known = self._kept.known(instance_type)
        if known is not None and self._now() - known.seen_at < _OLD:
            return None
        return self._kept.error(instance_type)


def _products(page: Mapping[str, Any]) -> list[object]:
    found = page.get("PriceList")
    if not isinstance(found, list):
        raise ProviderUnavailable("AWS's answer has no PriceList")
    return found


def by_region(found: Iterable[object], instance_type: str) -> dict[str, Decimal]:
    """The price of a type in each region for which exactly one is left."""
    prices: dict[str, set[Decimal]] = {}
    for product in map(_read, found):
        attributes = _part(_part(product, "product"), "attributes")
        region = str(attributes.get("regionCode") or "")
        if region and _is_meant(attributes, instance_type):
            prices.setdefault(region, set()).update(_amounts(product))
    return {region: next(iter(amounts)) for region, amounts in prices.items() if len(amounts) == 1}


def _read(product: object) -> Mapping[str, Any]:
    """A row: JSON in a string, as the service sends it, or what the SDK made of it."""
    if isinstance(product, str):
        try:
            product = json.loads(product)
        except ValueError:
            raise ProviderUnavailable("a row of AWS's price list is no JSON") from None
    return product if isinstance(product, Mapping) else {}


def _part(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = of.get(name)
    return part if isinstance(part, Mapping) else {}


def _is_meant(attributes: Mapping[str, Any], instance_type: str) -> bool:
    # Local zones and the like have regions of their own in this list.
    usual = attributes.get("locationType", "AWS Region") == "AWS Region"
    same = all(str(attributes.get(field, value)).lower() == value.lower() for field, value in FILTERS.items())
    return usual and same and attributes.get("instanceType") == instance_type


def _amounts(product: Mapping[str, Any]) -> Iterator[Decimal]:
    for term in _part(_part(product, "terms"), "OnDemand").values():
        for dimension in _part(term if isinstance(term, Mapping) else {}, "priceDimensions").values():
            if isinstance(dimension, Mapping) and dimension.get("unit") == "Hrs":
                usd = amount(_part(dimension, "pricePerUnit").get("USD"))
                if usd is not None:
                    yield usd
