"""A cloud in memory that takes orders. The reference for the provider contract: it passes the suite, and every planted defect must fail it.

It is eventually consistent, as clouds are: a new instance shows in listings after `LAG`. Its time is a FakeClock, so nothing waits.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial

from spotd.core.errors import InvalidRequest, NoCapacity, PriceTooHigh, ProviderError, ProviderUnavailable, Scope
from spotd.core.instance import EndedBy, LaunchRequest, ObservedInstance, ObservedState
from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd.core.offer import Market, Offer, OfferKey
from spotd.ports import Capabilities, DeliveredNotice, Launched, LaunchOutcome, MetadataKind, OfferQuery, OfferSheet, Unknown
from spotd.testing.clock import FakeClock
from spotd.testing.harness import Goods, Traits

NAME = "fake"
TYPES = ("gpu-1", "gpu-2")
ZONES = {"north": ("north-a", "north-b"), "south": ("south-a",)}
PRICES = {Market.SPOT: Decimal("0.92"), Market.ON_DEMAND: Decimal("3.06")}

LAG = timedelta(seconds=5)
BOOT = timedelta(seconds=30)
NOTICE = timedelta(seconds=120)
SHUTDOWN = timedelta(seconds=20)
#: How long ended instances stay listed.
REMEMBERED = timedelta(hours=1)


@dataclass(slots=True)
class FakeMachine:
    """One instance as it is. Its state follows from the time."""

    provider_id: str
    request: LaunchRequest
    created_at: datetime
    #: When shutting down begins, for what reason and with which code; planned ones may still be overtaken by an earlier one.
    ending_at: datetime
    ended_by: EndedBy
    end_code: str
    notice: Notice | None = None
    acknowledged: bool = False

    def end(self, at: datetime, by: EndedBy, code: str) -> None:
        """Shut it down then, unless it goes down before."""
        if at < self.ending_at:
            self.ending_at, self.ended_by, self.end_code = at, by, code

    def state(self, now: datetime) -> ObservedState:
        """Where it is in its life."""
        if now >= self.ending_at + SHUTDOWN:
            return ObservedState.GONE
        if now >= self.ending_at:
            return ObservedState.ENDING
        return ObservedState.RUNNING if now >= self.created_at + BOOT else ObservedState.PENDING

    def row(self, now: datetime) -> ObservedInstance:
        """What a listing says of it."""
        ended = now >= self.ending_at
        ran = min(now, self.ending_at) >= self.created_at + BOOT
        return ObservedInstance(
            provider_id=self.provider_id,
            token=self.request.token,
            region=self.request.offer.region,
            zone=self.request.offer.zone,
            state=self.state(now),
            launched_at=self.created_at + BOOT if ran else None,
            ended_at=self.ending_at if ended else None,
            ended_by=self.ended_by if ended else None,
            end_code=self.end_code if ended else "",
        )


@dataclass
class FakeCloud:
    """An account of the cloud in memory: `machines` is the truth, the methods are orders. Implements `ProviderUnderTest`."""

    clock: FakeClock = field(default_factory=FakeClock)
    deployment: str = "ours"
    machines: list[FakeMachine] = field(default_factory=list)
    #: Pools without capacity, and regions that answer nobody.
    empty: set[OfferKey] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def goods(self) -> Goods:
        """The first type everywhere."""
        return Goods(
            spot=OfferKey(NAME, "north", "north-a", "gpu-1", Market.SPOT),
            on_demand=OfferKey(NAME, "north", "north-a", "gpu-1", Market.ON_DEMAND),
            other_zone=OfferKey(NAME, "north", "north-b", "gpu-1", Market.SPOT),
            other_region=OfferKey(NAME, "south", "south-a", "gpu-1", Market.SPOT),
            limit=Decimal(4),
        )

    @property
    def traits(self) -> Traits:
        """A cloud that keeps every promise."""
        return Traits(absent_id="fake-0")

    def provider(self) -> FakeProvider:
        """As ours."""
        return FakeProvider(self, self.deployment)

    def pass_time(self, seconds: float) -> None:
        """At once."""
        self.clock.step(seconds)

    def foreign(self, offer: OfferKey) -> str:
        """As a second user of the account."""
        request = LaunchRequest("0" * 36, "theirs", "job", "job", 1, 0, offer, None, self.clock.now() + timedelta(days=1))
        return FakeProvider(self, "theirs").launch(request, "").provider_id

    def machine(self, provider_id: str) -> FakeMachine:
        """The truth about this instance. KeyError when there never was one."""
        for machine in self.machines:
            if machine.provider_id == provider_id:
                return machine
        raise KeyError(provider_id)

    def reclaim(self, provider_id: str) -> None:
        """Mark it; it ends when the notice is over."""
        now = self.clock.now()
        machine = self.machine(provider_id)
        machine.notice = Notice(NoticeKind.RECLAIM, NoticeSource.PROVIDER, now, now + NOTICE)
        machine.end(now + NOTICE, EndedBy.RECLAIM, "Fake.Reclaimed")

    def exhaust(self) -> OfferKey:
        """The second type in the first zone."""
        key = OfferKey(NAME, "north", "north-a", "gpu-2", Market.SPOT)
        self.empty.add(key)
        return key

    @contextlib.contextmanager
    def break_region(self, region: str) -> Iterator[None]:
        """Answer nobody who asks about this region."""
        self.broken.add(region)
        try:
            yield
        finally:
            self.broken.discard(region)

    def expiry_of(self, provider_id: str) -> datetime:
        """As in its request."""
        return self.machine(provider_id).request.expires_at


class FakeProvider:
    """`ports.Provider` on a FakeCloud, for one deployment."""

    def __init__(self, cloud: FakeCloud, deployment: str) -> None:
        self.cloud = cloud
        self.deployment = deployment

    @property
    def name(self) -> str:
        """The word used in policies and offers."""
        return NAME

    @property
    def capabilities(self) -> Capabilities:
        """As AWS's."""
        return Capabilities(
            notice=NOTICE,
            boot_timeout=timedelta(minutes=15),
            heartbeat=timedelta(seconds=10),
            metadata_poll=timedelta(seconds=2),
            metadata=MetadataKind.NONE,
            listing_lag=LAG,
            billing_rule="aws",
            notice_channel=True,
        )

    def regions(self) -> Sequence[str]:
        """Both."""
        return tuple(ZONES)

    def offers(self, query: OfferQuery) -> OfferSheet:
        """Every wanted type in every wanted zone, on both markets."""
        found: list[Offer] = []
        failures: dict[str, ProviderError] = {}
        seen_at = self.cloud.clock.now()
        for region in sorted(query.regions):
            if region not in ZONES:
                failures[region] = InvalidRequest(f"there is no region {region}", "InvalidRegion", field="region")
            elif region in self.cloud.broken:
                failures[region] = _silence(region)
            else:
                kinds = sorted(query.instance_types & set(TYPES))
                keys = [OfferKey(NAME, region, zone, kind, market) for zone in ZONES[region] for kind in kinds for market in Market]
                found += [Offer(key, PRICES[key.market], seen_at) for key in keys]
        if query.regions and len(failures) == len(query.regions):
            raise next(iter(failures.values()))
        return OfferSheet(tuple(found), failures)

    def launch(self, request: LaunchRequest, user_data: str) -> Launched:
        """Make an instance, or find the one that this very request made."""
        del user_data
        with self.cloud.lock:
            self._reach(request.offer.region)
            there = self._by_token(request.token)
            if there is None:
                self._check(request)
                there = self._make(request)
            elif there.request != request:
                raise InvalidRequest(f"token {request.token} was used with other parameters", "IdempotentParameterMismatch", field="token")
            return Launched(there.provider_id)

    def outcome(self, request: LaunchRequest) -> LaunchOutcome:
        """By token, as soon as the instance is visible."""
        with self.cloud.lock:
            self._reach(request.offer.region)
            there = self._by_token(request.token)
            if there is None or there.request != request or self.cloud.clock.now() < there.created_at + LAG:
                return Unknown()
            return Launched(there.provider_id)

    def instances(self, region: str) -> Sequence[ObservedInstance]:
        """Those of ours that are visible, the lately ended included."""
        with self.cloud.lock:
            self._reach(region)
            now = self.cloud.clock.now()
            ours = [m for m in self.cloud.machines if (m.request.deployment, m.request.offer.region) == (self.deployment, region)]
            return [m.row(now) for m in ours if m.created_at + LAG <= now < m.ending_at + SHUTDOWN + REMEMBERED]

    def terminate(self, region: str, provider_id: str) -> None:
        """Begin to shut it down, if it is ours and there."""
        with self.cloud.lock:
            self._reach(region)
            for machine in self.cloud.machines:
                if (machine.provider_id, machine.request.deployment) == (provider_id, self.deployment):
                    machine.end(self.cloud.clock.now(), EndedBy.US, "Fake.Terminated")

    def notices(self, stop: threading.Event) -> Sequence[DeliveredNotice]:
        """What was announced and not acknowledged. Never waits: in virtual time nobody would step the clock meanwhile."""
        del stop
        with self.cloud.lock:
            told = [(m, m.notice) for m in self.cloud.machines if m.request.deployment == self.deployment and not m.acknowledged]
            return [DeliveredNotice(m.provider_id, notice, partial(self._acknowledge, m)) for m, notice in told if notice is not None]

    def close(self) -> None:
        """Nothing is held. Instances live on."""

    def _acknowledge(self, machine: FakeMachine) -> None:
        machine.acknowledged = True

    def _by_token(self, token: str) -> FakeMachine | None:
        return next((m for m in self.cloud.machines if (m.request.token, m.request.deployment) == (token, self.deployment)), None)

    def _reach(self, region: str) -> None:
        if region in self.cloud.broken:
            raise _silence(region)
        if region not in ZONES:
            raise InvalidRequest(f"there is no region {region}", "InvalidRegion", field="region")

    def _check(self, request: LaunchRequest) -> None:
        offer, limit = request.offer, request.max_price_usd_per_hour
        if offer.zone not in ZONES[offer.region]:
            raise InvalidRequest(f"there is no zone {offer.zone} in {offer.region}", "InvalidZone", field="zone")
        if offer.instance_type not in TYPES:
            raise InvalidRequest(f"there is no type {offer.instance_type}", "InvalidType", field="instance_type")
        if offer.market is Market.SPOT and limit is not None and PRICES[Market.SPOT] > limit:
            raise PriceTooHigh(f"spot costs {PRICES[Market.SPOT]} USD/h, the limit is {limit}", "MaxPriceTooLow")
        if offer in self.cloud.empty:
            raise NoCapacity(f"the pool of {offer} is empty", "InsufficientCapacity", where=Scope.OFFER)

    def _make(self, request: LaunchRequest) -> FakeMachine:
        provider_id = f"fake-{len(self.cloud.machines) + 1}"
        machine = FakeMachine(provider_id, request, self.cloud.clock.now(), request.expires_at, EndedBy.US, "Fake.LifetimeOver")
        self.cloud.machines.append(machine)
        return machine


def _silence(region: str) -> ProviderUnavailable:
    return ProviderUnavailable(f"{region} does not answer", "Timeout")
