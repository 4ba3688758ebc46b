"""Spot prices now: DescribeSpotPriceHistory from this moment on gives the price in force of each pool, whenever it last changed (facts §1.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from spotd_aws.machines import pages

if TYPE_CHECKING:
    from collections.abc import Collection

#: Newer accounts answer with the first, classic ones with the second for newer types: both are asked for and merged.
PRODUCTS = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class SpotPrice:
    """What a pool costs an hour, and since when."""

    instance_type: str
    zone: str
    usd_per_hour: Decimal
    since: datetime


def ask_spot_prices(ec2: Any, instance_types: Collection[str], now: datetime) -> list[Any]:
    """The rows as they come, every page of them."""
    asked = {
        "StartTime": now.astimezone(UTC),
        "InstanceTypes": sorted(instance_types),
        "ProductDescriptions": list(PRODUCTS),
        "MaxResults": _PAGE,
    }
    return [row for page in pages(ec2.describe_spot_price_history, asked) for row in page["SpotPriceHistory"]]


def spot_prices(rows: Iterable[Any], zones: Mapping[str, str]) -> list[SpotPrice]:
    """The newest price of each type and zone: rows come in no order, and of zones that machines cannot be in as well.

    A row that is none is left out: a pool without a price is not offered, which is better than a sweep that fails for one of them.
    """
    newest: dict[tuple[str, str], SpotPrice] = {}
    names = {zone_id: name for name, zone_id in zones.items()}
    for row in rows:
        price = _price(row, zones, names)
        if price is None:
            continue
        key = (price.instance_type, price.zone)
        if key not in newest or newest[key].since < price.since:
            newest[key] = price
    return [newest[key] for key in sorted(newest)]


def _price(row: Any, zones: Mapping[str, str], names: Mapping[str, str]) -> SpotPrice | None:
    if not isinstance(row, dict) or row.get("ProductDescription") not in PRODUCTS:
        return None
    zone = str(row.get("AvailabilityZone") or names.get(str(row.get("AvailabilityZoneId"))) or "")
    since = row.get("Timestamp")
    try:
        usd = Decimal(str(row["SpotPrice"]))
    except (KeyError, InvalidOperation):
        return None
    if zone not in zones or not isinstance(since, datetime) or not usd.is_finite() or usd <= 0 or not row.get("InstanceType"):
        return None
    return SpotPrice(str(row["InstanceType"]), zone, usd, since)
