"""How the agents' words change the world. An agent may speak late, twice, or about an attempt that is over: that is data, never an error."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from spotd.core.attempt import Attempt, AttemptState, EndReason
from spotd.core.cooldown import after_failure, key_for
from spotd.core.errors import ErrorKind, Scope
from spotd.core.fold_cloud import count_preemption
from spotd.core.lifecycle import AttemptTrigger
from spotd.core.notice import NoticeKind, NoticeSource
from spotd.core.tries import is_current

if TYPE_CHECKING:
    from datetime import datetime

    from spotd.core.draft import Draft
    from spotd.core.events import (
        AgentBootstrapped,
        AgentReady,
        AgentSpoke,
        BootFailed,
        CheckpointCommitted,
        NoticeCancelled,
        NoticeSeen,
        ProgressReported,
        StartFailed,
        WorkloadDrained,
        WorkloadExited,
        WorkloadStarted,
    )


def end_attempt(draft: Draft, attempt: Attempt, reason: EndReason, at: datetime, detail: str = "") -> None:
    """An attempt is over. Its job waits again unless another attempt is under way."""
    if attempt.ended:
        return
    attempt = draft.advance_attempt(attempt, AttemptTrigger.ENDED)
    draft.put_attempt(replace(attempt, ended_at=at, reason=reason, detail=detail))
    if reason in {EndReason.BOOT_TIMEOUT, EndReason.BOOT_FAILED}:
        _cool_where_it_booted(draft, attempt, at)
    job = draft.jobs.get(attempt.job_id)
    others = (a for a in draft.attempts.values() if a.job_id == attempt.job_id and a.id != attempt.id)
    if job is not None and job.outcome is None and job.waiting_since is None and all(a.ended for a in others):
        draft.put_job(replace(job, waiting_since=at))


def _cool_where_it_booted(draft: Draft, attempt: Attempt, at: datetime) -> None:
    """A place where machines do not come up is left alone for a while, like one without capacity."""
    for instance in draft.instances.values():
        if is_current(attempt, instance) and instance.live:
            key = key_for(instance.request.offer, Scope.OFFER)
            draft.put_cooldown(after_failure(draft.cooldowns.get(key), key, ErrorKind.NO_CAPACITY, at))


def bootstrapped(draft: Draft, event: AgentBootstrapped) -> None:
    """Only hashes are kept."""
    instance = draft.instances[event.instance_id]
    draft.put_instance(
        replace(
            instance,
            nonce_sha256=event.nonce_sha256,
            session_sha256=event.session_sha256,
            stops_after_silence=event.stops_after_silence,
        )
    )


def spoke(draft: Draft, event: AgentSpoke) -> None:
    """Its messages up to here were heard. Numbers only rise."""
    instance = draft.instances.get(event.instance_id)
    if instance is not None and event.last_seq > instance.last_seq:
        draft.put_instance(replace(instance, last_seq=event.last_seq))


def ready(draft: Draft, event: AgentReady) -> None:
    """It waits at the gate."""
    attempt = draft.attempt_of(draft.instances.get(event.instance_id))
    if attempt is None or attempt.state not in {AttemptState.PLACED, AttemptState.BOOTING, AttemptState.READY}:
        return
    attempt = draft.advance_attempt(attempt, AttemptTrigger.READY)
    draft.put_attempt(
        replace(
            attempt,
            market=draft.instances[event.instance_id].request.offer.market,
            launched_at=attempt.launched_at or event.at,
            ready_at=attempt.ready_at or event.at,
            boot_s=event.boot_s,
            restore_s=event.restore_s,
            setup_s=event.setup_s,
            resumed_from=event.restored,
            resumed_step=event.restored_step,
            step=event.restored_step,
            detail=event.detail,
        )
    )


def started(draft: Draft, event: WorkloadStarted) -> None:
    """The job's process exists."""
    attempt = draft.attempt_of(draft.instances.get(event.instance_id))
    if attempt is None or attempt.started_at is not None:
        return
    attempt = replace(attempt, started_at=event.at)
    if event.restored is not None:
        attempt = replace(attempt, resumed_from=event.restored, resumed_step=event.restored_step, step=event.restored_step)
    draft.put_attempt(attempt)


def progressed(draft: Draft, event: ProgressReported) -> None:
    """How far it is. A late word about an ended attempt still tells how much was lost."""
    attempt = draft.attempt_of(draft.instances.get(event.instance_id))
    if attempt is None or (event.step, event.loss, event.gpu_util) == (attempt.step, attempt.loss, attempt.gpu_util):
        return
    step = attempt.step if event.step is None else event.step
    draft.put_attempt(replace(attempt, step=step, loss=event.loss, gpu_util=event.gpu_util, progress_at=event.at))


def notice_seen(draft: Draft, event: NoticeSeen) -> None:
    """A warning. Several channels and readings of one reclaim are one notice; the earliest deadline wins."""
    instance = draft.instances.get(event.instance_id)
    if instance is None or not instance.live:
        return
    notice = event.notice
    if notice.kind is NoticeKind.REBALANCE:
        if instance.hint_at is None:
            draft.put_instance(replace(instance, hint_at=notice.seen_at))
        return
    first = instance.notice is None
    was = instance.notice
    # A reclaim says why; a shutdown or a maintenance that turns out to be one becomes it.
    if was is None or (was.kind is not NoticeKind.RECLAIM and notice.kind is NoticeKind.RECLAIM):
        merged = notice if was is None else replace(notice.merged(was), kind=NoticeKind.RECLAIM)
    else:
        merged = was.merged(notice)
    instance = replace(instance, notice=merged)
    draft.put_instance(instance)
    if merged.kind is NoticeKind.RECLAIM and (first or (was is not None and was.kind is not NoticeKind.RECLAIM)):
        count_preemption(draft, instance, event.at)
    attempt = draft.attempt_of(instance)
    if attempt is not None and attempt.state in {AttemptState.RUNNING, AttemptState.DRAINING} and merged.imminent(event.at):
        attempt = draft.advance_attempt(attempt, AttemptTrigger.STOP_ORDERED)
        deadlines = [d for d in (attempt.deadline, merged.deadline) if d is not None]
        draft.put_attempt(replace(attempt, draining_since=attempt.draining_since or event.at, deadline=min(deadlines, default=None)))
        job = draft.jobs.get(attempt.job_id)
        if job is not None and job.outcome is None and job.waiting_since is None:
            draft.put_job(replace(job, waiting_since=event.at))


def notice_cancelled(draft: Draft, event: NoticeCancelled) -> None:
    """The reclaim did not happen: it is not a preemption. The workload was stopped all the same."""
    instance = draft.instances.get(event.instance_id)
    if instance is None or instance.notice is None or instance.notice.kind is not event.kind or not instance.live:
        return
    draft.put_instance(replace(instance, notice=None))
    attempt = draft.attempt_of(instance)
    if attempt is not None and attempt.preempted_at is not None:
        draft.put_attempt(replace(attempt, preempted_at=None))


def checkpoint_committed(draft: Draft, event: CheckpointCommitted) -> None:
    """Its manifest exists, so it counts, whichever attempt left it and however late we hear."""
    draft.put_checkpoint(event.checkpoint)
    attempt = draft.attempt_of(draft.instances.get(event.instance_id))
    if attempt is not None and (attempt.checkpoint is None or attempt.checkpoint <= event.checkpoint.id):
        draft.put_attempt(
            replace(
                attempt,
                checkpoint=event.checkpoint.id,
                checkpoint_step=event.checkpoint.step,
                checkpoint_at=event.checkpoint.committed_at,
            )
        )


def drained(draft: Draft, event: WorkloadDrained) -> None:
    """The workload's processes are gone: from here on a replacement may run."""
    attempt = draft.attempt_of(draft.instances.get(event.instance_id))
    if attempt is None or attempt.stopped_at is not None:
        return
    attempt = replace(
        attempt,
        stopped_at=event.at,
        saved=event.saved,
        step=attempt.step if event.step is None else event.step,
        seconds_used=event.seconds_used,
        seconds_given=event.seconds_given,
        hook_exit=event.hook_exit,
    )
    draft.put_attempt(attempt)
    end_attempt(draft, attempt, _drain_reason(draft, attempt, event.instance_id), event.at, event.detail)


def _drain_reason(draft: Draft, attempt: Attempt, instance_id: str) -> EndReason:
    notice = draft.instances[instance_id].notice
    if attempt.preempted_at is not None:
        return EndReason.RECLAIMED
    if attempt.drain is not None:
        return attempt.drain.kind.end_reason
    if notice is not None and notice.kind is NoticeKind.MAINTENANCE:
        return EndReason.MAINTENANCE
    if notice is not None and notice.kind is NoticeKind.SHUTDOWN and notice.source is not NoticeSource.AGENT:
        # Until the provider says who shut it down (`fold_cloud`): a reclaim without a notice looks like this, too.
        return EndReason.GUEST_SHUTDOWN
    # The notice it answered was withdrawn before it had stopped, or it drained of itself (lease, lifetime).
    return EndReason.MOVED


def exited(draft: Draft, event: WorkloadExited) -> None:
    """It ended by itself. What that means for the job is the planner's decision."""
    attempt = draft.attempt_of(draft.instances.get(event.instance_id))
    if attempt is None or attempt.stopped_at is not None:
        return
    step = attempt.step if event.step is None else event.step
    attempt = replace(attempt, stopped_at=event.at, exit_code=event.code, step=step)
    draft.put_attempt(attempt)
    end_attempt(draft, attempt, EndReason.EXITED, event.at, event.detail)


def boot_failed(draft: Draft, event: BootFailed) -> None:
    """There is nothing to wait for on this machine. No workload ran: nothing needs a fence."""
    attempt = draft.attempt_of(draft.instances.get(event.instance_id))
    if attempt is not None and not attempt.may_have_run:
        end_attempt(draft, attempt, EndReason.BOOT_FAILED, event.at, event.detail)


def start_failed(draft: Draft, event: StartFailed) -> None:
    """The workload could not be started here."""
    attempt = draft.attempt_of(draft.instances.get(event.instance_id))
    if attempt is None or attempt.stopped_at is not None:
        return
    attempt = replace(attempt, stopped_at=event.at, exit_code=event.code)
    draft.put_attempt(attempt)
    end_attempt(draft, attempt, EndReason.FAILED_TO_START, event.at, f"{event.phase}: {event.detail}")
