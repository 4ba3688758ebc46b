"""What AWS sells now: every region asked at the same time, each for itself. One that is slow, broken or not enabled is named, and delays nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from spotd.core.errors import NotAuthorized, ProviderError, ProviderUnavailable
from spotd.core.offer import Market, Offer, OfferKey
from spotd.ports import OfferSheet
from spotd_aws.errors import reads
from spotd_aws.offerings import Offerings
from spotd_aws.on_demand import OnDemand
from spotd_aws.prices import SpotPrice, ask_spot_prices, spot_prices
from spotd_aws.quotas import Quotas, ZeroQuota
from spotd_aws.signals import Advisor, Scores, prior_hazard
from spotd_aws.zones import Zones

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotd.ports import OfferQuery
    from spotd_aws.clients import Clients
    from spotd_aws.config import AwsConfig

SPOT_SOURCE, LIST_SOURCE = "spot price history", "price list"
_NAME = "aws"
#: An answer of a region that is not enabled; where another region takes the credentials, they are not at fault (facts/cloud-api.md §1.1).
_NOT_ENABLED = frozenset({"AuthFailure", "EndpointConnectionError", "InvalidClientTokenId", "UnrecognizedClientException"})
#: Regions at a time: all that there are.
_THREADS = 40


@dataclass(frozen=True, slots=True)
class _Region:
    """What one region sells; and what it would, but for an entry in the price list that could not be read."""

    offers: tuple[Offer, ...]


class Selling:
    """Offers of one account."""

    def __init__(self, clients: Clients, config: AwsConfig, clock: Callable[[], datetime]) -> None:
        self._clients = clients
        self._timeout_s = config.price_timeout
        self._now = clock
        self._zones = Zones(clients, config.regions, clock)
        self._offerings = Offerings(clients, clock)
        self._on_demand = OnDemand(clients, clock)
        self._quotas = Quotas(clients, clock)
        self._scores = Scores(clients, config.score_pools, clock)
        self._advisor = Advisor(config.spot_advisor, clock)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="aws-prices")

    def regions(self) -> Sequence[str]:
        """Configured, or enabled. Empty where that cannot be asked now: the daemon goes on with those that its policies name."""
        try:
            return self._zones.regions()
        except ProviderError:
            return ()

    def zero_quotas(self, region: str) -> Sequence[ZeroQuota]:
        """Limits of 0 in a region, as far as they may be read."""
        return self._quotas.zero_quotas(region)

    def offers(self, query: OfferQuery) -> OfferSheet:
        """Both markets. A region that could not be asked is a failure; raises only where none could be."""
        asked: dict[str, Future[_Region]] = {
            region: self._pool.submit(self._region, region, query.instance_types) for region in sorted(query.regions)
        }
        scores = self._pool.submit(self._scores.ask, sorted(query.regions))
        offers: list[Offer] = []
        failures: dict[str, ProviderError] = {}
        began = self._now()
        for region, future in asked.items():
            left = self._timeout_s - (self._now() - began).total_seconds()
            try:
                offers += future.result(timeout=max(left, 0.05)).offers
            except TooLate:
                future.cancel()
                failures[region] = ProviderUnavailable(f"{region} did not tell its prices within {self._timeout_s:g} s", "Timeout")
            except ProviderError as error:
                failures[region] = error
        if failures and len(failures) == len(asked):
            raise next(iter(failures.values()))
        del scores  # they count from the next sweep on: nothing waits for a prior
        return OfferSheet(tuple(offers), {region: _told(region, error) for region, error in failures.items()})

    def close(self) -> None:
        """End the threads once they are done."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _region(self, region: str, instance_types: frozenset[str]) -> _Region:
        zones = self._zones.of(region)
        sold = self._offerings.of(region, instance_types)
        with reads("asking for spot prices", region):
            rows = ask_spot_prices(self._clients.get("ec2", region), instance_types, self._now())
        seen_at = self._now()
        spot = [price for price in spot_prices(rows, zones) if (price.instance_type, price.zone) in sold]
        return _Region((*self._spot(region, spot, zones, seen_at), *self._listed(region, instance_types, sold, zones)))

    def _spot(self, region: str, prices: Sequence[SpotPrice], zones: Mapping[str, str], seen_at: datetime) -> Iterator[Offer]:
        for price in prices:
            kind = price.instance_type
            if self._quotas.zero(region, kind, Market.SPOT) is not None:
                continue
            prior = prior_hazard(self._scores.of(kind, region, zones[price.zone]), self._advisor.band(region, kind))
            yield Offer(OfferKey(_NAME, region, price.zone, kind, Market.SPOT), price.usd_per_hour, seen_at, SPOT_SOURCE, prior)

    def _listed(self, region: str, instance_types: frozenset[str], sold: frozenset[tuple[str, str]], zones: Mapping[str, str]) -> Iterator[Offer]:
        # A price list that cannot be read costs only the on-demand offers it has no older price for.
        prices, _ = self._on_demand.prices(region, instance_types)
        for kind, price in prices.items():
            if self._quotas.zero(region, kind, Market.ON_DEMAND) is not None:
                continue
            for zone in sorted(zones):
                if (kind, zone) in sold:
                    yield Offer(OfferKey(_NAME, region, zone, kind, Market.ON_DEMAND), price.usd_per_hour, price.seen_at, LIST_SOURCE)


def _told(region: str, error: ProviderError) -> ProviderError:
    """The failure of one region among others that answered."""
    if error.code in _NOT_ENABLED:
        message = (
            f"{region} is not enabled for the account, or not reached from here: enable it (aws account enable-region), or leave it out of regions"
        )
        return NotAuthorized(message, error.code) if isinstance(error, NotAuthorized) else ProviderUnavailable(message, error.code)
    return error
