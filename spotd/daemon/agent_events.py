"""What an agent's messages mean: one event each, at a time of ours. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import assert_never

from spotd.core import events as e
from spotd.core.attempt import Attempt, Checkpoint
from spotd.core.instance import Instance
from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd.daemon import agent_messages as m
from spotd.daemon.agent_errors import malformed

_SOURCES = {"imds": NoticeSource.IMDS, "signal": NoticeSource.SIGNAL, "agent": NoticeSource.AGENT}
#: Exit code of a job of which nobody saw how it ended.
_UNSEEN = 255


def fresh(messages: Sequence[m.Message], last_seq: int) -> list[m.Message]:
    """The messages not recorded yet. Raises a Problem where their numbers do not rise."""
    numbers = [message.seq for message in messages]
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        raise malformed("messages: their numbers must rise")
    return [message for message in messages if message.seq > last_seq]


def said_at(age_s: float, instance: Instance, now: datetime) -> datetime:
    """When it happened: an age before now, and not before the instance was asked for, whatever its clock did."""
    oldest = max((now - instance.requested_at).total_seconds(), 0.0)
    return now - timedelta(seconds=min(age_s, oldest))


def check_checkpoint(message: m.CheckpointSaid, instance: Instance) -> None:
    """An agent speaks for its own attempt's checkpoints only. Raises a Problem."""
    if message.checkpoint != f"{instance.request.attempt:05d}-{message.sequence:06d}":
        raise malformed("checkpoint: not one of this attempt")


def event_of(message: m.Message, instance: Instance, earlier: Sequence[m.Message], now: datetime) -> e.Event | None:
    """The event a message stands for, None if there is nothing left for it to change. `earlier` came in the same request."""
    at = said_at(message.age_s, instance, now)
    match message:
        case m.Ready():
            skipped = "; ".join(message.skipped_checkpoints)[:2000]
            return e.AgentReady(
                at,
                instance.id,
                message.restored_checkpoint,
                message.restored_step,
                message.boot_s,
                message.restore_s or 0.0,
                message.setup_s or 0.0,
                skipped,
            )
        case m.Started():
            return e.WorkloadStarted(at, instance.id, message.restored_checkpoint, message.restored_step)
        case m.NoticeSaid():
            left = message.seconds_left
            deadline = None if left is None else at + timedelta(seconds=left)
            return e.NoticeSeen(at, instance.id, Notice(NoticeKind(message.kind), _SOURCES[message.source], at, deadline))
        case m.NoticeWithdrawn():
            kind = _kind_of(message, instance, earlier)
            return None if kind is None else e.NoticeCancelled(at, instance.id, kind)
        case m.CheckpointSaid():
            return e.CheckpointCommitted(at, instance.id, _checkpoint(message, instance, at))
        case m.Drained() | m.Exited() | m.Failed():
            return _end(message, instance.id, at)
        case _:
            assert_never(message)


def _end(message: m.Drained | m.Exited | m.Failed, instance_id: str, at: datetime) -> e.Event:
    match message:
        case m.Drained():
            return e.WorkloadDrained(
                at,
                instance_id,
                message.saved,
                message.step,
                message.checkpoint,
                message.seconds_used,
                message.seconds_given,
                message.hook_exit,
                message.detail,
            )
        case m.Exited():
            detail = ""
            if message.signal is not None:
                code = 128 + message.signal  # as a shell says it
            elif message.code is not None:
                code = message.code
            else:
                code, detail = _UNSEEN, "nobody saw how it ended"
            return e.WorkloadExited(at, instance_id, code, message.done, message.step, detail)
        case m.Failed():
            return e.StartFailed(at, instance_id, message.phase, message.code, message.detail)
        case _:
            assert_never(message)


def _kind_of(message: m.NoticeWithdrawn, instance: Instance, earlier: Sequence[m.Message]) -> NoticeKind | None:
    """The kind of the withdrawn notice: as said, else as it was announced in the same breath, else the one in force."""
    if message.kind is not None:
        return NoticeKind(message.kind)
    for said in earlier:
        if isinstance(said, m.NoticeSaid) and said.notice_id == message.notice_id:
            return NoticeKind(said.kind)
    return None if instance.notice is None else instance.notice.kind


def _checkpoint(message: m.CheckpointSaid, instance: Instance, at: datetime) -> Checkpoint:
    return Checkpoint(
        id=message.checkpoint,
        job_id=instance.job_id,
        attempt=instance.request.attempt,
        sequence=message.sequence,
        step=message.step,
        files=message.files,
        size_bytes=message.bytes,
        manifest_sha256=message.manifest_sha256,
        committed_at=at,
        save_s=message.save_s,
        upload_s=message.upload_s,
        trigger=message.trigger,
    )


def progress_of(progress: m.Progress, attempt: Attempt | None, instance_id: str, now: datetime) -> e.Event | None:
    """An event only where there is news: most heartbeats bring none, and each event is a write to the disk."""
    if attempt is None or (progress.step is None and progress.loss is None and progress.gpu_util is None):
        return None
    step = attempt.step if progress.step is None else progress.step
    if (step, progress.loss, progress.gpu_util) == (attempt.step, attempt.loss, attempt.gpu_util):
        return None
    return e.ProgressReported(now, instance_id, step, progress.loss, progress.gpu_util)
