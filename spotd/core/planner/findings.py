"""What the planner's rules found, collected: decisions, holds, and the next time worth looking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotd.core.events import AlarmKind, AlarmRaised
from spotd.core.plan import Decision, Hold, HoldReason, Plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta
    from decimal import Decimal

    from spotd.core.events import Event
    from spotd.core.plan import Effect, Snapshot


class Findings:
    """Filled by the rules in turn, read once at the end."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._decisions: list[Decision] = []
        self._holds: dict[str, Hold] = {}
        self._next_look: datetime | None = None
        self._known: dict[str, Decimal | None] = {}

    @property
    def count(self) -> int:
        """Decisions so far."""
        return len(self._decisions)

    def once(self, key: str, compute: Callable[[], Decimal | None]) -> Decimal | None:
        """A value that is the same for many jobs of one plan: computed for the first that asks."""
        if key not in self._known:
            self._known[key] = compute()
        return self._known[key]

    def decide(self, *events: Event, effect: Effect | None = None) -> None:
        """Record these events, then carry out the effect, if any."""
        self._decisions.append(Decision(events, effect))

    def hold(self, job_id: str, why: HoldReason, detail: str, until: datetime | None = None) -> None:
        """Nothing is done about the job now, because. A later rule's word replaces an earlier one's."""
        self._holds[job_id] = Hold(job_id, why, detail, until)
        if until is not None:
            self.look_at(until)

    def look_at(self, when: datetime) -> None:
        """Something may be due then."""
        if when > self._now and (self._next_look is None or when < self._next_look):
            self._next_look = when

    def passed(self, since: datetime, wait: timedelta) -> bool:
        """Whether `wait` is over since then; if not, it is looked at again when it is."""
        due = since + wait
        if self._now >= due:
            return True
        self.look_at(due)
        return False

    def alarm(self, snapshot: Snapshot, kind: AlarmKind, subject: str, message: str) -> None:
        """Tell ops, once per subject in six hours."""
        last = snapshot.world.alarms.get((kind.value, subject))
        if last is None or (self._now - last).total_seconds() > _SAY_AGAIN_S:
            self.decide(AlarmRaised(self._now, kind, subject, message))

    def plan(self) -> Plan:
        """The result."""
        return Plan(tuple(self._decisions), tuple(self._holds.values()), self._next_look)


_SAY_AGAIN_S = 6 * 3600
