"""One placement of a job that got capacity, and the checkpoints it left."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum, unique

from spotd.core.offer import Market


@unique
class AttemptState(StrEnum):
    """Where an attempt is. Why it ended is `EndReason`, never a state."""

    #: Being placed: launch requests are out, none has a machine yet.
    PLACED = "placed"
    BOOTING = "booting"
    #: Its agent waits at the gate.
    READY = "ready"
    #: The gate was opened: its workload may run.
    RUNNING = "running"
    #: Told to checkpoint and stop.
    DRAINING = "draining"
    ENDED = "ended"


@unique
class EndReason(StrEnum):
    """Why an attempt ended."""

    RECLAIMED = "reclaimed"
    #: Its instance vanished and nothing says why.
    LOST = "lost"
    BOOT_TIMEOUT = "boot_timeout"
    #: The machine came up and its boot script could not make it one of ours.
    BOOT_FAILED = "boot_failed"
    #: The workload ended by itself.
    EXITED = "exited"
    #: The workload could not be started on the instance (setup, workdir, restore).
    FAILED_TO_START = "failed_to_start"
    MOVED = "moved"
    DISPLACED = "displaced"
    CANCELLED = "cancelled"
    #: Somebody else ended the instance.
    EXTERNAL = "external"
    #: The instance was shut down from inside without a report.
    GUEST_SHUTDOWN = "guest_shutdown"
    MAINTENANCE = "maintenance"
    IDLE = "idle"
    #: Given up by the explicit policy `replace_when_unreachable`.
    UNREACHABLE = "unreachable"
    #: Not needed any more: the job ended, or the attempt it was to replace went on.
    NOT_NEEDED = "not_needed"


@unique
class Purpose(StrEnum):
    """Why an attempt was placed."""

    #: The first, or after an error.
    START = "start"
    #: After a reclaim or a loss.
    REPLACE = "replace"
    #: Back to spot, while an on-demand attempt runs on.
    RETURN = "return"
    #: Ahead of `max_run_duration`, while the old attempt runs on.
    MOVE = "move"


@unique
class DrainKind(StrEnum):
    """Why we ask a workload to checkpoint and stop."""

    RETURN = "return"
    MOVE = "move"
    CANCEL = "cancel"
    MAINTENANCE = "maintenance"
    DISPLACED = "displaced"
    #: The provider takes the instance back, and told us: its agent may not have seen it.
    RECLAIM = "reclaim"

    @property
    def end_reason(self) -> EndReason:
        """How an attempt ends that was drained for this."""
        return _END_REASONS[self]


_END_REASONS = {
    DrainKind.RETURN: EndReason.MOVED,
    DrainKind.MOVE: EndReason.MOVED,
    DrainKind.CANCEL: EndReason.CANCELLED,
    DrainKind.MAINTENANCE: EndReason.MAINTENANCE,
    DrainKind.DISPLACED: EndReason.DISPLACED,
    DrainKind.RECLAIM: EndReason.RECLAIMED,
}


@dataclass(frozen=True, slots=True)
class DrainOrder:
    """Our order to checkpoint and stop: carried out once by its id."""

    id: str
    kind: DrainKind
    ordered_at: datetime
    deadline: datetime


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A committed checkpoint: its manifest exists (DESIGN §4 rule 6)."""

    #: `AAAAA-SSSSSS`: attempt and sequence; sorts by age.
    id: str
    job_id: str
    attempt: int
    sequence: int
    step: int | None
    files: int
    size_bytes: int
    manifest_sha256: str
    committed_at: datetime
    save_s: float = 0.0
    upload_s: float = 0.0
    trigger: str = "announced"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt as recorded. Times are the daemon's; an agent's are ages subtracted from them."""

    id: str
    job_id: str
    number: int
    purpose: Purpose
    placed_at: datetime
    state: AttemptState = AttemptState.PLACED
    market: Market | None = None
    #: Tries so far. The machines of a gang, one of each rank, are one try and share its number.
    tries: int = 0
    launched_at: datetime | None = None
    ready_at: datetime | None = None
    gate_opened_at: datetime | None = None
    started_at: datetime | None = None
    #: Counted as a preemption since then; None again if the reclaim is cancelled.
    preempted_at: datetime | None = None
    draining_since: datetime | None = None
    #: When the earliest warning or order says it must have stopped.
    deadline: datetime | None = None
    drain: DrainOrder | None = None
    #: The agent said the workload's processes are gone.
    stopped_at: datetime | None = None
    #: Whether the warning ended in a committed checkpoint (None: there was none to answer).
    saved: bool | None = None
    seconds_used: float | None = None
    seconds_given: float | None = None
    hook_exit: int | None = None
    ended_at: datetime | None = None
    reason: EndReason | None = None
    exit_code: int | None = None
    detail: str = ""
    boot_s: float | None = None
    restore_s: float | None = None
    setup_s: float | None = None
    resumed_from: str | None = None
    resumed_step: int | None = None
    step: int | None = None
    loss: float | None = None
    gpu_util: float | None = None
    progress_at: datetime | None = None
    checkpoint: str | None = None
    checkpoint_step: int | None = None
    checkpoint_at: datetime | None = None
    #: What the same work would have cost on demand when its workload started.
    baseline_usd_per_hour: Decimal | None = None

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.state is AttemptState.ENDED

    @property
    def may_have_run(self) -> bool:
        """Whether its workload was ever allowed to run: only then it must be fenced before another runs."""
        return self.gate_opened_at is not None
