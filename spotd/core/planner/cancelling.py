"""A user's cancel: drain what runs, end what does not run yet, then the job is over."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from spotd.core.attempt import AttemptState, DrainKind, EndReason
from spotd.core.events import AttemptEnded, DrainOrdered, JobFinished
from spotd.core.job import Outcome
from spotd.core.plan import HoldReason
from spotd.core.planner.orders import drain_order

if TYPE_CHECKING:
    from spotd.core.plan import Case, Snapshot
    from spotd.core.planner.findings import Findings

#: A cancelled job may still save what it has (known-faults B.3d #8519); an agent that does not answer is not waited for longer than the grace.
SAVE_TIME = timedelta(seconds=30)
GRACE = timedelta(seconds=60)


def cancel(snapshot: Snapshot, case: Case, findings: Findings) -> None:
    """One step of a cancel."""
    job = case.job
    if job.cancel_requested_at is None:
        return
    for attempt in case.active:
        if attempt.state is AttemptState.RUNNING:
            order = drain_order(snapshot, attempt, DrainKind.CANCEL, SAVE_TIME)
            findings.decide(DrainOrdered(snapshot.now, attempt.id, order, "the user cancelled the job"))
        elif attempt.state is not AttemptState.DRAINING:
            findings.decide(AttemptEnded(snapshot.now, attempt.id, EndReason.CANCELLED, "cancelled before its workload ran"))
        elif attempt.deadline is not None and findings.passed(attempt.deadline, GRACE):
            detail = "cancelled; its agent did not report within the grace, so its instance is ended"
            findings.decide(AttemptEnded(snapshot.now, attempt.id, EndReason.CANCELLED, detail))
        findings.hold(job.id, HoldReason.CANCELLING, f"attempt {attempt.number} is asked to save and stop")
    if not case.active:
        findings.decide(JobFinished(snapshot.now, job.id, Outcome.CANCELLED, "cancelled by its user"))
