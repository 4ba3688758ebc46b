"""What AWS sells: offers of both markets in all wanted regions, put together from what the other modules ask.

Every region is asked on a thread of its own, so that a sweep takes as long as the slowest. Only a region's own spot prices can cost it its offers;
everything beside them (zones, offerings, the price list, quotas, scores, the advisor) has something that stands in for it when it cannot be asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from spotd.core.errors import NotAuthorized, ProviderError, ProviderUnavailable
from spotd.core.offer import Market, Offer, OfferKey
from spotd.ports import OfferQuery, OfferSheet
from spotd_aws import on_demand, prices
from spotd_aws.advisor import Advisor
from spotd_aws.offerings import Offerings
from spotd_aws.prices import SpotPrice
from spotd_aws.prior import prior_per_hour
from spotd_aws.quotas import Quotas, Shortage
from spotd_aws.regions import Regions
from spotd_aws.scores import Question, Scores, questions
from spotd_aws.together import together
from spotd_aws.zones import Zone, Zones, looks_usual

if TYPE_CHECKING:
    from spotd_aws.clients import Clients
    from spotd_aws.config import AwsConfig
    from spotd_aws.keeping import Now

#: The word for this provider in policies and offers.
NAME = "aws"
#: Questions to the price list at a time: all regions share the one that there is, and nobody says how many it takes.
_LIST_READERS = 4
_Answer = TypeVar("_Answer")


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class _Region:
    """What one region told."""

    name: str
    spot: Mapping[tuple[str, str], SpotPrice]
    #: Zone name by zone id, and all names; None where the zones could not be asked for.
    zones: tuple[Zone, ...] | None
    #: Zone names by type; None likewise.
    sold: Mapping[str, frozenset[str]] | None
    #: Types of the query that are known here, and their sizes where these could be asked: what limits are compared with.
    types: Sequence[str]
    vcpus: Mapping[str, int]
    #: What could not be asked, though the region answers.
    problem: ProviderError | None
    shortages: tuple[Shortage, ...] = ()

    def zone_of(self, price: SpotPrice) -> Zone | None:
        """The zone that a price is of, if it is one that we use."""
        if self.zones is None:
            return Zone(price.zone, price.zone_id) if looks_usual(self.name, price.zone) else None
        by_id = next((zone for zone in self.zones if price.zone_id and zone.id == price.zone_id), None)
        return by_id or next((zone for zone in self.zones if not price.zone_id and zone.name == price.zone), None)

    def short(self, instance_type: str, market: Market) -> bool:
        """Whether the account's limit allows not even one."""
        return any((one.instance_type, one.market) == (instance_type, market) for one in self.shortages)


class Selling:
    """Offers and regions of one account. `clock` gives the wall time, aware."""

    def __init__(self, clients: Clients, config: AwsConfig, clock: Now = _now) -> None:
        self._clients = clients
        self._config = config
        self._clock = clock
        self._regions = Regions(clients, clock)
        self._zones = Zones(clients, clock)
        self._offerings = Offerings(clients, clock)
        self._on_demand = on_demand.OnDemandPrices(clients, clock)
        self._quotas = Quotas(clients, clock)
        self._scores = Scores(clients, clock)
        self._advisor = Advisor(config.spot_advisor, clock)
        self._lock = threading.Lock()
        self._asked: frozenset[str] = frozenset()
        self._shortages: dict[str, tuple[Shortage, ...]] = {}
        self._problems: tuple[ProviderError, ...] = ()
        self._sweep = threading.Event()

    def regions(self) -> Sequence[str]:
        """The configured regions, else those enabled for the account; as long as it has never told, those that were asked for prices."""
        if self._config.regions:
            return self._config.regions
        enabled = self._regions.enabled()
        with self._lock:
            return tuple(sorted(self._asked if enabled is None else enabled))

    def offers(self, query: OfferQuery) -> OfferSheet:
        """Both markets in every zone that sells the type. Raises ProviderError where no region could be asked at all."""
        types, regions = tuple(sorted(query.instance_types)), tuple(sorted(query.regions))
        if not types or not regions:
            return OfferSheet(())
        with self._lock:
            self._asked |= query.regions
        seen_at = self._clock()
        asked = tuple(questions(self._config.score_pools, self._config.regions or regions))
        told = self._ask_all(types, regions, asked)
        found, failures = self._sort(regions, told)
        offers = [offer for region in found for offer in self._offers_of(region, types, asked, seen_at)]
        self._take_notes(types, found, asked)
        if not found and failures:
            raise failures[min(failures)]
        return OfferSheet(tuple(offers), failures | self._unpriced(found, types, failures), self._remarks(regions))

    def close(self) -> None:
        """Let a sweep that is under way end after the call it is in."""
        self._sweep.set()

    def _remarks(self, regions: Sequence[str]) -> tuple[str, ...]:
        """Limits that allow nothing, so that a type is not offered; and scores, advisor's data and quotas that could not be had."""
        with self._lock:
            return (*(one.says for region in regions for one in self._shortages.get(region, ())), *(problem.message for problem in self._problems))

    # Asking

    def _ask_all(self, types: Sequence[str], regions: Sequence[str], asked: Sequence[Question]) -> dict[object, _Region | ProviderError | None]:
        self._sweep = stop = threading.Event()
        errands: dict[object, Callable[[], _Region | None]] = {region: partial(self._ask_region, region, types, stop) for region in regions}
        due = [kind for kind in types if self._on_demand.due(kind)]
        errands |= {("price list", n): partial(self._read_list, due[n::_LIST_READERS], stop) for n in range(min(len(due), _LIST_READERS))}
        errands |= {question: partial(self._scores.refresh, question, stop) for question in asked if self._scores.due(question)}
        # Another service, which a network may not lead to: its silence must not use up a region's time.
        errands |= {("limits", region): partial(self._quotas.refresh, region, types, stop) for region in regions if self._quotas.due(region, types)}
        if self._advisor.due:
            errands["advisor",] = self._advisor.refresh
        return together(errands, stop, self._config.price_timeout)

    def _read_list(self, types: Sequence[str], stop: threading.Event) -> None:
        for kind in types:
            self._on_demand.refresh(kind, stop)

    def _ask_region(self, region: str, types: Sequence[str], stop: threading.Event) -> _Region:
        """Spot prices first: without them there is nothing to put together, unless it is only the permission for them that is missing."""
        problems: list[ProviderError] = []
        spot: Mapping[tuple[str, str], SpotPrice] = {}
        try:
            spot = prices.current(self._clients, region, types, stop)
        except NotAuthorized as error:
            if not error.code.startswith(("UnauthorizedOperation", "AccessDenied")):
                raise
            problems.append(error)
        zones = self._or_none(partial(self._zones.of, region), problems)
        sold = self._or_none(partial(self._offerings.zones, region, types, stop), problems)
        # Only to compare with limits: where it cannot be asked, a limit of nothing is still seen.
        known = sorted(sold) if sold is not None else sorted({price.instance_type for price in spot.values()})
        vcpus = self._or_none(partial(self._offerings.vcpus, region, known, stop), []) or {}
        if not spot and problems and zones is None and sold is None:
            raise problems[0]
        return _Region(region, spot, zones, sold, known, vcpus, problems[0] if problems else None)

    def _or_none(self, ask: Callable[[], _Answer], problems: list[ProviderError]) -> _Answer | None:
        try:
            return ask()
        except ProviderError as error:
            problems.append(error)
            return None

    # Putting together

    def _sort(self, regions: Sequence[str], told: Mapping[object, object]) -> tuple[list[_Region], dict[str, ProviderError]]:
        """Regions that answered, and what is wrong with the others, or with those that answered in part."""
        late = f"did not tell its prices within {self._config.price_timeout:g} s (price_timeout in [providers.aws])"
        answers = {region: told.get(region, ProviderUnavailable(f"{region} {late}")) for region in regions}
        found = [self._with_shortages(answer) for answer in answers.values() if isinstance(answer, _Region)]
        self._regions.answered([region.name for region in found])
        failures = {region: self._regions.judged(region, answer) for region, answer in answers.items() if isinstance(answer, ProviderError)}
        return found, failures | {region.name: region.problem for region in found if region.problem is not None}

    def _with_shortages(self, region: _Region) -> _Region:
        return replace(region, shortages=self._quotas.shortages(region.name, region.types, region.vcpus))

    def _offers_of(self, region: _Region, types: Sequence[str], asked: Sequence[Question], seen_at: datetime) -> Iterator[Offer]:
        usable = self._usable(region)
        sold_by_price: dict[str, set[str]] = {}
        for price in sorted(region.spot.values(), key=lambda one: one.place):
            zone, kind = region.zone_of(price), price.instance_type
            if zone is None or not usable(zone.name) or (region.sold is not None and zone.name not in region.sold.get(kind, ())):
                continue
            sold_by_price.setdefault(kind, set()).add(zone.name)
            if not region.short(kind, Market.SPOT):
                prior = prior_per_hour(self._scores.of(asked, kind, region.name, zone.id), self._advisor.percent(region.name, kind))
                key = OfferKey(NAME, region.name, zone.name, kind, Market.SPOT)
                yield Offer(key, price.usd_per_hour, seen_at, prices.SOURCE, prior)
        # Where the offerings are not known, a type that has a spot price in a zone is sold there.
        sold = region.sold if region.sold is not None else sold_by_price
        for kind in types:
            known = self._on_demand.known(kind, region.name)
            if known is None or region.short(kind, Market.ON_DEMAND):
                continue
            for name in filter(usable, sorted(sold.get(kind, ()))):
                yield Offer(OfferKey(NAME, region.name, name, kind, Market.ON_DEMAND), known.value, known.seen_at, on_demand.SOURCE)

    def _usable(self, region: _Region) -> Callable[[str], bool]:
        """Whether machines can be started in a zone: where subnets are configured, only in those that have one (facts/cloud-api.md §1.1)."""
        subnets = self._config.place(region.name).subnets
        if region.zones is None:
            return lambda name: (not subnets or name in subnets) and looks_usual(region.name, name)
        names = {zone.name for zone in region.zones if not subnets or zone.name in subnets}
        return names.__contains__

    def _unpriced(self, found: Sequence[_Region], types: Sequence[str], failures: Mapping[str, ProviderError]) -> dict[str, ProviderError]:
        """Regions without on-demand prices, or with old ones, because the price list could not be read: it is one for all of them."""
        problem = next((error for kind in types if (error := self._on_demand.problem(kind)) is not None), None)
        return {} if problem is None else {region.name: problem for region in found if region.name not in failures}

    def _take_notes(self, types: Sequence[str], found: Sequence[_Region], asked: Sequence[Question]) -> None:
        candidates = [self._advisor.problem(), *map(self._scores.problem, asked), *(self._quotas.problem(region.name, types) for region in found)]
        with self._lock:
            self._shortages |= {region.name: region.shortages for region in found}
            self._problems = tuple(problem for problem in candidates if problem is not None)
