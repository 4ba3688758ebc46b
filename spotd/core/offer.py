"""What could be bought: offers, markets, and how old a price is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum, unique


@unique
class Market(StrEnum):
    """How capacity is bought. Never a bool: later markets (reservations, capacity blocks) exist."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"


@dataclass(frozen=True, slots=True, order=True)
class OfferKey:
    """What an offer is, without its price: the unit of cooldowns, survival history and launch tokens."""

    provider: str
    region: str
    zone: str
    instance_type: str
    market: Market

    def parts(self) -> tuple[str, str, str, str, str]:
        """The five names, in order of significance."""
        return (self.provider, self.region, self.zone, self.instance_type, self.market.value)

    def __str__(self) -> str:
        return "/".join(self.parts())


@dataclass(frozen=True, slots=True)
class Offer:
    """Something we could buy now. A price is a fact with an age: `seen_at` is when the provider was asked, not when it last changed."""

    key: OfferKey
    price_usd_per_hour: Decimal
    seen_at: datetime
    #: Where the price comes from, for people: "spot price history", "price list".
    source: str = ""
    #: What the provider's own signals say of its reclaim rate. None: they say nothing, and `survival` has a prior of its own.
    prior_hazard_per_hour: float | None = None

    def age(self, now: datetime) -> timedelta:
        """How old the price is. Never negative, even when the clock was stepped back."""
        return max(now - self.seen_at, timedelta(0))
