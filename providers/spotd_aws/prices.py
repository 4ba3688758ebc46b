"""Spot prices as they are now, from the price history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from spotd_aws.errors import reads
from spotd_aws.paging import batches, pages, rows

if TYPE_CHECKING:
    import threading

    from spotd_aws.clients import Clients

SOURCE = "spot price history"
#: Accounts of the classic era list newer types under the second only (facts/cloud-api.md §1.1).
PRODUCTS = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
#: EC2's limit on the values of one filter.
_MOST_VALUES = 200
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class SpotPrice:
    """What a type costs in a zone since its price changed last: maybe days ago, and in force all the same (facts/cloud-api.md §0.4)."""

    instance_type: str
    zone: str
    #: Empty where the region does not tell it.
    zone_id: str
    usd_per_hour: Decimal
    changed_at: datetime

    @property
    def place(self) -> tuple[str, str]:
        """What has a price of its own: the type in the zone, by the id where there is one."""
        return (self.instance_type, self.zone_id or self.zone)


def current(clients: Clients, region: str, instance_types: Sequence[str], stop: threading.Event) -> Mapping[tuple[str, str], SpotPrice]:
    """The price of each of these types in each zone of a region that sells it on the spot market. Raises ProviderError.

    Filters and not `InstanceTypes`: a name that EC2 does not know, such as a policy's slip of the pen, must not cost the others their prices.
    """
    ec2 = clients.get("ec2", region)
    found: list[SpotPrice] = []
    with reads("asking for spot prices", region):
        for part in batches(instance_types, _MOST_VALUES):
            question = {
                # From now on: what is in force now is what is told then, one row each (facts/cloud-api.md §1.1).
                "StartTime": datetime.now(UTC),
                "Filters": [{"Name": "instance-type", "Values": part}, {"Name": "product-description", "Values": list(PRODUCTS)}],
                "MaxResults": _PAGE,
            }
            for page in pages(ec2.describe_spot_price_history, stop, **question):
                found += parse(rows(page, "SpotPriceHistory"))
    wanted = set(instance_types)
    return newest(price for price in found if price.instance_type in wanted)


def parse(found: Iterable[Mapping[str, Any]]) -> Iterator[SpotPrice]:
    """The rows that are prices of Linux machines. One without a price above zero says nothing about what it costs."""
    for row in found:
        kind, zone, zone_id, changed_at = row.get("InstanceType"), row.get("AvailabilityZone"), row.get("AvailabilityZoneId"), row.get("Timestamp")
        usd = amount(row.get("SpotPrice"))
        if row.get("ProductDescription") not in PRODUCTS or usd is None or not isinstance(changed_at, datetime):
            continue
        if kind and (zone or zone_id):
            yield SpotPrice(str(kind), str(zone or ""), str(zone_id or ""), usd, changed_at)


def newest(found: Iterable[SpotPrice]) -> dict[tuple[str, str], SpotPrice]:
    """The last change of each: rows come in no order (facts/cloud-api.md §0.4). Of two of the same instant, the dearer."""
    best: dict[tuple[str, str], SpotPrice] = {}
    for price in found:
        known = best.get(price.place)
        if known is None or (price.changed_at, price.usd_per_hour) > (known.changed_at, known.usd_per_hour):
            best[price.place] = price
    return best


def amount(text: object) -> Decimal | None:
    """A price above zero; None for whatever is none. A price of nothing is an answer about something else (facts/cloud-api.md §1.3)."""
    try:
        value = Decimal(str(text))
    except InvalidOperation:
        return None
    if not value.is_finite() or value <= 0:
        return None
    # The price list writes 1.0060000000: what is shown to people is 1.006.
    plain = value.normalize()
    return plain if plain.as_tuple().exponent <= 0 else plain.quantize(Decimal(1))  # type: ignore[operator] # of a finite one it is a number
