"""What the user declared, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum, unique
from types import MappingProxyType

_EMPTY: Mapping[str, str] = MappingProxyType({})


@unique
class Outcome(StrEnum):
    """How a job ended. A job without one is unfinished; its shown status is derived from its attempts."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a job that fails by itself is run again. Preemptions are counted elsewhere and never use these up."""

    on_error: int = 0
    #: Exit codes that are always retried and do not use up `on_error`.
    retry_on_exit_codes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job file, parsed. Strings of the user (`run`, `setup`) reach a shell on the instance and nothing else does."""

    name: str
    policy: str
    run: str
    setup: str | None = None
    labels: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    env: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    #: sha256 of the workdir archive the client uploaded, or None.
    workdir_sha256: str | None = None
    estimated_runtime: timedelta | None = None
    #: Size of the instance's disk; None: as the provider is configured.
    disk_gb: int | None = None
    checkpoint_dir: str = "checkpoints"
    retries: Retries = Retries()


@dataclass(frozen=True, slots=True)
class Job:
    """One job as recorded: what is wanted (`spec`, `cancel_requested_at`) and, when it is over, its outcome."""

    id: str
    spec: JobSpec
    owner: str
    submitted_at: datetime
    cancel_requested_at: datetime | None = None
    outcome: Outcome | None = None
    #: One sentence for a person: why it ended as it did.
    outcome_detail: str = ""
    finished_at: datetime | None = None
    #: Start of the preemption window when the policy names none: when the job last returned to spot (or was submitted).
    spot_since: datetime | None = None
    #: Since when the job has had no attempt that runs or boots; None while it has one.
    waiting_since: datetime | None = None
    #: Errors of the job itself so far that used up `retries.on_error`.
    errors: int = 0
    #: Attempts so far; the next one is this plus one.
    attempts: int = 0
    #: Number of the last attempt whose ending was decided upon (retry, or the job's outcome).
    settled: int = 0
    #: Not to be placed again before this time (back-off after an error of the job itself).
    not_before: datetime | None = None
