"""Money: Decimal US dollars, with the unit in every name (`…_usd`, `…_usd_per_hour`)."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

ZERO_USD = Decimal(0)
_SECONDS_PER_HOUR = Decimal(3600)
_MICRO = Decimal("0.000001")


def charge_usd(price_usd_per_hour: Decimal, seconds: Decimal) -> Decimal:
    """What `seconds` of an instance cost at an hourly price, exact (no rounding: sums are rounded once, when they are shown)."""
    return price_usd_per_hour * seconds / _SECONDS_PER_HOUR


def rounded_usd(amount_usd: Decimal, places: Decimal = _MICRO) -> Decimal:
    """An amount as it is shown: rounded half-even to millionths of a dollar unless told otherwise."""
    return amount_usd.quantize(places, rounding=ROUND_HALF_EVEN)
