"""Leaving a healthy attempt for a better place: back to spot, or before `max_run_duration`. Always at a checkpoint boundary, never cold."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from spotd.core.attempt import Attempt, AttemptState, DrainKind, Purpose
from spotd.core.events import DrainOrdered
from spotd.core.fallback import return_due
from spotd.core.notice import NoticeKind
from spotd.core.planner.orders import drain_order

if TYPE_CHECKING:
    from spotd.core.plan import Case, Snapshot
    from spotd.core.planner.findings import Findings
    from spotd.core.policy import Policy

#: Time to save for a workload that is not being taken away.
SAVE_TIME = timedelta(minutes=2)
#: Leave this much earlier than `max_run_duration` ends: a tenth of it, at most an hour (boot, restore and a save fit in).
_LONGEST_MARGIN = timedelta(hours=1)


def wanted(case: Case, attempt: Attempt, findings: Findings) -> Purpose | None:
    """Whether a running attempt should get a successor now, and why."""
    policy = case.policy
    if policy is None or attempt.state is not AttemptState.RUNNING:
        return None
    for until in (leave_at(attempt, policy), _maintenance(case, attempt)):
        if until is not None and findings.passed(until, timedelta(0)):
            return Purpose.MOVE
    due = return_due(attempt, case.attempts, policy)
    if due is not None and findings.passed(due, timedelta(0)):
        return Purpose.RETURN
    return None


def leave_at(attempt: Attempt, policy: Policy) -> datetime | None:
    """When an attempt should be moved because `max_run_duration` comes near."""
    if attempt.launched_at is None:
        return None
    return attempt.launched_at + policy.max_run_duration - min(policy.max_run_duration / 10, _LONGEST_MARGIN)


def _maintenance(case: Case, attempt: Attempt) -> datetime | None:
    """When to leave a machine whose maintenance is announced: early enough to boot, restore and save elsewhere."""
    notices = (i.notice for i in case.current(attempt) if i.live and i.notice is not None and i.notice.kind is NoticeKind.MAINTENANCE)
    return min((notice.deadline - _LONGEST_MARGIN for notice in notices if notice.deadline is not None), default=None)


def move(snapshot: Snapshot, case: Case, findings: Findings) -> None:
    """The successor waits at the gate: ask the running attempt to save and stop, at a checkpoint boundary."""
    if case.job.cancel_requested_at is not None or case.policy is None:
        return
    running = next((a for a in case.active if a.state is AttemptState.RUNNING), None)
    successor = next((a for a in reversed(case.active) if a.state is AttemptState.READY), None)
    if running is None or successor is None or successor.number <= running.number or successor.ready_at is None:
        return
    kind = DrainKind.RETURN if successor.purpose is Purpose.RETURN else DrainKind.MOVE
    if kind is DrainKind.MOVE and _maintenance(case, running) is not None:
        kind = DrainKind.MAINTENANCE
    boundary = running.checkpoint_at is not None and running.checkpoint_at >= successor.ready_at
    # A job with a long interval is not waited for at double price: it is asked to save half-way through the successor's idle time.
    if boundary or findings.passed(successor.ready_at, case.policy.idle_timeout / 2):
        because = f"attempt {successor.number} is ready at {'a checkpoint boundary' if boundary else 'half of idle_timeout'} ({kind})"
        findings.decide(DrainOrdered(snapshot.now, running.id, drain_order(snapshot, running, kind, SAVE_TIME), because))
