"""Watch the providers: prices, listings, their own notices. Reads are retried (tenacity); launches never are, and are not made here.

APScheduler's jobs only set wake flags, coalesced: a poll that takes longer than its period is not started twice. Each provider has threads of
its own, so that a slow or dead cloud delays nobody else (DESIGN §4).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from apscheduler.schedulers.background import BackgroundScheduler
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from spotd.core.errors import ProviderError, ProviderUnavailable, Throttled
from spotd.core.events import AlarmKind, AlarmRaised, Event, Listed, NoticeSeen
from spotd.ports import OfferQuery

if TYPE_CHECKING:
    from spotd.core.notice import Notice
    from spotd.core.offer import Offer, OfferKey
    from spotd.core.policy import Policy
    from spotd.daemon.engine import Engine
    from spotd.daemon.loop import Loop
    from spotd.ports import Clock, DeliveredNotice, Provider

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")

#: An offer that no sweep has shown for this long is forgotten; until then its age is shown and judged by `max_price_age`.
_FORGET_OFFERS = timedelta(days=35)
_FAILURES_TO_ALARM = 5


@dataclass(slots=True)
class Health:
    """How a provider answers: shown by `spotd offers` and the status page."""

    last_listing_at: datetime | None = None
    last_sweep_at: datetime | None = None
    failures: int = 0
    last_error: str = ""
    #: What the last sweep left out or did without, for people.
    remarks: tuple[str, ...] = ()


class Observer:
    """Owns the threads that watch one provider."""

    def __init__(
        self,
        provider: Provider,
        engine: Engine,
        loop: Loop,
        clock: Clock,
        *,
        policies: Callable[[], Mapping[str, Policy]],
        record_prices: Callable[[Sequence[Offer]], None],
    ) -> None:
        self._provider = provider
        self._engine = engine
        self._loop = loop
        self._clock = clock
        self._policies = policies
        self._record_prices = record_prices
        self._stop = threading.Event()
        self._list_now = threading.Event()
        self._sweep_now = threading.Event()
        self.health = Health()
        name = provider.name
        self._threads = [
            threading.Thread(target=self._repeat, args=(self._list_now, self._list), name=f"list-{name}", daemon=True),
            threading.Thread(target=self._repeat, args=(self._sweep_now, self._sweep), name=f"prices-{name}", daemon=True),
        ]
        if provider.capabilities.notice_channel:
            self._threads.append(threading.Thread(target=self._notices, name=f"notices-{name}", daemon=True))

    def start(self, scheduler: BackgroundScheduler, *, every: timedelta, prices_every: timedelta) -> None:
        """Begin to watch."""
        seconds = {self._list_now: every.total_seconds(), self._sweep_now: prices_every.total_seconds()}
        for flag, period in seconds.items():
            scheduler.add_job(flag.set, "interval", seconds=period, coalesce=True, max_instances=1)
            flag.set()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop after what is under way."""
        self._stop.set()
        self._list_now.set()
        self._sweep_now.set()
        for thread in self._threads:
            if thread.ident is not None:  # else it was never started: the daemon could not listen
                thread.join(timeout=25)

    def sweep_soon(self) -> None:
        """Ask for prices at the next chance: a policy names regions that were not asked for yet."""
        self._sweep_now.set()

    def _repeat(self, flag: threading.Event, work: Callable[[], None]) -> None:
        while not self._stop.is_set():
            self._clock.wait(flag, None)
            flag.clear()
            if self._stop.is_set():
                return
            try:
                work()
            except Exception as error:  # noqa: BLE001 - it is logged, and watching goes on
                # A surprise in a provider or in spotd must not end the watching.
                _log.exception("watching a provider failed", extra={"provider": self._provider.name})
                self._failed(f"unexpected {type(error).__name__}")

    def _regions(self) -> list[str]:
        """Where something of ours can be: configured, asked for by a policy, or holding an instance."""
        name = self._provider.name
        live = {i.request.offer.region for i in self._loop.world.instances.values() if i.live and i.request.offer.provider == name}
        return sorted({*self._provider.regions(), *live})

    def _list(self) -> None:
        for region in self._regions():
            asked_at = self._clock.now()
            try:
                rows = self._read(partial(self._provider.instances, region))
            except ProviderError as error:
                # Unknown is a value: nothing is concluded from a listing that failed.
                self._failed(f"listing {region}: {error}")
                continue
            now = self._clock.now()
            self.health.last_listing_at = now
            self._loop.tell([Listed(now, asked_at, self._provider.name, region, tuple(rows), self._engine.started_at)])
            self.health.failures = 0

    def _sweep(self) -> None:
        name = self._provider.name
        wanted = [c for policy in self._policies().values() for c in policy.candidates if c.provider == name]
        fallbacks = {p.spot_handlers.fallback_node for p in self._policies().values()} - {None}
        types = frozenset({t for c in wanted for t in c.instance_types} | {f for f in fallbacks if f is not None})
        regions = frozenset(r for c in wanted for r in c.regions)
        if not types or not regions:
            return
        try:
            sheet = self._read(lambda: self._provider.offers(OfferQuery(types, regions)))
        except ProviderError as error:
            self._failed(f"prices: {error}")
            return
        for region, failure in sheet.failures.items():
            self._failed(f"prices of {region}: {failure}")
        now = self._clock.now()
        self.health.last_sweep_at = now
        self.health.remarks = sheet.remarks
        kept = {k: o for k, o in self._engine.offers.items() if now - o.seen_at < _FORGET_OFFERS and not _swept(k, name, regions, sheet.failures)}
        self._engine.use_offers(kept | {offer.key: offer for offer in sheet.offers})
        self._record_prices(sheet.offers)
        self._loop.wake()

    def _read(self, call: Callable[[], _Answer]) -> _Answer:
        for attempt in Retrying(
            stop=stop_after_attempt(3),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            retry=retry_if_exception_type((ProviderUnavailable, Throttled)),
            reraise=True,
        ):
            with attempt:
                return call()
        raise AssertionError("tenacity returns or raises")

    def _failed(self, message: str) -> None:
        self.health.failures += 1
        self.health.last_error = message
        _log.warning("provider read failed: provider=%s %s", self._provider.name, message)
        if self.health.failures == _FAILURES_TO_ALARM:
            text = f"provider {self._provider.name} has failed {self.health.failures} reads in a row; last: {message}"
            self._loop.tell([AlarmRaised(self._clock.now(), AlarmKind.PROVIDER_FAILING, self._provider.name, text)])

    def _notices(self) -> None:
        while not self._stop.is_set():
            try:
                delivered = self._provider.notices(self._stop)
            except ProviderError as error:
                self._failed(f"notices: {error}")
                self._clock.wait(self._stop, 5.0)
                continue
            except Exception:  # noqa: BLE001 - it is logged, and watching goes on
                _log.exception("the notice channel failed", extra={"provider": self._provider.name})
                self._clock.wait(self._stop, 5.0)
                continue
            taken = [self._take(one) for one in delivered]
            if taken and not any(taken):
                # A channel may deliver what was not acknowledged again at once.
                self._clock.wait(self._stop, 1.0)

    def _take(self, one: DeliveredNotice) -> bool:
        """Record a notice, then acknowledge it; whether it was."""
        event = self._event(one.provider_id, one.notice)
        if event is None and self._may_be_ours_yet():
            # Reclaimed between a launch and its recorded answer: delivered again, it finds its instance.
            return False
        try:
            if event is not None:
                self._loop.record([event])
        except Exception:  # noqa: BLE001 - it is logged, and the notice comes again
            # Not acknowledged, so it is delivered again.
            _log.exception("a notice could not be recorded")
            return False
        # Foreign and unknown machines are acknowledged too, or they come back for ever (facts/reclaim.md §1.7).
        one.acknowledge()
        return True

    def _may_be_ours_yet(self) -> bool:
        """Whether a machine that nobody knows may be one of a launch whose outcome is not recorded."""
        name = self._provider.name
        return any(i.live and i.provider_id is None and i.request.offer.provider == name for i in self._loop.world.instances.values())

    def _event(self, provider_id: str, notice: Notice) -> Event | None:
        instance = next((i for i in self._loop.world.instances.values() if i.provider_id == provider_id and i.live), None)
        return None if instance is None else NoticeSeen(self._clock.now(), instance.id, notice)


def _swept(key: OfferKey, provider: str, regions: frozenset[str], failures: Mapping[str, ProviderError]) -> bool:
    """Whether a sweep answered for this offer's region: then what it does not show is not sold any more."""
    return key.provider == provider and key.region in regions and key.region not in failures
