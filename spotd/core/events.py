"""What can happen: one frozen value each. Effects come back through the same door, as exactly one event per action.

An event carries the time the daemon gives it (`at`); nothing below reads a clock. Those with `journaled` False are frequent and only move
current rows (progress, listings); the journal, which `spotd events` shows, keeps the rest for ever.

This is the longest module because it is a list: one short value after the other, in the order in which a job's story tells them. Split, it would
have to be searched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum, unique
from types import MappingProxyType
from typing import ClassVar

from spotd.core.attempt import Checkpoint, DrainOrder, EndReason, Purpose
from spotd.core.errors import ErrorKind, Scope
from spotd.core.instance import Instance, ObservedInstance
from spotd.core.job import Job, Outcome
from spotd.core.notice import Notice, NoticeKind

_EMPTY: Mapping[str, str] = MappingProxyType({})


@unique
class AlarmKind(StrEnum):
    """What ops should look at."""

    NOT_AUTHORIZED = "not_authorized"
    QUOTA = "quota"
    MISCONFIGURED = "misconfigured"
    EXTERNAL_END = "external_end"
    STRAY = "stray"
    RESTORE_REFUSED = "restore_refused"
    UNREACHABLE = "unreachable"
    TERMINATE_FAILING = "terminate_failing"
    PROVIDER_FAILING = "provider_failing"
    CHECKPOINT_NOT_SAVED = "checkpoint_not_saved"


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A user declared a job."""

    at: datetime
    job: Job
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A user wants a job stopped."""

    at: datetime
    job_id: str
    by: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class AttemptPlaced:
    """We decided to place a job; its launch requests follow."""

    at: datetime
    job_id: str
    attempt_id: str
    number: int
    purpose: Purpose
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class LaunchRequested:
    """The intent of one launch call, recorded before it."""

    at: datetime
    instance: Instance
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class LaunchRepeated:
    """The identical call is about to be made again: the outcome of the last one is unknown and nothing was found."""

    at: datetime
    instance_id: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class LaunchSucceeded:
    """The machine exists."""

    at: datetime
    instance_id: str
    provider_id: str
    launched_at: datetime | None
    details: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class LaunchRefused:
    """Nothing was launched, and the provider said why."""

    at: datetime
    instance_id: str
    kind: ErrorKind
    scope: Scope
    code: str
    message: str
    retry_after_s: float | None = None
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class LaunchUnknown:
    """The call failed in a way that proves nothing, or its outcome could not be asked."""

    at: datetime
    instance_id: str
    message: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class LaunchNotFound:
    """The provider finds nothing for the request: it may be repeated, byte for byte."""

    at: datetime
    instance_id: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class LaunchPending:
    """The provider works on it."""

    at: datetime
    instance_id: str
    journaled: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Listed:
    """A complete listing of our instances in one region. `asked_at` is when the call began: what it lacks may have been born since.

    `since` is when the daemon that listed was started: only from then on are its times of one clock.
    """

    at: datetime
    asked_at: datetime
    provider: str
    region: str
    instances: tuple[ObservedInstance, ...]
    since: datetime | None = None
    journaled: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class PriceMoved:
    """The price of a live instance's offer changed: the ledger begins a new interval."""

    at: datetime
    instance_id: str
    price_usd_per_hour: Decimal
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class AgentBootstrapped:
    """An agent exchanged its bootstrap credential. Only hashes are kept."""

    at: datetime
    instance_id: str
    nonce_sha256: str
    session_sha256: str
    #: `replace_when_unreachable` as it was in force: the lease that this agent was given keeps this promise, whatever the policy says later.
    stops_after_silence: timedelta | None = None
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class AgentSpoke:
    """An agent's messages up to this number are recorded, in the same commit as what they said."""

    at: datetime
    instance_id: str
    last_seq: int
    journaled: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class AgentReady:
    """Workdir, restore and setup are done; the agent waits at the gate."""

    at: datetime
    instance_id: str
    restored: str | None
    restored_step: int | None
    boot_s: float
    restore_s: float
    setup_s: float
    detail: str = ""
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class GateOpened:
    """From now on the attempt's workload may run: recorded before the agent is told."""

    at: datetime
    attempt_id: str
    baseline_usd_per_hour: Decimal | None
    because: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class WorkloadStarted:
    """The job's process exists. It may resume from a newer checkpoint than the one the agent had when it was ready."""

    at: datetime
    instance_id: str
    restored: str | None = None
    restored_step: int | None = None
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class ProgressReported:
    """How far the job is."""

    at: datetime
    instance_id: str
    step: int | None
    loss: float | None
    gpu_util: float | None = None
    journaled: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class NoticeSeen:
    """A channel warned about an instance."""

    at: datetime
    instance_id: str
    notice: Notice
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class NoticeCancelled:
    """The warning was withdrawn: the instance outlived its deadline and the channel is silent again."""

    at: datetime
    instance_id: str
    kind: NoticeKind
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class CheckpointCommitted:
    """A manifest was accepted by the store."""

    at: datetime
    instance_id: str
    checkpoint: Checkpoint
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class WorkloadDrained:
    """After a warning or an order the workload's processes are gone and uploads are over."""

    at: datetime
    instance_id: str
    saved: bool
    step: int | None
    checkpoint: str | None
    seconds_used: float
    seconds_given: float | None
    hook_exit: int | None
    detail: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class WorkloadExited:
    """The workload ended by itself; its last checkpoint is committed."""

    at: datetime
    instance_id: str
    code: int
    done: bool
    step: int | None
    detail: str = ""
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The workload could not be started on this instance."""

    at: datetime
    instance_id: str
    phase: str
    code: int | None
    detail: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class BootFailed:
    """A machine's boot script gave up: its agent will not come."""

    at: datetime
    instance_id: str
    detail: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class DrainOrdered:
    """We want an attempt to checkpoint and stop."""

    at: datetime
    attempt_id: str
    order: DrainOrder
    because: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt is over, by our decision or by what became of its instance."""

    at: datetime
    attempt_id: str
    reason: EndReason
    detail: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class JobRetried:
    """The job failed by itself and is run again."""

    at: datetime
    job_id: str
    #: The attempt whose ending this settles.
    number: int
    counted: bool
    not_before: datetime
    because: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class JobFinished:
    """A job has its outcome."""

    at: datetime
    job_id: str
    outcome: Outcome
    detail: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class TerminateRequested:
    """The intent of a terminate call, recorded before it; repeated until it is acknowledged and the instance is gone."""

    at: datetime
    instance_id: str
    because: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class TerminateAcknowledged:
    """The provider accepted it. Accepted is not gone."""

    at: datetime
    instance_id: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class TerminateFailed:
    """It will be asked again."""

    at: datetime
    instance_id: str
    message: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class AbsenceProved:
    """Two complete listings lack the instance, late enough to prove that it executes nothing (DESIGN §4 rule 2)."""

    at: datetime
    instance_id: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class StrayTerminateRequested:
    """A machine carries our tag and no record of ours: it is ended after the age guard."""

    at: datetime
    provider: str
    region: str
    provider_id: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class StrayTerminated:
    """The provider's word on ending a stray."""

    at: datetime
    provider: str
    region: str
    provider_id: str
    message: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class AlarmRaised:
    """Something for ops to look at; said once per subject, not once per tick."""

    at: datetime
    alarm: AlarmKind
    subject: str
    message: str
    journaled: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class PolicyLoaded:
    """A policy file was read: taken (`problem` empty), or refused while the last good one stays in force."""

    at: datetime
    policy: str
    problem: str
    journaled: ClassVar[bool] = True


Event = (
    JobSubmitted
    | CancelRequested
    | AttemptPlaced
    | LaunchRequested
    | LaunchRepeated
    | LaunchSucceeded
    | LaunchRefused
    | LaunchUnknown
    | LaunchNotFound
    | LaunchPending
    | Listed
    | PriceMoved
    | AgentBootstrapped
    | AgentSpoke
    | AgentReady
    | GateOpened
    | WorkloadStarted
    | ProgressReported
    | NoticeSeen
    | NoticeCancelled
    | CheckpointCommitted
    | WorkloadDrained
    | WorkloadExited
    | StartFailed
    | BootFailed
    | DrainOrdered
    | AttemptEnded
    | JobRetried
    | JobFinished
    | TerminateRequested
    | TerminateAcknowledged
    | TerminateFailed
    | AbsenceProved
    | StrayTerminateRequested
    | StrayTerminated
    | AlarmRaised
    | PolicyLoaded
)
