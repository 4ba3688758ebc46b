"""On-demand prices from the price list, once a day. The wrong filter gives another product's price, or 0 (facts/cloud-api.md §1.3)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from spotd.core.errors import ProviderError
from spotd_aws.clients import PRICING_REGION
from spotd_aws.errors import reads
from spotd_aws.machines import pages

if TYPE_CHECKING:
    from spotd_aws.clients import Clients

_KEPT = timedelta(days=1)
#: After a failure the list is not asked for at every sweep.
_AGAIN = timedelta(minutes=15)
_FILTERS = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "licenseModel": "No License required",
    "marketoption": "OnDemand",
}


@dataclass(frozen=True, slots=True)
class ListPrice:
    """What a type costs an hour in a region, and when the list was read."""

    usd_per_hour: Decimal
    seen_at: datetime


class OnDemand:
    """Reads the list by region and type, and keeps what it read: an old price with its age is better than none."""

    def __init__(self, clients: Clients, now: Callable[[], datetime]) -> None:
        self._clients = clients
        self._now = now
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], ListPrice | None] = {}
        self._asked: dict[tuple[str, str], tuple[datetime, ProviderError | None]] = {}

    def prices(self, region: str, instance_types: Iterable[str]) -> tuple[Mapping[str, ListPrice], ProviderError | None]:
        """What is known of these types, read again where it is a day old; and why not, if the list could not be read."""
        found: dict[str, ListPrice] = {}
        problem: ProviderError | None = None
        for kind in sorted(instance_types):
            price, failure = self._one(region, kind)
            problem = problem or failure
            if price is not None:
                found[kind] = price
        return found, problem

    def _one(self, region: str, kind: str) -> tuple[ListPrice | None, ProviderError | None]:
        now, key = self._now(), (region, kind)
        with self._lock:
            asked = self._asked.get(key)
            known = self._known.get(key)
        if asked is not None and now - asked[0] < (_KEPT if asked[1] is None else _AGAIN):
            return known, asked[1]
        failure: ProviderError | None = None
        try:
            with reads(f"reading the price list for {kind}", region):
                price = list_price(self._ask(region, kind))
            known = None if price is None else ListPrice(price, now)
        except ProviderError as error:
            failure = error
        with self._lock:
            self._known[key], self._asked[key] = known, (now, failure)
        return known, failure

    def _ask(self, region: str, kind: str) -> list[Any]:
        wanted = {**_FILTERS, "regionCode": region, "instanceType": kind}
        filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()]
        pricing = self._clients.get("pricing", PRICING_REGION)
        asked = {"ServiceCode": "AmazonEC2", "Filters": filters, "MaxResults": 100}
        return [row for page in pages(pricing.get_products, asked) for row in page["PriceList"]]


def list_price(rows: Iterable[Any]) -> Decimal | None:
    """The one price per hour that these products have. None where there is none, where it is 0 (not sold on demand), or where there are two."""
    prices = {price for row in rows for price in _hourly(json.loads(row) if isinstance(row, str) else row)}
    positive = {price for price in prices if price > 0}
    return positive.pop() if len(positive) == 1 else None


def _hourly(product: Any) -> Iterable[Decimal]:
    for term in ((product.get("terms") or {}).get("OnDemand") or {}).values():
        for dimension in (term.get("priceDimensions") or {}).values():
            usd = (dimension.get("pricePerUnit") or {}).get("USD")
            if dimension.get("unit") != "Hrs" or usd is None:
                continue
            try:
                price = Decimal(str(usd))
            except InvalidOperation:
                continue
            if price.is_finite():
                yield price
