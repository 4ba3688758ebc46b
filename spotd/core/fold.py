"""`fold(world, events)`: the next world, and the rows to write. The only place where recorded state changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from spotd.core import events as e
from spotd.core import fold_agent, fold_cloud
from spotd.core.attempt import Attempt, DrainKind
from spotd.core.draft import Draft
from spotd.core.lifecycle import AttemptTrigger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spotd.core.world import Changes, World


def fold(world: World, events: Iterable[e.Event]) -> tuple[World, Changes]:
    """Fold events into the world, in order. Raises IllegalTransition for a decision of ours that the tables do not allow: a bug, nothing is kept."""
    draft = Draft(world)
    for event in events:
        _apply(draft, event)
    return draft.freeze()


def _apply(draft: Draft, event: e.Event) -> None:  # noqa: C901, PLR0912, PLR0915 - one arm per kind of event, nothing else
    match event:
        case e.JobSubmitted():
            # A submit that is said again is the same submit.
            draft.put_job(draft.jobs.get(event.job.id, event.job))
        case e.CancelRequested():
            _cancel_requested(draft, event)
        case e.AttemptPlaced():
            _attempt_placed(draft, event)
        case e.LaunchRequested():
            fold_cloud.launch_requested(draft, event)
        case e.LaunchRepeated():
            fold_cloud.launch_repeated(draft, event)
        case e.LaunchSucceeded():
            fold_cloud.launch_succeeded(draft, event)
        case e.LaunchRefused():
            fold_cloud.launch_refused(draft, event)
        case e.LaunchUnknown():
            fold_cloud.launch_unknown(draft, event)
        case e.LaunchPending() | e.LaunchNotFound():
            fold_cloud.launch_asked(draft, event)
        case e.Listed():
            fold_cloud.listed(draft, event)
        case e.PriceMoved():
            fold_cloud.price_moved(draft, event)
        case e.AgentBootstrapped():
            fold_agent.bootstrapped(draft, event)
        case e.AgentSpoke():
            fold_agent.spoke(draft, event)
        case e.AgentReady():
            fold_agent.ready(draft, event)
        case e.GateOpened():
            _gate_opened(draft, event)
        case e.WorkloadStarted():
            fold_agent.started(draft, event)
        case e.ProgressReported():
            fold_agent.progressed(draft, event)
        case e.NoticeSeen():
            fold_agent.notice_seen(draft, event)
        case e.NoticeCancelled():
            fold_agent.notice_cancelled(draft, event)
        case e.CheckpointCommitted():
            fold_agent.checkpoint_committed(draft, event)
        case e.WorkloadDrained():
            fold_agent.drained(draft, event)
        case e.WorkloadExited():
            fold_agent.exited(draft, event)
        case e.BootFailed():
            fold_agent.boot_failed(draft, event)
        case e.StartFailed():
            fold_agent.start_failed(draft, event)
        case e.DrainOrdered():
            _drain_ordered(draft, event)
        case e.AttemptEnded():
            fold_agent.end_attempt(draft, draft.attempts[event.attempt_id], event.reason, event.at, event.detail)
        case e.JobRetried():
            _job_retried(draft, event)
        case e.JobFinished():
            _job_finished(draft, event)
        case e.TerminateRequested():
            fold_cloud.terminate_requested(draft, event)
        case e.TerminateAcknowledged():
            fold_cloud.terminate_acknowledged(draft, event)
        case e.TerminateFailed():
            fold_cloud.terminate_failed(draft, event)
        case e.AbsenceProved():
            fold_cloud.absence_proved(draft, event)
        case e.StrayTerminateRequested():
            _stray_terminate_requested(draft, event)
        case e.AlarmRaised():
            draft.alarms[event.alarm.value, event.subject] = event.at
        case e.StrayTerminated() | e.PolicyLoaded():
            # Only the journal keeps these: a stray that is still there shows in the next listing.
            pass
        case _:
            assert_never(event)


def _cancel_requested(draft: Draft, event: e.CancelRequested) -> None:
    job = draft.jobs[event.job_id]
    if job.outcome is None and job.cancel_requested_at is None:
        draft.put_job(replace(job, cancel_requested_at=event.at))


def _attempt_placed(draft: Draft, event: e.AttemptPlaced) -> None:
    job = draft.jobs[event.job_id]
    draft.put_job(replace(job, attempts=max(job.attempts, event.number)))
    draft.put_attempt(Attempt(event.attempt_id, event.job_id, event.number, event.purpose, event.at))


def _gate_opened(draft: Draft, event: e.GateOpened) -> None:
    attempt = draft.advance_attempt(draft.attempts[event.attempt_id], AttemptTrigger.GATE_OPENED)
    draft.put_attempt(replace(attempt, gate_opened_at=event.at, baseline_usd_per_hour=event.baseline_usd_per_hour))


def _drain_ordered(draft: Draft, event: e.DrainOrdered) -> None:
    attempt = draft.advance_attempt(draft.attempts[event.attempt_id], AttemptTrigger.STOP_ORDERED)
    deadlines = [d for d in (attempt.deadline, event.order.deadline) if d is not None]
    draft.put_attempt(replace(attempt, drain=event.order, draining_since=attempt.draining_since or event.at, deadline=min(deadlines)))
    job = draft.jobs.get(attempt.job_id)
    if job is not None and event.order.kind is DrainKind.RETURN:
        # The preemption window begins anew: "since the job last returned to spot".
        draft.put_job(replace(job, spot_since=event.at))


def _job_retried(draft: Draft, event: e.JobRetried) -> None:
    job = draft.jobs[event.job_id]
    errors = job.errors + 1 if event.counted else job.errors
    draft.put_job(replace(job, errors=errors, settled=max(job.settled, event.number), not_before=event.not_before))


def _job_finished(draft: Draft, event: e.JobFinished) -> None:
    job = draft.jobs[event.job_id]
    if job.outcome is None:
        draft.put_job(replace(job, outcome=event.outcome, outcome_detail=event.detail, finished_at=event.at, waiting_since=None))


def _stray_terminate_requested(draft: Draft, event: e.StrayTerminateRequested) -> None:
    key = (event.provider, event.provider_id)
    stray = draft.strays.get(key)
    if stray is not None:
        draft.strays[key] = replace(stray, terminate_called_at=event.at)
