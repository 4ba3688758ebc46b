"""Rank offers and choose one: price over useful hours, what failed lately, what is allowed.

Price alone decides little (on AWS GPU spot, prices a day old cost 0.14 %, facts of DESIGN §8); how long an instance lives decides more. So an
offer's rank is its *expected cost per useful hour*: price times the overhead of reclaims under its hazard (`survival`). Ranking is done once
per policy; what differs between jobs of one policy is only where each was reclaimed last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum, unique
from types import MappingProxyType
from typing import TYPE_CHECKING

from spotd.core.cooldown import Cooling
from spotd.core.offer import Market, Offer, OfferKey
from spotd.core.plan import HoldReason
from spotd.core.survival import hazard_per_hour, overhead

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spotd.core.policy import Policy
    from spotd.core.survival import Lifetime

_UNBLOCKED: Mapping[str, str] = MappingProxyType({})
_NOWHERE: frozenset[tuple[str, str]] = frozenset()
#: A spot price outside this share of the on-demand price is a wrong answer, not a bargain (known-faults B.3d #9156: a GPU at $0.01).
_PLAUSIBLE = (Decimal("0.01"), Decimal("1.5"))


@unique
class Rejection(StrEnum):
    """Why an offer is not even ranked."""

    PRICE_TOO_OLD = "price_too_old"
    ABOVE_MAX_PRICE = "above_max_hourly_price"
    NOT_CHEAPER_THAN_ON_DEMAND = "not_cheaper_than_on_demand"
    IMPLAUSIBLE_PRICE = "implausible_price"


@dataclass(frozen=True, slots=True)
class Ranked:
    """An offer with every factor of its rank."""

    offer: Offer
    hazard_per_hour: float
    overhead: float
    cost_usd_per_useful_hour: float
    #: Position of its region in the policy: the order among equals.
    preference: int
    #: The on-demand price of the same type in the same region, where one is known: spot is never bought above it.
    on_demand_usd_per_hour: Decimal | None = None

    @property
    def where(self) -> tuple[str, str]:
        """Provider and region."""
        return (self.offer.key.provider, self.offer.key.region)

    @property
    def order(self) -> tuple[float, int, OfferKey]:
        """Cheapest useful hour first; among equals the policy's order of regions, then the name, so that a tie is never left to chance."""
        return (round(self.cost_usd_per_useful_hour, 6), self.preference, self.offer.key)


@dataclass(frozen=True, slots=True)
class Ranking:
    """All offers of one policy: those that may be bought, best first, and those that may not, with why."""

    ranked: tuple[Ranked, ...]
    rejected: tuple[tuple[Offer, Rejection], ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """The decision "on this offer, because …"."""

    entry: Ranked
    because: str

    @property
    def offer(self) -> Offer:
        """What is bought."""
        return self.entry.offer


@dataclass(frozen=True, slots=True)
class NoPlacement:
    """Nothing can be bought now, and when that may change."""

    why: HoldReason
    detail: str
    until: datetime | None


def rank(policy: Policy, offers: Mapping[OfferKey, Offer], lifetimes: Mapping[OfferKey, Lifetime], now: datetime) -> Ranking:
    """Rank the offers a policy allows."""
    allowed = _allowed(policy, offers)
    on_demand = _on_demand_prices(offers.values())
    ranked: list[Ranked] = []
    rejected: list[tuple[Offer, Rejection]] = []
    for offer, preference in allowed:
        reference = on_demand.get((offer.key.provider, offer.key.region, offer.key.instance_type))
        rejection = _rejection(policy, offer, reference, now)
        if rejection is not None:
            rejected.append((offer, rejection))
            continue
        hazard = hazard_per_hour(offer.key, lifetimes, now, offer.prior_hazard_per_hour)
        factor = overhead(hazard)
        ranked.append(Ranked(offer, hazard, factor, float(offer.price_usd_per_hour) * factor, preference, reference))
    return Ranking(tuple(sorted(ranked, key=lambda r: r.order)), tuple(rejected))


def _allowed(policy: Policy, offers: Mapping[OfferKey, Offer]) -> list[tuple[Offer, int]]:
    position: dict[tuple[str, str, str], int] = {}
    for candidate in policy.candidates:
        for preference, region in enumerate(candidate.regions):
            for instance_type in candidate.instance_types:
                position.setdefault((candidate.provider, region, instance_type), preference)
    fallback = policy.spot_handlers.fallback_node
    if fallback is not None:
        # The fallback type may be one that no candidate names; it is bought on demand only.
        for candidate in policy.candidates:
            for preference, region in enumerate(candidate.regions):
                position.setdefault((candidate.provider, region, fallback), preference)
    spot_types = {(c.provider, t) for c in policy.candidates for t in c.instance_types}
    found = []
    for key, offer in offers.items():
        preference_of = position.get((key.provider, key.region, key.instance_type))
        if preference_of is None:
            continue
        if key.market is Market.SPOT and (key.provider, key.instance_type) not in spot_types:
            continue
        if key.market is Market.ON_DEMAND and fallback is not None and key.instance_type != fallback:
            continue
        found.append((offer, preference_of))
    return found


def _on_demand_prices(offers: Iterable[Offer]) -> dict[tuple[str, str, str], Decimal]:
    """Of every type, also of those the policy would not buy on demand: they are what a spot price is judged by."""
    prices: dict[tuple[str, str, str], Decimal] = {}
    for offer in offers:
        if offer.key.market is Market.ON_DEMAND:
            where = (offer.key.provider, offer.key.region, offer.key.instance_type)
            prices[where] = min(offer.price_usd_per_hour, prices.get(where, offer.price_usd_per_hour))
    return prices


def _rejection(policy: Policy, offer: Offer, on_demand: Decimal | None, now: datetime) -> Rejection | None:
    if offer.age(now) > policy.max_price_age:
        return Rejection.PRICE_TOO_OLD
    price = offer.price_usd_per_hour
    if price <= 0:
        return Rejection.IMPLAUSIBLE_PRICE
    if policy.max_hourly_price_usd is not None and price > policy.max_hourly_price_usd:
        return Rejection.ABOVE_MAX_PRICE
    if offer.key.market is Market.SPOT and on_demand is not None:
        low, high = _PLAUSIBLE
        if not low * on_demand <= price <= high * on_demand:
            return Rejection.IMPLAUSIBLE_PRICE
        if price >= on_demand:
            return Rejection.NOT_CHEAPER_THAN_ON_DEMAND
    return None


@dataclass(frozen=True, slots=True)
class Shortlist:
    """The offers of one market that may be tried now, best first: the same for every job of a policy, so it is made once for all of them."""

    market: Market
    open: tuple[Ranked, ...]
    #: How many may not be tried yet.
    waiting: int
    #: What to say when none is open.
    nothing: NoPlacement


def shortlist(
    ranking: Ranking,
    market: Market,
    cooldowns: Cooling,
    suspended: Mapping[str, datetime],
    now: datetime,
    blocked: Mapping[str, str] = _UNBLOCKED,
) -> Shortlist:
    """Leave out what cools down, providers that are suspended, and providers that are blocked (with the sentence why, by name)."""
    in_market = [r for r in ranking.ranked if r.offer.key.market is market]
    sentences = sorted({blocked[r.offer.key.provider] for r in in_market if r.offer.key.provider in blocked})
    in_market = [r for r in in_market if r.offer.key.provider not in blocked]
    waits: list[tuple[datetime, HoldReason, str]] = []
    open_offers: list[Ranked] = []
    for entry in in_market:
        key = entry.offer.key
        cooldown = cooldowns.of(key)
        pause = suspended.get(key.provider)
        if cooldown is not None:
            waits.append((cooldown.until, HoldReason.COOLING_DOWN, f"{key} is cooling down after {cooldown.cause or 'a reclaim'}"))
        elif pause is not None and pause > now:
            waits.append((pause, HoldReason.PROVIDER_SUSPENDED, f"provider {key.provider} is suspended"))
        else:
            open_offers.append(entry)
    if waits:
        until, why, detail = min(waits, key=lambda w: w[0])
        nothing = NoPlacement(why, f"{len(waits)} {market} offers cannot be tried yet; first: {detail}", until)
    elif sentences:
        nothing = NoPlacement(HoldReason.PROVIDER_BLOCKED, "; ".join(sentences), None)
    else:
        nothing = _nothing(ranking, market)
    return Shortlist(market, tuple(open_offers), len(waits), nothing)


def choose(offers: Shortlist, shy_of: frozenset[tuple[str, str]] = _NOWHERE, avoid: frozenset[tuple[str, str]] = _NOWHERE) -> Placement | NoPlacement:
    """The best offer for one job.

    `shy_of` are (provider, region) pairs where this job was reclaimed a moment ago: their offers come after all others, because reclaims of a
    region come together (known-faults B.3b #10021), but they are not forbidden. `avoid` are pairs that must not be used at all now.
    """
    allowed = [r for r in offers.open if r.where not in avoid] if avoid else offers.open
    if not allowed:
        if not offers.open:
            return offers.nothing
        regions = ", ".join(sorted(region for _, region in avoid))
        return NoPlacement(HoldReason.LAUNCHING, f"every open {offers.market} offer is in {regions}, where a launch call is not answered yet", None)
    best = next((r for r in allowed if r.where not in shy_of), allowed[0]) if shy_of else allowed[0]
    return Placement(best, _because(best, allowed[0], offers))


def _because(best: Ranked, cheapest: Ranked, offers: Shortlist) -> str:
    offer = best.offer
    source = f" by {offer.source}" if offer.source else ""
    prior = f", prior {offer.prior_hazard_per_hour:.2f}/h" if offer.prior_hazard_per_hour is not None else ""
    text = (
        f"${best.cost_usd_per_useful_hour:.4f} per useful hour "
        f"(price ${offer.price_usd_per_hour}{source}, hazard {best.hazard_per_hour:.2f}/h{prior}), "
        f"best of {len(offers.open)} {offers.market} offers"
    )
    if offers.waiting:
        text += f", {offers.waiting} cooling down"
    if cheapest is not best:
        text += f"; {cheapest.offer.key.region} is cheaper but the job was just reclaimed there"
    return text


def _nothing(ranking: Ranking, market: Market) -> NoPlacement:
    reasons = [why for offer, why in ranking.rejected if offer.key.market is market]
    if not reasons:
        return NoPlacement(HoldReason.NO_OFFER, f"no {market} offer matches the policy's candidates", None)
    if all(why is Rejection.PRICE_TOO_OLD for why in reasons):
        return NoPlacement(HoldReason.PRICES_TOO_OLD, f"the prices of all {len(reasons)} {market} offers are older than max_price_age", None)
    worst = max(set(reasons), key=reasons.count)
    return NoPlacement(HoldReason.TOO_EXPENSIVE, f"all {len(reasons)} {market} offers are refused, most as {worst}", None)
