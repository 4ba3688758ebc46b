"""Machines of a provider as recorded, and as observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum, unique
from types import MappingProxyType

from spotd.core.errors import ErrorKind
from spotd.core.notice import Notice
from spotd.core.offer import OfferKey

_EMPTY: Mapping[str, str] = MappingProxyType({})


@unique
class InstanceState(StrEnum):
    """Where a machine is in its life. Transitions stand in `lifecycle` and nowhere else."""

    #: The intent is recorded; whether the machine exists is not known yet.
    REQUESTED = "requested"
    STARTING = "starting"
    RUNNING = "running"
    TERMINATING = "terminating"
    GONE = "gone"


@unique
class EndedBy(StrEnum):
    """Who ended a machine: decides what is billed and what is counted (facts/reclaim.md §1.9, §1.11)."""

    #: The provider took it back.
    RECLAIM = "reclaim"
    #: We asked for it.
    US = "us"
    #: It was shut down from inside.
    GUEST = "guest"
    #: Somebody else ended it through the provider's API.
    EXTERNAL = "external"
    MAINTENANCE = "maintenance"
    #: It never ran: refused, or failed while starting.
    NEVER_RAN = "never_ran"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """All that a launch call is made of, except credentials, which are added at the call. Stored before it; a retry is byte-identical."""

    #: Our id of the instance, and the client token.
    token: str
    deployment: str
    job_id: str
    job_name: str
    attempt: int
    rank: int
    offer: OfferKey
    #: Spot: never pay more than this.
    max_price_usd_per_hour: Decimal | None
    #: The provider's own lock: no instance of ours lives beyond this.
    expires_at: datetime
    labels: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    #: Size of its root disk; None: as the provider is configured.
    disk_gb: int | None = None
    #: Name of the cloud's identity for what runs on it; None: as the provider is configured, by default none.
    instance_profile: str | None = None
    #: Which build of the agent it starts: user data names it, and a call that is repeated after an upgrade must not differ in a byte.
    agent_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    """One try of an attempt, and the machine it became, if it did."""

    id: str
    job_id: str
    attempt_id: str
    rank: int
    try_number: int
    request: LaunchRequest
    #: The price in force when it was requested.
    price_usd_per_hour: Decimal
    #: One sentence: why this offer.
    because: str
    requested_at: datetime
    state: InstanceState = InstanceState.REQUESTED
    provider_id: str | None = None
    #: What the provider resolved the request to (image, network, disk), for people.
    details: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    #: Launch calls so far, and when the last began.
    launch_calls: int = 1
    launch_called_at: datetime | None = None
    #: When we last heard of its outcome without learning it, how often in a row, and whether nothing was to be found then.
    asked_at: datetime | None = None
    asks: int = 0
    not_found_at: datetime | None = None
    #: When the provider says billing began.
    launched_at: datetime | None = None
    refusal: ErrorKind | None = None
    #: The cloud's own code and sentence of the last refusal or failure.
    error: str = ""
    notice: Notice | None = None
    hint_at: datetime | None = None
    #: When a listing showed it on its way down before we had asked for that. The order of events, not of times: our clock may be stepped.
    ending_seen_at: datetime | None = None
    terminate_requested_at: datetime | None = None
    terminate_because: str = ""
    terminate_calls: int = 0
    terminate_called_at: datetime | None = None
    terminate_acknowledged_at: datetime | None = None
    #: Complete listings in a row that lack it, counted while it could be expected in them.
    absences: int = 0
    absent_since: datetime | None = None
    ended_at: datetime | None = None
    ended_by: EndedBy | None = None
    end_code: str = ""
    #: sha256 of the agent's nonce and of its session credential, once exchanged.
    nonce_sha256: str | None = None
    session_sha256: str | None = None
    #: What its agent was told: after this much silence of ours its workload has stopped by itself. None: it goes on for ever.
    stops_after_silence: timedelta | None = None
    #: Number of the agent's last message that was recorded: what it says again up to there is old.
    last_seq: int = 0

    @property
    def live(self) -> bool:
        """Whether it may exist and cost money."""
        return self.state is not InstanceState.GONE

    @property
    def ended_by_us(self) -> bool:
        """Whether its end is our doing: we asked before it was seen to be on its way down."""
        return self.terminate_requested_at is not None and self.ending_seen_at is None


@unique
class ObservedState(StrEnum):
    """What a provider says of a machine, in four words."""

    PENDING = "pending"
    RUNNING = "running"
    #: On its way down: not gone, may still execute.
    ENDING = "ending"
    #: Terminated or deleted: executes nothing any more.
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class ObservedInstance:
    """One row of a complete listing: a machine that carries our deployment tag."""

    provider_id: str
    #: Our id from its tags; None when the tags are gone already (they vanish before the row, facts/reclaim.md §1.9).
    token: str | None
    region: str
    zone: str
    state: ObservedState
    launched_at: datetime | None
    ended_at: datetime | None = None
    ended_by: EndedBy | None = None
    #: The provider's own code for its end.
    end_code: str = ""


@dataclass(frozen=True, slots=True)
class Interval:
    """One stretch of an instance's life at one price: ledger material, append-only (an open one is closed, nothing else changes)."""

    instance_id: str
    number: int
    price_usd_per_hour: Decimal
    started_at: datetime
    ended_at: datetime | None = None
