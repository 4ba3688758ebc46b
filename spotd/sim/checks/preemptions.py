"""Rule 6 of the budget: a preemption is an attempt hit by a reclaim; nothing else is, and at `max_preemptions` comes on-demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotd.core import events as e
from spotd.core.attempt import Purpose
from spotd.core.instance import EndedBy, InstanceState
from spotd.core.notice import NoticeKind, NoticeSource
from spotd.core.offer import Market

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spotd.core.instance import Instance
    from spotd.core.world import Changes
    from spotd.sim.checks import Checks


class Preemptions:
    """Counts by what was reported to the daemon, and checks that against what the cloud really did."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        #: Attempt id -> whether it counts, by the reports in order.
        self._expected: dict[str, bool] = {}
        self._ended: set[str] = set()
        self._noticed: set[str] = set()
        self._shut: set[str] = set()

    def _attempt_of(self, instance_id: str) -> str | None:
        row = self._checks.sim.store.instances.get(instance_id)
        return None if row is None else row.attempt_id

    def _newest(self, row: Instance) -> bool:
        """Whether an attempt runs, or will run, on this machine: not if a later try took its place."""
        tries = (i.try_number for i in self._checks.sim.store.instances.values() if i.attempt_id == row.attempt_id)
        return row.try_number == max(tries)

    def committing(self, events: Sequence[e.Event]) -> None:
        """Follow the reports in the order in which they are recorded."""
        store = self._checks.sim.store
        for event in events:
            match event:
                case e.WorkloadDrained() | e.WorkloadExited() | e.StartFailed():
                    row = store.instances.get(event.instance_id)
                    if row is not None and self._newest(row):
                        self._ended.add(row.attempt_id)
                case e.AttemptEnded():
                    self._ended.add(event.attempt_id)
                case e.NoticeSeen(notice=notice) if notice.kind is NoticeKind.RECLAIM:
                    row = store.instances.get(event.instance_id)
                    spot = row is not None and row.live and row.request.offer.market is Market.SPOT
                    if row is not None and spot and row.attempt_id not in self._ended and self._newest(row):
                        self._expected[row.attempt_id] = True
                    if row is not None and row.live:
                        self._noticed.add(row.id)
                case e.NoticeSeen(notice=notice) if notice.kind is NoticeKind.SHUTDOWN and notice.source is not NoticeSource.AGENT:
                    row = store.instances.get(event.instance_id)
                    if row is not None and row.live and row.attempt_id not in self._ended and store.attempts[row.attempt_id].drain is None:
                        # It will end by that very shutdown, and nobody had ordered it to stop.
                        self._shut.add(row.id)
                case e.NoticeCancelled() if event.kind is NoticeKind.RECLAIM:
                    row = store.instances.get(event.instance_id)
                    if row is not None and row.live and row.id in self._noticed and self._newest(row):
                        self._expected[row.attempt_id] = False
                case _:
                    pass

    def committed(self, events: Sequence[e.Event], changes: Changes) -> None:
        """Reclaims that nobody warned of show in a listing; and the market of every new try."""
        store = self._checks.sim.store
        for row in changes.instances:
            spot = row.request.offer.market is Market.SPOT
            told = row.notice is not None and row.notice.kind is NoticeKind.RECLAIM
            shut = row.id in self._shut
            if row.state is InstanceState.GONE and row.ended_by is EndedBy.RECLAIM and spot and self._newest(row) and (shut or not told):
                attempt = store.attempts[row.attempt_id]
                if attempt.ended_at is None or attempt.preempted_at is not None or shut:
                    self._expected.setdefault(row.attempt_id, True)
        for event in events:
            if isinstance(event, e.LaunchRequested):
                self._market(event)

    def _market(self, event: e.LaunchRequested) -> None:
        sim = self._checks.sim
        instance = event.instance
        attempt, job = sim.store.attempts[instance.attempt_id], sim.store.jobs[instance.job_id]
        policy = sim.host.policies[job.spec.policy]
        if instance.request.offer.market is not Market.SPOT or attempt.purpose is Purpose.RETURN:
            return
        since = job.spot_since or job.submitted_at
        count = sum(a.preempted_at is not None and a.preempted_at >= since for a in sim.store.attempts.values() if a.job_id == job.id)
        if count >= policy.spot_handlers.max_preemptions:
            self._checks.violated("preemptions", f"{job.id} is placed on spot after {count} preemptions")

    def at_end(self) -> None:
        """Every attempt's count against the reports, and every count against the cloud's truth."""
        sim = self._checks.sim
        hit: dict[str, bool] = {}
        for machine in sim.cloud.machines.values():
            attempt_id = self._attempt_of(machine.token or "")
            if attempt_id is not None and machine.offer.market is Market.SPOT:
                hit[attempt_id] = hit.get(attempt_id, False) or any(r.kind == "reclaim" for r in machine.reclaims)
        for attempt in sim.store.attempts.values():
            counted = attempt.preempted_at is not None
            if counted != self._expected.get(attempt.id, False):
                word = "is counted" if counted else "is not counted"
                self._checks.violated("preemptions", f"attempt {attempt.number} of {attempt.job_id} {word}, against what was reported")
            if counted and not hit.get(attempt.id, False):
                self._checks.violated("preemptions", f"attempt {attempt.number} of {attempt.job_id} is counted, and the cloud never reclaimed it")
