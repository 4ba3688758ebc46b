"""All machines of the account: how they start, run, and end as time passes. The truth; answers may lag behind it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from spotd.ports import Clock
from spotd.testing.fake_aws.catalogue import Catalogue
from spotd.testing.fake_aws.instances import (
    BY_GUEST,
    NO_REASON,
    FakeInstance,
    Past,
    Reason,
    RequestStatus,
    SpotRequest,
    State,
    by_user,
    message_of,
)
from spotd.testing.fake_aws.market import SpotMarket, quota_of
from spotd.testing.fake_aws.timekeeping import Agenda


@dataclass(frozen=True, slots=True)
class Lags:
    """How long things take, in seconds of the fake's clock."""

    #: From pending to running, and from shutting-down to terminated.
    boot_s: float = 5.0
    shutdown_s: float = 10.0
    #: Until a new instance is in descriptions, and how old what they say of the others is (facts/cloud-api.md §2.2).
    visible_s: float = 0.0
    listing_s: float = 0.0
    #: The same for spot requests (facts/reclaim.md §1.8).
    request_visible_s: float = 0.0
    request_s: float = 0.0
    #: Until TerminateInstances knows a new instance.
    terminate_s: float = 0.0
    #: How late EventBridge says that an instance changed its state.
    state_change_s: float = 0.0
    #: How long terminated instances keep their tags, and stay in descriptions (facts/reclaim.md §1.9).
    tags_kept_s: float = 1800.0
    rows_kept_s: float = 3600.0


@dataclass(slots=True)
class FailingLaunch:
    """How instances of a pool are to fail while they start, and how many more of them (None: all)."""

    reason: Reason
    times: int | None


class Fleet:
    """Every instance and spot request. `lock` is held by whoever reads or changes anything."""

    def __init__(self, account: str, clock: Clock, catalogue: Catalogue, lags: Lags) -> None:
        self.account = account
        self.clock = clock
        self.catalogue = catalogue
        self.lags = lags
        self.lock = threading.RLock()
        self.agenda = Agenda()
        self.market = SpotMarket(catalogue, clock.now())
        self.instances: dict[str, FakeInstance] = {}
        self.requests: dict[str, SpotRequest] = {}
        #: Called with the instance when it changed its state: events, machines.
        self.watchers: list[Callable[[FakeInstance, datetime], None]] = []

    def catch_up(self) -> datetime:
        """Let happen what is due. The time now."""
        now = self.clock.now()
        with self.lock:
            self.agenda.catch_up(now)
        return now

    def after(self, moment: datetime, seconds: float, what: Callable[[datetime], None]) -> None:
        """Let it happen so long after a moment."""
        self.agenda.at(moment + timedelta(seconds=seconds), what)

    def in_region(self, region: str) -> Iterator[FakeInstance]:
        """The region's instances, oldest first."""
        return (instance for instance in self.instances.values() if instance.region == region)

    def add(self, instance: FakeInstance, request: SpotRequest | None, failing: Reason | None) -> None:
        """A launch went through: it is pending, and on its way."""
        self.instances[instance.instance_id] = instance
        if request is not None:
            self.requests[request.id] = request
        self._tell(instance, instance.launched_at)
        if failing is not None:
            self.after(instance.launched_at, self.lags.boot_s, lambda at: self.end(instance, at, failing, "system-error", at_once=True))
        else:
            self.after(instance.launched_at, self.lags.boot_s, lambda at: self._run(instance, at))

    def _run(self, instance: FakeInstance, at: datetime) -> None:
        if instance.state is State.PENDING:
            instance.running_at = at
            self._change(instance, at, State.RUNNING, NO_REASON)

    def end(self, instance: FakeInstance, at: datetime, reason: Reason, request_code: str, *, at_once: bool = False) -> None:
        """Shut it down for good, unless it is on its way already; whoever comes first has caused it."""
        if instance.state in (State.SHUTTING_DOWN, State.TERMINATED):
            return
        instance.ended_at = instance.ended_at or at
        self.close_request(instance, at, request_code)
        was_stopped = instance.state is State.STOPPED
        if not at_once:
            self._change(instance, at, State.SHUTTING_DOWN, reason)
        self.after(at, 0.0 if at_once or was_stopped else self.lags.shutdown_s, lambda then: self._gone(instance, then, reason))

    def _gone(self, instance: FakeInstance, at: datetime, reason: Reason) -> None:
        if instance.state is not State.TERMINATED:
            instance.gone_at = at
            self._change(instance, at, State.TERMINATED, reason)

    def stop(self, instance: FakeInstance, at: datetime, reason: Reason, request_state: str, request_code: str) -> None:
        """Stop it; nobody starts it again, but it can be terminated."""
        if instance.state not in (State.PENDING, State.RUNNING):
            return
        instance.ended_at = at
        self.set_request(instance, at, request_state, request_code)
        self._change(instance, at, State.STOPPING, reason)

        def stopped(then: datetime) -> None:
            if instance.state is State.STOPPING:
                self._change(instance, then, State.STOPPED, reason)

        self.after(at, self.lags.shutdown_s, stopped)

    def terminate(self, instance: FakeInstance, at: datetime) -> None:
        """TerminateInstances."""
        self.end(instance, at, by_user(at), "instance-terminated-by-user")

    def power_off(self, instance: FakeInstance, at: datetime) -> None:
        """The machine's own system shut down. Spot instances that stop are not started again by anybody but EC2."""
        if instance.shutdown_behavior == "terminate":
            self.end(instance, at, BY_GUEST, "instance-terminated-by-user")
        else:
            self.stop(instance, at, BY_GUEST, "disabled", "instance-stopped-by-user")

    def set_request(self, instance: FakeInstance, at: datetime, state: str, code: str) -> None:
        """What the spot request behind an instance says from now on."""
        request = self.requests.get(instance.spot_request_id or "")
        if request is not None:
            request.history.set(at, RequestStatus(state, code, message_of(code), at))
            request.closed_at = at if state in {"closed", "cancelled"} else None

    def close_request(self, instance: FakeInstance, at: datetime, code: str) -> None:
        """The instance ends: its request says why, unless it has said so already."""
        request = self.requests.get(instance.spot_request_id or "")
        if request is None or request.status.state == "closed":
            return
        self.set_request(instance, at, "cancelled" if request.status.state == "cancelled" else "closed", code)

    def _change(self, instance: FakeInstance, at: datetime, state: State, reason: Reason) -> None:
        instance.history.set(at, (state, reason))
        self._tell(instance, at)

    def _tell(self, instance: FakeInstance, at: datetime) -> None:
        for watcher in self.watchers:
            watcher(instance, at)

    def vcpus_in_use(self, region: str, code: str) -> int:
        """What runs against a quota, in vCPUs."""
        total = 0
        for instance in self.in_region(region):
            quota = quota_of(instance.instance_type, instance.lifecycle)
            if quota is not None and quota.code == code and instance.state in (State.PENDING, State.RUNNING):
                total += self.catalogue.types[instance.instance_type].vcpus
        return total

    def shown(self, instance: FakeInstance, now: datetime) -> bool:
        """Whether descriptions show it: no longer new, not yet aged out."""
        if now < instance.launched_at + timedelta(seconds=self.lags.visible_s):
            return False
        return instance.gone_at is None or now < instance.gone_at + timedelta(seconds=self.lags.rows_kept_s)

    def seen(self, instance: FakeInstance, now: datetime) -> tuple[State, Reason]:
        """The state that descriptions tell."""
        return instance.history.at(now - timedelta(seconds=self.lags.listing_s))

    def tags_seen(self, instance: FakeInstance, now: datetime) -> dict[str, str]:
        """The tags that descriptions tell."""
        return instance.tags_at(now, timedelta(seconds=self.lags.tags_kept_s))


def new_request(instance: FakeInstance, request_id: str, kind: str, tags: dict[str, str], limit: str) -> SpotRequest:
    """The request that RunInstances makes for a spot instance: fulfilled at once."""
    at = instance.launched_at
    return SpotRequest(
        id=request_id,
        region=instance.region,
        zone=instance.zone,
        zone_id=instance.zone_id,
        instance_id=instance.instance_id,
        instance_type=instance.instance_type,
        image_id=instance.image_id,
        max_price=limit,
        kind=kind,
        created_at=at,
        tags=tags,
        history=Past(at, RequestStatus("active", "fulfilled", message_of("fulfilled"), at)),
    )
