"""The simulated cloud with its faults off, to hold to the contract: what the engine is proved against must behave as a cloud does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal

from spotd.core.instance import EndedBy, LaunchRequest, ObservedInstance
from spotd.core.offer import Market, OfferKey
from spotd.ports import Provider
from spotd.sim.api import CloudApi
from spotd.sim.checks import Checks
from spotd.sim.cloud import NOTICE_S, Cloud
from spotd.sim.dice import Dice
from spotd.sim.draws import Draws
from spotd.sim.machine import Machine
from spotd.sim.market import PROVIDER, Bazaar
from spotd.sim.story import Story
from spotd.sim.timeline import DAY, DaemonClock, Timeline
from spotd.testing import Goods, Traits


class _Unwatched(Checks):
    """The checkers watch a daemon's use of the cloud; here is no daemon."""

    def launch_called(self, request: LaunchRequest) -> None:
        pass

    def launched(self, machine: Machine, price: Decimal) -> None:
        pass

    def listed(self, region: str, rows: Sequence[ObservedInstance]) -> None:
        pass

    def terminate_called(self, provider_id: str) -> None:
        pass

    def terminate_executed(self, machine: Machine) -> None:
        pass


def _offer(region: int, zone: str, kind: int = 1, market: Market = Market.SPOT) -> OfferKey:
    return OfferKey(PROVIDER, f"region-{region}", f"region-{region}{zone}", f"gpu-{kind}", market)


class SimAccount:
    """Implements `ProviderUnderTest` on the simulator's own parts. Time is virtual, and single-threaded as the simulator is."""

    deployment = "simulated"

    def __init__(self) -> None:
        self.goods = Goods(_offer(1, "a"), _offer(1, "a", market=Market.ON_DEMAND), _offer(1, "b"), _offer(2, "a"), limit=Decimal(10))
        # Its listings say US or EXTERNAL of what we ended, by chance, as a cloud whose reason does not tell them apart.
        words = frozenset({EndedBy.US, EndedBy.EXTERNAL})
        self.traits = Traits(absent_id="i-9999", step_s=5.0, patience_s=3600.0, threads=1, words_for_us=words)
        draws, dice = Draws(regions=2, zones=2, types=2, price_moves_per_day=0.0), Dice(1)
        self._timeline = Timeline()
        self._bazaar = Bazaar(dice, draws, faults_end_s=DAY)
        self._cloud = Cloud(self._timeline, dice, draws, self._bazaar, Story(self._timeline, told=False))
        self.clock = DaemonClock(self._timeline)
        self._broken: dict[str, float] = {}

    def provider(self) -> Provider:  # noqa: D102 - here and below: as in the protocol
        api = CloudApi(self._cloud, self.clock, _Unwatched(self._timeline))
        api.down = self._broken
        return api

    def pass_time(self, seconds: float) -> None:  # noqa: D102
        self._timeline.run(self._timeline.now_s + seconds, lambda: False)

    def foreign(self, offer: OfferKey) -> str:  # noqa: D102
        return self._cloud.create_other(offer, ours=False).provider_id

    def reclaim(self, provider_id: str) -> None:  # noqa: D102
        self._cloud.take_back(self._cloud.machines[provider_id], NOTICE_S, told=True, cancelled=False)

    def exhaust(self) -> OfferKey:
        """The second type is sold out for the first two hours."""
        key = _offer(1, "a", kind=2)
        self._bazaar._dry[key, 0] = True
        return key

    @contextlib.contextmanager
    def break_region(self, region: str) -> Iterator[None]:  # noqa: D102
        self._broken[region] = float("inf")
        try:
            yield
        finally:
            del self._broken[region]

    def expiry_of(self, provider_id: str) -> datetime | None:  # noqa: D102
        request = self._cloud.machines[provider_id].request
        return None if request is None else request.expires_at
