"""Reclaims: EC2 takes a spot instance back, and says so on every channel that is not made to keep silent (facts/reclaim.md §1.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from spotd.core.offer import Market
from spotd.testing.fake_aws.events import Bus
from spotd.testing.fake_aws.fleet import Fleet
from spotd.testing.fake_aws.instances import RECLAIM_STOPPED, RECLAIMED, FakeInstance, State

_ACTIONS = ("terminate", "stop", "hibernate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaim:
    """How one reclaim goes. The default is that of the documentation: two minutes' notice, everywhere at once.

    A notice of 0 is none: nothing is said before the end (facts/reclaim.md §0.1).
    """

    notice_s: float = 120.0
    imds: bool = True
    events: bool = True
    spot_request: bool = True
    #: A rebalance recommendation so long before the notice; with 0 it comes together with it.
    rebalance: bool = False
    rebalance_lead_s: float = 0.0
    action: str = "terminate"
    imds_delay_s: float = 0.0
    #: The event may come after the instance has gone: the bus keeps no order.
    events_delay_s: float = 0.0
    #: How often the event is delivered: 2 is a duplicate.
    event_copies: int = 1
    spot_request_delay_s: float = 0.0
    #: What the spot request says: `instance-terminated-by-price`, `instance-terminated-by-experiment`, …
    code: str = "instance-terminated-no-capacity"

    def __post_init__(self) -> None:
        if self.action not in _ACTIONS:
            raise ValueError(f"A reclaim's action is one of {', '.join(_ACTIONS)}, not {self.action!r}.")
        if self.notice_s < 0 or self.event_copies < 0:
            raise ValueError("A notice is no shorter than 0 s, and comes no less than 0 times.")


class Reclaimer:
    """Marks instances, and takes them when their time has come, unless the mark was taken back."""

    def __init__(self, fleet: Fleet, bus: Bus) -> None:
        self._fleet = fleet
        self._bus = bus
        #: The reclaim in force by instance: what is due for another one happens no more.
        self._marks: dict[str, object] = {}

    def begin(self, instance: FakeInstance, plan: Reclaim, at: datetime) -> None:
        """Decide to take it back."""
        if instance.lifecycle is not Market.SPOT:
            raise ValueError(f"{instance.instance_id} is on-demand: EC2 does not take it back.")
        if instance.state not in (State.PENDING, State.RUNNING):
            raise ValueError(f"{instance.instance_id} is {instance.state.value} already.")
        mark = self._marks[instance.instance_id] = object()
        if not plan.rebalance:
            self._mark(instance, plan, at, mark)
            return
        self.hint(instance, at, events=plan.events)
        self._fleet.after(at, plan.rebalance_lead_s, lambda then: self._mark(instance, plan, then, mark))

    def _mark(self, instance: FakeInstance, plan: Reclaim, at: datetime, mark: object) -> None:
        if not self._holds(instance, mark):
            return
        # Hibernation begins with the notice (§0.5).
        notice_s = 0.0 if plan.action == "hibernate" else plan.notice_s
        deadline = at + timedelta(seconds=notice_s)
        silent = notice_s == 0 and plan.action != "hibernate"
        if plan.imds and not silent:
            self._later(instance, mark, at, plan.imds_delay_s, lambda _: self._show(instance, plan.action, deadline))
        if plan.events and not silent:
            self._bus.warn(instance, at, plan.action, delay_s=plan.events_delay_s, copies=plan.event_copies)
        if plan.spot_request and not silent:
            state, code = ("closed", plan.code) if plan.action == "terminate" else ("active", "marked-for-stop")
            self._later(instance, mark, at, plan.spot_request_delay_s, lambda then: self._fleet.set_request(instance, then, state, code))
        self._fleet.after(at, notice_s, lambda then: self._take(instance, plan, then, mark))

    def _show(self, instance: FakeInstance, action: str, deadline: datetime) -> None:
        instance.action = (action, deadline)
        instance.termination_time = deadline

    def _later(self, instance: FakeInstance, mark: object, at: datetime, delay_s: float, what: Callable[[datetime], None]) -> None:
        if delay_s <= 0:
            what(at)
        else:
            self._fleet.after(at, delay_s, lambda then: what(then) if self._holds(instance, mark) else None)

    def _take(self, instance: FakeInstance, plan: Reclaim, at: datetime, mark: object) -> None:
        if not self._holds(instance, mark):
            return
        if plan.action == "terminate":
            self._fleet.end(instance, at, RECLAIMED, plan.code)
        else:
            self._fleet.stop(instance, at, RECLAIM_STOPPED, "disabled", "instance-stopped-no-capacity")

    def _holds(self, instance: FakeInstance, mark: object) -> bool:
        return self._marks.get(instance.instance_id) is mark and instance.state in (State.PENDING, State.RUNNING)

    def cancel(self, instance: FakeInstance, at: datetime) -> None:
        """EC2 changes its mind: the instance lives, its request is fulfilled again, the termination time stays where it was (§1.3)."""
        if self._marks.pop(instance.instance_id, None) is None or instance.state not in (State.PENDING, State.RUNNING):
            raise ValueError(f"{instance.instance_id} is not about to be reclaimed.")
        instance.action = None
        self._fleet.set_request(instance, at, "active", "fulfilled")

    def hint(self, instance: FakeInstance, at: datetime, *, events: bool = True) -> None:
        """A rebalance recommendation: no deadline, and it stays."""
        instance.rebalance_at = at
        if events:
            self._bus.hint(instance, at)
