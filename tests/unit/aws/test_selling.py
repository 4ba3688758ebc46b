"""What is offered, against an AWS account over HTTP: prices of both markets, and what is left of them when something cannot be asked."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.loaders import create_loader

from spotd.core.errors import Misconfigured, NotAuthorized, ProviderError, ProviderUnavailable
from spotd.core.offer import Market, Offer
from spotd.core.survival import PRIOR_MEAN_LIFE_HOURS
from spotd.ports import OfferQuery, OfferSheet
from spotd.testing import FakeClock
from spotd.testing.fake_aws import FakeAws
from spotd_aws.clients import Clients
from spotd_aws.config import read
from spotd_aws.selling import Selling

WEST, EAST, ABROAD = "us-west-2", "us-east-1", "eu-west-1"
KIND = "g5.xlarge"
POOL = ["g4dn.xlarge", "g5.xlarge", "g6.xlarge"]
#: botocore reads its models anew for each session; once will do.
_LOADER = cache(create_loader)
OWN = 1 / PRIOR_MEAN_LIFE_HOURS


class _Counting(Clients):
    """Counts the calls that are made, by action."""

    def __init__(self, table: dict[str, object]) -> None:
        super().__init__(read(table))
        self.calls: Counter[str] = Counter()

    def _make(self, service: str, region: str, read_timeout_s: float) -> Any:
        client = super()._make(service, region, read_timeout_s)
        client.meta.events.register("before-call", self._count)
        return client

    def _count(self, model: Any, **_: object) -> None:
        self.calls[model.name] += 1


class _Shop:
    """An account, and what sells it. Its answers come in pages of two rows."""

    def __init__(self, aws: FakeAws, clock: FakeClock, clients: _Counting) -> None:
        self.aws = aws
        self.clock = clock
        self.clients = clients
        self.selling = self.open()

    def open(self, **table: object) -> Selling:
        """Another one, which knows nothing yet."""
        self.clients.calls.clear()
        self.selling = Selling(self.clients, read({"endpoint_url": self.aws.endpoint, **table}), self.clock.now)
        return self.selling

    def sheet(self, *regions: str, types: tuple[str, ...] = (KIND,)) -> OfferSheet:
        return self.selling.offers(OfferQuery(frozenset(types), frozenset(regions or (WEST,))))

    def offers(self, *regions: str, types: tuple[str, ...] = (KIND,), market: Market | None = None) -> dict[tuple[str, str, Market], Offer]:
        """By zone, type and market."""
        found = self.sheet(*regions, types=types).offers
        return {(o.key.zone, o.key.instance_type, o.key.market): o for o in found if market in (None, o.key.market)}

    def price(self, zone: str, kind: str = KIND) -> Decimal:
        """The truth."""
        usd = self.aws.world.market.price(zone, kind, self.clock.now())
        assert usd is not None
        return usd

    def zone_id(self, zone: str) -> str:
        found = self.aws.world.fleet.catalogue.zone(zone[:-1], zone)
        assert found is not None
        return found.id


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Shop]:
    """Three regions, and nothing asked yet."""
    monkeypatch.setattr(botocore.session, "create_loader", _LOADER)
    clock = FakeClock(datetime.now(UTC).replace(microsecond=0))
    with FakeAws(clock, (WEST, EAST, ABROAD)) as aws:
        aws.world.page_rows = 2
        for name, value in aws.environment().items():
            if name != "AWS_ENDPOINT_URL":
                monkeypatch.setenv(name, value)
        clients = _Counting({"endpoint_url": aws.endpoint})
        made = _Shop(aws, clock, clients)
        yield made
        made.selling.close()
        clients.close()


# What is offered


def test_both_markets_in_every_zone_with_price_age_and_source(shop: _Shop) -> None:
    """Spot at what it costs now, on demand at what the list says; seen when it was asked for; with no signal, no prior."""
    found = shop.offers(WEST)
    assert set(found) == {(WEST + letter, KIND, market) for letter in "abc" for market in Market}
    for (zone, _, market), offer in found.items():
        spot = market is Market.SPOT
        assert offer.price_usd_per_hour == (shop.price(zone) if spot else Decimal("1.006"))
        assert (offer.seen_at, offer.source) == (shop.clock.now(), "spot price history" if spot else "price list")
        assert offer.prior_hazard_per_hour is None
    assert shop.sheet(WEST).remarks == ()


def test_the_price_is_the_one_in_force(shop: _Shop) -> None:
    """After changes the newest counts, however long ago; Windows, which is cheaper here, is not looked at."""
    shop.aws.set_price(WEST, WEST + "a", KIND, "0.77")
    shop.aws.set_price(WEST, WEST + "a", KIND, "0.11", at=shop.clock.now() - timedelta(days=30))
    assert shop.offers(WEST)[WEST + "a", KIND, Market.SPOT].price_usd_per_hour == Decimal("0.77")
    shop.clock.step(3600)
    shop.aws.set_price(WEST, WEST + "a", KIND, "0.55")
    assert shop.offers(WEST)[WEST + "a", KIND, Market.SPOT].price_usd_per_hour == Decimal("0.55")


def test_types_listed_for_classic_accounts_have_a_price(shop: _Shop) -> None:
    """g6e is listed as Linux/UNIX (Amazon VPC) only (AutoSpotting#213)."""
    assert len(shop.offers(WEST, types=("g6e.xlarge",), market=Market.SPOT)) == 3


def test_local_zones_are_not_offered(shop: _Shop) -> None:
    """g4dn has a price in Los Angeles, where our machines cannot be."""
    assert {zone for zone, _, _ in shop.offers(WEST, types=("g4dn.xlarge",))} == {WEST + letter for letter in "abc"}


def test_zones_without_a_configured_subnet_are_not_offered(shop: _Shop) -> None:
    """A launch there is refused, and would cool the whole region down. It takes no list of zones; other regions have their default VPCs."""
    wanted = {WEST + "b", *(EAST + letter for letter in "abc")}
    for refused in (False, True):
        if refused:
            shop.aws.refuse(WEST, "DescribeAvailabilityZones", "UnauthorizedOperation", 403)
        shop.open(**{"in": {WEST: {"subnets": {WEST + "b": "subnet-0123456789abcdef0"}}}})
        assert {(zone, market) for zone, _, market in shop.offers(WEST, EAST)} == {(zone, market) for zone in wanted for market in Market}


def test_a_name_that_no_type_has_costs_the_others_nothing(shop: _Shop) -> None:
    """A policy's slip of the pen."""
    sheet = shop.sheet(WEST, types=(KIND, "g5.xxlarge", "*"))
    assert {offer.key.instance_type for offer in sheet.offers} == {KIND}
    assert dict(sheet.failures) == {}


def test_what_is_not_sold_is_not_offered(shop: _Shop) -> None:
    """Without a spot price a place has no spot offer (karpenter#2243); where a type is not sold at all, none."""
    shop.aws.withdraw(KIND, WEST, WEST + "b")
    shop.aws.sell("p5.4xlarge", WEST, WEST + "a", on_demand_usd="6.88")
    shop.aws.sell("p5e.48xlarge", WEST, on_demand_usd="0", spot_usd="20")
    found = shop.offers(WEST, types=(KIND, "p5.4xlarge", "p5e.48xlarge"))
    assert {(zone[-1], kind, market.value) for zone, kind, market in found} == {
        *((letter, KIND, market.value) for letter in "ac" for market in Market),
        ("a", "p5.4xlarge", "on-demand"),
        # A price of nothing: sold in capacity blocks only, as far as on-demand goes (skypilot#4657).
        *((letter, "p5e.48xlarge", "spot") for letter in "abc"),
    }


# Regions


def test_one_broken_region_costs_only_its_own_offers(shop: _Shop) -> None:
    """Also when it answered before: what it would say now is not known. Alone, it is an error."""
    assert {zone[:-1] for zone, _, _ in shop.offers(WEST, EAST)} == {WEST, EAST}
    with shop.aws.break_region(WEST):
        sheet = shop.sheet(WEST, EAST)
        assert {offer.key.region for offer in sheet.offers} == {EAST}
        assert {region: type(error) for region, error in sheet.failures.items()} == {WEST: ProviderUnavailable}
        with pytest.raises(ProviderUnavailable):
            shop.sheet(WEST)


def test_a_slow_region_is_given_up_when_its_time_is_over(shop: _Shop) -> None:
    """The others' prices come no later for it."""
    shop.open(price_timeout="1500ms")
    shop.sheet(EAST)
    shop.aws.latency(WEST, 5.0)
    begin = time.monotonic()
    sheet = shop.sheet(WEST, EAST)
    assert time.monotonic() - begin < 4
    assert {offer.key.region for offer in sheet.offers} == {EAST}
    assert "did not tell its prices within 1.5 s (price_timeout" in str(sheet.failures[WEST])


def test_a_region_that_is_not_enabled_is_told_from_wrong_credentials(shop: _Shop) -> None:
    """It says AuthFailure, as for wrong keys; the sentence is what to do about a region. Alone as well."""
    shop.aws.disable_region(ABROAD)
    sheet = shop.sheet(WEST, ABROAD)
    assert {offer.key.region for offer in sheet.offers} == {WEST}
    assert isinstance(sheet.failures[ABROAD], Misconfigured)
    assert f"enable it (aws account enable-region --region-name {ABROAD}), or leave it out" in str(sheet.failures[ABROAD])
    with pytest.raises(Misconfigured):
        shop.open(regions=[EAST]).offers(OfferQuery(frozenset({KIND}), frozenset({ABROAD})))


def test_credentials_that_are_refused_everywhere_are_wrong(shop: _Shop) -> None:
    """Then no region is said to be the matter."""
    shop.aws.refuse("*", "*", "AuthFailure", 401, message="AWS was not able to validate the provided access credentials")
    with pytest.raises(NotAuthorized, match="refuses the credentials"):
        shop.sheet(WEST, EAST)


def test_a_region_refused_where_others_are_not_needs_no_list_of_regions(shop: _Shop) -> None:
    """The list may not be readable: that other regions take the same credentials says enough."""
    shop.aws.refuse("*", "DescribeRegions", "UnauthorizedOperation", 403)
    shop.aws.disable_region(ABROAD)
    assert isinstance(shop.sheet(WEST, ABROAD).failures[ABROAD], Misconfigured)


def test_regions_are_the_configured_ones_or_those_enabled(shop: _Shop) -> None:
    """Asked for once a day; as long as the account does not tell, those that policies asked for are what is known."""
    assert shop.open(regions=[ABROAD, WEST]).regions() == (ABROAD, WEST)
    shop.open()
    shop.aws.refuse("*", "DescribeRegions", "UnauthorizedOperation", 403)
    assert shop.selling.regions() == ()
    shop.sheet(WEST)
    assert shop.selling.regions() == (WEST,)
    shop.aws.allow("*", "DescribeRegions")
    shop.clock.step(60)
    assert [shop.selling.regions() for _ in range(3)] == [(ABROAD, EAST, WEST)] * 3
    assert shop.clients.calls["DescribeRegions"] == 2


# What is missing costs what it is for


@pytest.mark.parametrize("action", ["DescribeAvailabilityZones", "DescribeInstanceTypeOfferings"])
def test_zones_and_offerings_have_something_that_stands_in(shop: _Shop, action: str) -> None:
    """A spot price names its zone, and that the type is sold there; which permission is missing is told."""
    shop.aws.refuse(WEST, action, "UnauthorizedOperation", 403, message=f"You are not authorized to perform: ec2:{action}")
    sheet = shop.sheet(WEST, EAST, types=("g4dn.xlarge",))
    assert {(o.key.zone, o.key.market) for o in sheet.offers} == {(r + letter, market) for r in (WEST, EAST) for letter in "abc" for market in Market}
    assert set(sheet.failures) == {WEST}
    assert f"ec2:{action} is not permitted" in str(sheet.failures[WEST])


def test_without_the_right_to_spot_prices_there_is_on_demand(shop: _Shop) -> None:
    """A fallback has somewhere to go, and ops are told."""
    shop.aws.refuse(WEST, "DescribeSpotPriceHistory", "UnauthorizedOperation", 403)
    sheet = shop.sheet(WEST)
    assert {offer.key.market for offer in sheet.offers} == {Market.ON_DEMAND}
    assert isinstance(sheet.failures[WEST], NotAuthorized)


def test_without_the_price_list_there_is_spot(shop: _Shop) -> None:
    """One permission, and all regions say so; it is asked for again after five minutes."""
    shop.aws.refuse("*", "pricing:GetProducts", "AccessDeniedException", 400)
    for _ in range(2):
        sheet = shop.sheet(WEST, EAST)
        assert {offer.key.market for offer in sheet.offers} == {Market.SPOT}
        assert {region: type(error) for region, error in sheet.failures.items()} == {WEST: NotAuthorized, EAST: NotAuthorized}
    assert shop.clients.calls["GetProducts"] == 1
    shop.aws.allow("*", "pricing:GetProducts")
    shop.clock.step(300)
    assert {offer.key.market for offer in shop.sheet(WEST).offers} == set(Market)


@pytest.mark.parametrize("action", ["servicequotas:*", "DescribeInstanceTypes"])
def test_limits_that_cannot_be_asked_are_unknown(shop: _Shop, action: str) -> None:
    """Everything is offered, and no region is said to be out of order."""
    shop.aws.refuse("*", action, "AccessDeniedException", 400)
    sheet = shop.sheet(WEST)
    assert len(sheet.offers) == 6
    assert dict(sheet.failures) == {}
    assert not [remark for remark in sheet.remarks if "may have" in remark]


def test_limits_that_hang_cost_no_region_its_prices(shop: _Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network may lead to EC2 and not to Service Quotas: what is not known in time is unknown, and no region is said to be out of order."""
    shop.open(price_timeout="3s")
    shop.sheet(WEST)
    hang, get = threading.Event(), shop.clients.get

    def silent(service: str, region: str, **options: float) -> Any:
        if service == "service-quotas":
            hang.wait(20)
        return get(service, region, **options)

    monkeypatch.setattr(shop.clients, "get", silent)
    shop.clock.step(900)
    try:
        sheet = shop.sheet(WEST)
    finally:
        hang.set()
    assert len(sheet.offers) == 6
    assert dict(sheet.failures) == {}


# Limits


def test_a_limit_of_nothing_takes_the_offers_of_its_market_and_region(shop: _Shop) -> None:
    """Every launch would be refused. Ops raise it, and within a quarter of an hour it is offered."""
    shop.aws.set_quota(WEST, "L-3819A6DF", 0)
    found = shop.offers(WEST, EAST, types=(KIND, "p4d.24xlarge"))
    missing = {(r + letter, k, m) for r in (WEST, EAST) for letter in "abc" for k in (KIND, "p4d.24xlarge") for m in Market} - set(found)
    assert missing == {(WEST + letter, KIND, Market.SPOT) for letter in "abc"}
    [remark] = shop.sheet(WEST, EAST).remarks
    assert remark.startswith(f"{WEST}: the account may have 0 vCPUs of spot G and VT instances")
    assert "--quota-code L-3819A6DF" in remark
    shop.aws.set_quota(WEST, "L-3819A6DF", 8)
    shop.clock.step(900)
    assert len(shop.offers(WEST, market=Market.SPOT)) == 3


def test_a_limit_is_counted_in_vcpus(shop: _Shop) -> None:
    """8 are two of the small and none of the large (cortex#1878)."""
    shop.aws.set_quota(WEST, "L-3819A6DF", 8)
    found = shop.offers(WEST, types=(KIND, "g5.12xlarge"), market=Market.SPOT)
    assert {kind for _, kind, _ in found} == {KIND}
    [remark] = shop.sheet(WEST, types=(KIND, "g5.12xlarge")).remarks
    assert "8 vCPUs of spot G and VT instances, and g5.12xlarge has 48" in remark


def test_a_limit_that_was_never_applied_is_the_default(shop: _Shop) -> None:
    """A new account has nothing of GPUs, and service-quotas knows no such quota of it."""
    shop.aws.set_quota(WEST, "L-DB2E81BA", None)
    assert {market for _, _, market in shop.offers(WEST)} == {Market.SPOT}


# The price list's day


def test_the_price_list_is_read_once_a_day(shop: _Shop) -> None:
    """One question for each type, whatever the number of regions; the price carries the time it was asked for."""
    begin = shop.clock.now()
    found = shop.offers(WEST, EAST, types=(KIND, "p4d.24xlarge"))
    for _ in range(2):
        shop.clock.step(3600)
        found = shop.offers(WEST, EAST, types=(KIND, "p4d.24xlarge"))
    assert {o.seen_at for (_, _, market), o in found.items() if market is Market.ON_DEMAND} == {begin}
    # Pages of two rows: three regions are two of them.
    assert shop.clients.calls["GetProducts"] == 4
    shop.clock.step(18 * 3600)
    assert shop.offers(WEST, types=(KIND,))[WEST + "a", KIND, Market.ON_DEMAND].seen_at == shop.clock.now()


def test_a_price_list_that_cannot_be_renewed_leaves_old_prices_with_their_age(shop: _Shop) -> None:
    """From a day on it is told as well."""
    begin = shop.clock.now()
    shop.sheet(WEST)
    shop.aws.refuse("*", "pricing:GetProducts", "InternalErrorException", 500)
    for hours, told in ((21, False), (3, True)):
        shop.clock.step(hours * 3600)
        sheet = shop.sheet(WEST)
        assert {offer.seen_at for offer in sheet.offers if offer.key.market is Market.ON_DEMAND} == {begin}
        assert (WEST in sheet.failures) is told


# Signals


def test_scores_are_the_prior_of_their_pools_types(shop: _Shop) -> None:
    """By zone id, which the account's names say nothing of; types of no pool have none; asked for every twenty minutes."""
    shop.aws.world.scores |= {(WEST, shop.zone_id(WEST + "a")): 9, (WEST, shop.zone_id(WEST + "b")): 5, (WEST, shop.zone_id(WEST + "c")): 1}
    shop.open(score_pools=[POOL])
    for _ in range(2):
        found = shop.offers(WEST, types=(KIND, "p5.48xlarge"))
        priors = {zone[-1]: o.prior_hazard_per_hour for (zone, kind, market), o in found.items() if (kind, market) == (KIND, Market.SPOT)}
        assert priors == {"a": pytest.approx(OWN / 2), "b": pytest.approx(OWN), "c": pytest.approx(OWN * 2)}
        assert {o.prior_hazard_per_hour for (_, kind, market), o in found.items() if (kind, market) != (KIND, Market.SPOT)} == {None}
        shop.clock.step(19 * 60)
    # Once, in two pages.
    assert shop.clients.calls["GetSpotPlacementScores"] == 2
    shop.aws.world.scores[WEST, shop.zone_id(WEST + "a")] = 1
    shop.clock.step(60)
    assert shop.offers(WEST)[WEST + "a", KIND, Market.SPOT].prior_hazard_per_hour == pytest.approx(OWN * 2)


@pytest.mark.parametrize("code", ["MaxConfigLimitExceeded", "TargetCapacityLimitExceededException", "UnauthorizedOperation"])
def test_a_refused_score_is_no_data_for_a_day(shop: _Shop, code: str) -> None:
    """Not a score of 0, and not asked for again before (aegea#73)."""
    shop.open(score_pools=[POOL])
    shop.aws.refuse("*", "GetSpotPlacementScores", code, 400)
    for _ in range(3):
        sheet = shop.sheet(WEST)
        assert {offer.prior_hazard_per_hour for offer in sheet.offers} == {None}
        assert dict(sheet.failures) == {}
        [remark] = sheet.remarks
        assert "placement score" in remark
        shop.clock.step(7 * 3600)
    assert shop.clients.calls["GetSpotPlacementScores"] == 1
    shop.aws.allow("*", "GetSpotPlacementScores")
    shop.clock.step(3 * 3600 + 1)
    assert None not in {offer.prior_hazard_per_hour for offer in shop.sheet(WEST).offers if offer.key.market is Market.SPOT}


def test_the_advisors_band_is_the_prior_where_there_is_no_score(shop: _Shop, tmp_path: Path) -> None:
    """Of the whole region; a file that is none is told, and costs nothing."""
    file = tmp_path / "advisor.json"
    file.write_text(json.dumps({"ranges": [{"index": 4, "max": 100}], "spot_advisor": {WEST: {"Linux": {KIND: {"s": 60, "r": 4}}}}}))
    shop.open(spot_advisor=str(file))
    found = shop.offers(WEST, EAST)
    assert [o.prior_hazard_per_hour for (zone, _, m), o in found.items() if m is Market.SPOT and zone.startswith(WEST)] == [
        pytest.approx(OWN * 1.5)
    ] * 3
    assert {o.prior_hazard_per_hour for (zone, _, _), o in found.items() if zone.startswith(EAST)} == {None}
    file.write_text("{}")
    shop.open(spot_advisor=str(file))
    sheet = shop.sheet(WEST)
    assert len(sheet.offers) == 6
    [remark] = sheet.remarks
    assert "is not the spot advisor's data" in remark


def test_whoever_asks_for_nothing_gets_nothing(shop: _Shop) -> None:
    """No types or no regions: nobody is called."""
    for query in (OfferQuery(frozenset(), frozenset({WEST})), OfferQuery(frozenset({KIND}), frozenset())):
        assert shop.selling.offers(query) == OfferSheet(())
    assert not shop.clients.calls


def test_answers_that_make_no_sense_are_errors_of_ours(shop: _Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a KeyError: an answer without rows is a region that could not be asked."""
    monkeypatch.setattr(shop.clients.get("ec2", WEST), "describe_spot_price_history", lambda **_: {"ResponseMetadata": {}})
    with pytest.raises(ProviderError, match="no SpotPriceHistory"):
        shop.sheet(WEST)
