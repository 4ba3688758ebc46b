"""Attempts that are over although nobody said so: instances gone, boots that never came up, notices before the workload ran, silence."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, assert_never

from spotd.core.attempt import Attempt, AttemptState, EndReason, Purpose
from spotd.core.events import AlarmKind, AttemptEnded, JobRetried
from spotd.core.instance import EndedBy, Instance
from spotd.core.notice import NoticeKind
from spotd.core.plan import HoldReason
from spotd.core.planner.fence import fence, presumed_stopped, unreachable_at

if TYPE_CHECKING:
    from spotd.core.plan import Case, Snapshot
    from spotd.core.planner.findings import Findings

#: Why an attempt is over that was warned before its workload ran. Who shut a machine down is said when it is gone (`fold_cloud`).
_WARNED = {
    NoticeKind.RECLAIM: EndReason.RECLAIMED,
    NoticeKind.MAINTENANCE: EndReason.MAINTENANCE,
    NoticeKind.SHUTDOWN: EndReason.GUEST_SHUTDOWN,
}
#: An agent that worked and is silent this long while its provider says "running" is worth telling ops about.
SILENT_ALARM = timedelta(minutes=10)


def end_attempts(snapshot: Snapshot, case: Case, findings: Findings) -> None:
    """End what is over; say what is only suspected."""
    for attempt in case.active:
        ended = (
            _gone(snapshot, case, attempt)
            or _warned_before_it_ran(snapshot, case, attempt)
            or _boot_timed_out(snapshot, case, attempt, findings)
            or _unreachable(snapshot, case, attempt, findings)
            or _superfluous(snapshot, case, attempt)
        )
        if ended is not None:
            findings.decide(ended)
            continue
        _idle(snapshot, case, attempt, findings)


def _gone(snapshot: Snapshot, case: Case, attempt: Attempt) -> AttemptEnded | None:
    """One of its machines existed and is gone, so the attempt is over (a gang is 0 or N, facts/placement.md §1)."""
    dead = [i for i in case.current(attempt) if not i.live and i.provider_id is not None]
    if not dead:
        return None
    instance = dead[-1]
    reason = EndReason.RECLAIMED if attempt.preempted_at is not None else _reason(instance)
    return AttemptEnded(snapshot.now, attempt.id, reason, f"{instance.provider_id} is gone ({instance.end_code or 'no code'})")


def _reason(instance: Instance) -> EndReason:
    match instance.ended_by:
        case EndedBy.RECLAIM:
            return EndReason.RECLAIMED
        case EndedBy.EXTERNAL:
            return EndReason.EXTERNAL
        case EndedBy.GUEST:
            return EndReason.GUEST_SHUTDOWN
        case EndedBy.MAINTENANCE:
            return EndReason.MAINTENANCE
        case EndedBy.US | EndedBy.UNKNOWN | EndedBy.NEVER_RAN | None:
            return EndReason.LOST
        case other:
            assert_never(other)


def _warned_before_it_ran(snapshot: Snapshot, case: Case, attempt: Attempt) -> AttemptEnded | None:
    """There is nothing to save yet: do not let a workload begin on a machine that is going away (known-faults A.78)."""
    if attempt.may_have_run:
        return None
    for instance in case.current(attempt):
        if instance.live and instance.notice is not None:
            reason = EndReason.RECLAIMED if attempt.preempted_at is not None else _WARNED[instance.notice.kind]
            detail = f"{instance.provider_id or instance.id} got a {instance.notice.kind} notice before its workload ran"
            return AttemptEnded(snapshot.now, attempt.id, reason, detail)
    return None


def _boot_timed_out(snapshot: Snapshot, case: Case, attempt: Attempt, findings: Findings) -> AttemptEnded | None:
    """Its agent never called, or stopped calling before the workload ran. Nothing ran, so nothing needs a fence."""
    if attempt.may_have_run or attempt.launched_at is None:
        return None
    for instance in case.current(attempt):
        facts = snapshot.providers.get(instance.request.offer.provider)
        if not instance.live or facts is None:
            continue
        since = max(attempt.launched_at, snapshot.now - snapshot.silent_for(instance.id))
        if findings.passed(since, facts.boot_timeout):
            detail = f"the agent on {instance.provider_id} was not heard for {facts.boot_timeout} while booting"
            return AttemptEnded(snapshot.now, attempt.id, EndReason.BOOT_TIMEOUT, detail)
    return None


def _unreachable(snapshot: Snapshot, case: Case, attempt: Attempt, findings: Findings) -> AttemptEnded | None:
    """Silence of a workload that may run: by default only told; with `replace_when_unreachable` it ends the attempt."""
    if not attempt.may_have_run:
        return None
    patience = None if case.policy is None else case.policy.replace_when_unreachable
    for instance in case.current(attempt):
        if not instance.live:
            continue
        if patience is not None:
            if presumed_stopped(snapshot, instance, patience):
                detail = f"the agent on {instance.provider_id} was not heard for {snapshot.silent_for(instance.id)} (replace_when_unreachable)"
                return AttemptEnded(snapshot.now, attempt.id, EndReason.UNREACHABLE, detail)
            due = unreachable_at(snapshot, instance, patience)
            if due is not None:
                findings.look_at(due)
        if snapshot.silent_for(instance.id) >= SILENT_ALARM:
            message = (
                f"the agent of job {case.job.spec.name} on {instance.provider_id} has been silent for {snapshot.silent_for(instance.id)}; "
                "its provider has not said that it is gone, so the job is not started elsewhere (policy replace_when_unreachable allows that)"
            )
            findings.alarm(snapshot, AlarmKind.UNREACHABLE, instance.id, message)
    return None


def _superfluous(snapshot: Snapshot, case: Case, attempt: Attempt) -> AttemptEnded | None:
    """A newer attempt was let through its gate while this one, placed to be a replacement, never ran."""
    newer = [a for a in case.active if a.number > attempt.number and a.may_have_run]
    if attempt.may_have_run or not newer:
        return None
    return AttemptEnded(snapshot.now, attempt.id, EndReason.NOT_NEEDED, f"attempt {newer[0].number} runs")


def _idle(snapshot: Snapshot, case: Case, attempt: Attempt, findings: Findings) -> None:
    """At the gate longer than `idle_timeout`: a machine that costs money and does nothing (known-faults A.67)."""
    if attempt.state is not AttemptState.READY or attempt.ready_at is None or case.policy is None:
        return
    closed = fence(snapshot, case, attempt)
    if closed.open:
        return
    findings.hold(case.job.id, HoldReason.FENCE, closed.detail)
    if findings.passed(attempt.ready_at, case.policy.idle_timeout):
        detail = f"waited {case.policy.idle_timeout} at the gate (idle_timeout): {closed.detail}"
        findings.decide(AttemptEnded(snapshot.now, attempt.id, EndReason.IDLE, detail))
        if attempt.purpose not in {Purpose.RETURN, Purpose.MOVE}:
            again = snapshot.now + case.policy.idle_timeout
            findings.decide(JobRetried(snapshot.now, case.job.id, attempt.number, counted=False, not_before=again, because=detail))
