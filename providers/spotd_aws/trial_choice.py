"""Which instances a self-test may use: small ones, and none that could cost more than its budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal

from spotd.core.offer import Market, Offer
from spotd_aws.installation import Unusable

#: Small x86_64 types that nearly every region sells on the spot market, about a cent an hour each; memory for an image with a GPU driver in it.
SMALL_TYPES = ("t3.small", "t3a.small", "t3.medium", "t3a.medium", "m5.large", "m6i.large", "m7i.large")
#: While one is reclaimed, the next one runs.
MACHINES = 2
_MICRO = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class Choice:
    """What may be bought."""

    #: The cheapest; spotd takes it unless it has no capacity.
    cheapest: Offer
    #: Everything that is affordable: where the cheapest pool is empty or has just been reclaimed, another one does as well.
    affordable: tuple[Offer, ...]
    #: Above this nothing is bought, so that the budget holds whatever happens until the time limit.
    cap_usd_per_hour: Decimal

    @property
    def instance_types(self) -> list[str]:
        """By name, the cheapest first."""
        return list(dict.fromkeys(offer.key.instance_type for offer in self.affordable))

    @property
    def regions(self) -> list[str]:
        """By name, the cheapest first."""
        return list(dict.fromkeys(offer.key.region for offer in self.affordable))


def choose(offers: Iterable[Offer], budget_usd: Decimal, hours: Decimal) -> Choice:
    """What may be bought so that two machines for so many hours cost no more than the budget. Unusable where nothing may."""
    spot = sorted((offer for offer in offers if offer.key.market is Market.SPOT), key=lambda offer: (offer.price_usd_per_hour, offer.key))
    if not spot:
        raise Unusable("none of these types is offered on the spot market there: name another with --type, or another region with --region")
    cap = (budget_usd / (MACHINES * hours)).quantize(_MICRO, rounding=ROUND_DOWN)
    affordable = tuple(offer for offer in spot if offer.price_usd_per_hour <= cap)
    if not affordable:
        first = spot[0]
        cost = first.price_usd_per_hour * MACHINES * hours
        raise Unusable(
            f"the cheapest that is offered is {first.key.instance_type} in {first.key.region} at ${first.price_usd_per_hour}/h: "
            f"{MACHINES} of them for {hours:.3g} h may cost ${cost:.3f}, and the budget is ${budget_usd}. "
            "Allow more with --budget, or name a smaller type with --type"
        )
    return Choice(affordable[0], affordable, cap)
