"""Ranking and choosing: what is bought first, and what is never bought."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from spotd.core.cooldown import Cooling, after_failure, key_for
from spotd.core.errors import ErrorKind, Scope
from spotd.core.fallback import MarketChoice
from spotd.core.offer import Market, Offer, OfferKey
from spotd.core.placement import NoPlacement, Placement, Rejection, choose, rank, shortlist
from spotd.core.plan import HoldReason
from spotd.core.planner.placing import decide_market
from spotd.core.policy import Candidate, SpotHandlers
from spotd.core.survival import PRIOR_MEAN_LIFE_HOURS, Lifetime, hazard_per_hour
from tests.unit.core.stage import START, default_prices, offer_key, policy


def _offers(prices: dict[OfferKey, str]) -> dict[OfferKey, Offer]:
    return {k: Offer(k, Decimal(v), START) for k, v in prices.items()}


def _pick(prices: dict[OfferKey, str], market: Market = Market.SPOT, **more: object) -> Placement | NoPlacement:
    ranking = rank(policy(), _offers(prices), {}, START)
    values: dict[str, object] = {"cooldowns": {}, "suspended": {}, "now": START}
    shy = more.pop("shy_of", frozenset())
    values["cooldowns"] = Cooling.at(more.pop("cooldowns", {}), START)  # type: ignore[arg-type]
    return choose(shortlist(ranking, market, **(values | more)), shy)  # type: ignore[arg-type]


def test_cheapest_useful_hour_comes_first() -> None:
    """With equal histories the cheapest spot offer is chosen."""
    found = _pick(default_prices())

    assert isinstance(found, Placement)
    assert found.offer.key == offer_key("east")


def test_hazard_outweighs_a_small_discount() -> None:
    """An offer that is reclaimed every few minutes loses against one that is 10 % dearer and holds."""
    flapping = Lifetime(offer_key("east"), hours=2.0, reclaims=12.0, as_of=START)

    ranking = rank(policy(), _offers(default_prices()), {offer_key("east"): flapping}, START)

    spot = [r.offer.key.region for r in ranking.ranked if r.offer.key.market is Market.SPOT]
    assert spot == ["west", "east"]


def _with_prior(prior: float | None) -> dict[OfferKey, Offer]:
    """The default offers, the one in the east with the provider's word on its reclaim rate."""
    east = offer_key("east")
    offers = _offers(default_prices())
    return offers | {east: replace(offers[east], source="spot price history", prior_hazard_per_hour=prior)}


def test_what_the_provider_says_of_reclaims_stands_in_for_our_own_prior() -> None:
    """Without history an offer's hazard is its provider's prior; a bad one costs it the first place, and the reason names price source and prior."""
    ranking = rank(policy(), _with_prior(2.0), {}, START)
    hazards = {r.offer.key: r.hazard_per_hour for r in ranking.ranked}
    assert hazards[offer_key("east")] == pytest.approx(2.0)
    assert hazards[offer_key("west")] == pytest.approx(1 / PRIOR_MEAN_LIFE_HOURS)
    assert [r.offer.key.region for r in ranking.ranked if r.offer.key.market is Market.SPOT] == ["west", "east"]
    found = choose(shortlist(rank(policy(), _with_prior(0.1), {}, START), Market.SPOT, Cooling({}), {}, START))
    assert isinstance(found, Placement)
    assert "by spot price history, hazard 0.10/h, prior 0.10/h" in found.because


def test_history_outweighs_the_providers_word() -> None:
    """A provider's good word weighs no more than our own prior does: a dozen reclaims in two hours are believed."""
    flapping = Lifetime(offer_key("east"), hours=2.0, reclaims=12.0, as_of=START)
    ranking = rank(policy(), _with_prior(0.1), {offer_key("east"): flapping}, START)
    assert next(r.hazard_per_hour for r in ranking.ranked if r.offer.key == offer_key("east")) > 2


@pytest.mark.parametrize("prior", [None, float("nan"), float("inf"), -1.0])
def test_a_rate_that_is_none_is_not_believed(prior: float | None) -> None:
    """Where a provider says nothing, or nonsense, our own prior holds."""
    assert hazard_per_hour(offer_key("east"), {}, START, prior) == pytest.approx(1 / PRIOR_MEAN_LIFE_HOURS)


def test_equal_offers_follow_the_policys_order_of_regions() -> None:
    """Among equals the policy's order of regions decides, not the name and not chance."""
    prices = {offer_key("east"): "1.00", offer_key("west"): "1.00"}

    found = rank(policy(candidates=(Candidate("cloud", ("gpu",), ("west", "east")),)), _offers(prices), {}, START)

    assert [r.offer.key.region for r in found.ranked] == ["west", "east"]


@pytest.mark.parametrize(
    ("price", "why"),
    [
        ("3.00", Rejection.NOT_CHEAPER_THAN_ON_DEMAND),
        ("3.50", Rejection.NOT_CHEAPER_THAN_ON_DEMAND),
        ("0.01", Rejection.IMPLAUSIBLE_PRICE),
        ("9.00", Rejection.IMPLAUSIBLE_PRICE),
        ("0", Rejection.IMPLAUSIBLE_PRICE),
    ],
)
def test_a_spot_price_that_makes_no_sense_is_refused(price: str, why: Rejection) -> None:
    """Spot at or above on-demand is not bought, and a price far outside it is a wrong answer (known-faults A.94, B.3d #9156)."""
    ranking = rank(policy(), _offers(default_prices() | {offer_key("east"): price}), {}, START)

    assert {o.key: w for o, w in ranking.rejected} == {offer_key("east"): why}


def test_prices_grow_too_old() -> None:
    """An offer last seen longer ago than max_price_age is not bought, and the hold says so."""
    ranking = rank(policy(max_price_age=timedelta(hours=1)), _offers(default_prices()), {}, START + timedelta(hours=2))

    found = choose(shortlist(ranking, Market.SPOT, Cooling({}), {}, START + timedelta(hours=2)))

    assert isinstance(found, NoPlacement)
    assert found.why is HoldReason.PRICES_TOO_OLD


def test_max_hourly_price_is_a_cap() -> None:
    """Offers above the policy's cap are not bought in either market."""
    ranking = rank(policy(max_hourly_price_usd=Decimal("1.05")), _offers(default_prices()), {}, START)

    assert [r.offer.key for r in ranking.ranked] == [offer_key("east")]
    assert {w for _, w in ranking.rejected} == {Rejection.ABOVE_MAX_PRICE}


def test_a_reclaimed_region_comes_last_but_is_not_forbidden() -> None:
    """After a reclaim another region is preferred even if dearer; where there is no other, the same one is used (known-faults B.3b #10021)."""
    shy = frozenset({("cloud", "east")})

    elsewhere = _pick(default_prices(), shy_of=shy)
    nowhere_else = _pick({k: v for k, v in default_prices().items() if k.region == "east"}, shy_of=shy)

    assert isinstance(elsewhere, Placement)
    assert elsewhere.offer.key.region == "west"
    assert isinstance(nowhere_else, Placement)
    assert nowhere_else.offer.key.region == "east"


def test_cooldowns_of_every_scope_cover_their_offers_only() -> None:
    """A cooled zone, region or provider is not tried, other markets are not touched, and the hold names when the first ends."""
    for scope in Scope:
        key = key_for(offer_key("east"), scope)
        cooldown = after_failure(None, key, ErrorKind.NO_CAPACITY, START)
        found = _pick(default_prices(), cooldowns={key: cooldown})
        on_demand = _pick(default_prices(), Market.ON_DEMAND, cooldowns={key: cooldown})

        if scope is Scope.PROVIDER:
            assert isinstance(found, NoPlacement)
            assert (found.why, found.until) == (HoldReason.COOLING_DOWN, START + timedelta(minutes=3))
        else:
            assert isinstance(found, Placement)
            assert found.offer.key.region == "west"
        assert isinstance(on_demand, Placement)


def test_cooldowns_double_up_to_a_cap_and_are_forgotten_after_a_quiet_day() -> None:
    """A pool that keeps failing is asked ever less often, never never, and starts afresh after a day (known-faults A.36, A.37, A.40)."""
    key = key_for(offer_key("east"), Scope.OFFER)
    now, past, lengths = START, None, []
    for _ in range(8):
        past = after_failure(past, key, ErrorKind.NO_CAPACITY, now)
        lengths.append((past.until - now) / timedelta(minutes=1))
        now = past.until
    later = after_failure(past, key, ErrorKind.NO_CAPACITY, now + timedelta(days=2))

    assert lengths == [3, 6, 12, 24, 48, 60, 60, 60]
    assert later.failures == 1


def test_a_suspended_provider_is_not_asked() -> None:
    """A throttled or unauthorised provider is left alone until its time is over."""
    until = START + timedelta(minutes=10)

    found = _pick(default_prices(), suspended={"cloud": until})

    assert isinstance(found, NoPlacement)
    assert (found.why, found.until) == (HoldReason.PROVIDER_SUSPENDED, until)


def test_the_fallback_type_is_bought_on_demand_only() -> None:
    """fallback_node may be a type no candidate names: it is never bought on spot, and no other type is bought on demand."""
    prices = default_prices() | {offer_key("east", Market.ON_DEMAND, instance_type="big"): "9.00", offer_key("east", instance_type="big"): "2.00"}
    handlers = SpotHandlers(fallback_node="big")

    ranking = rank(policy(spot_handlers=handlers), _offers(prices), {}, START)

    assert {(r.offer.key.market, r.offer.key.instance_type) for r in ranking.ranked} == {(Market.SPOT, "gpu"), (Market.ON_DEMAND, "big")}


def test_explain_and_placement_decide_alike_where_spot_is_dearer() -> None:
    """The one decision both use: on-demand at once where spot's expected cost is not below it, spot otherwise (known-faults A.46)."""
    spot, on_demand = _pick(default_prices()), _pick(default_prices(), Market.ON_DEMAND)
    assert isinstance(spot, Placement)
    dear = Placement(replace(spot.entry, cost_usd_per_useful_hour=3.5), spot.because)
    choice = MarketChoice(Market.SPOT, None, "0 of 3 preemptions: spot")

    assert decide_market(choice, spot, on_demand) == spot
    found = decide_market(choice, dear, on_demand)
    assert isinstance(found, Placement)
    assert found.offer.key.market is Market.ON_DEMAND
