"""What planning reads and what it decides, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum, unique
from types import MappingProxyType

from spotd.core.attempt import Attempt, EndReason
from spotd.core.errors import ErrorKind
from spotd.core.events import Event
from spotd.core.instance import Instance, LaunchRequest
from spotd.core.job import Job
from spotd.core.offer import Offer, OfferKey
from spotd.core.policy import Policy
from spotd.core.tries import is_current
from spotd.core.world import World


@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """What planning needs to know of a provider: part of its capabilities, as plain values."""

    notice: timedelta
    boot_timeout: timedelta
    billing_rule: str
    billing_speed: int = 1
    #: Why nothing can be launched there as the daemon is configured: one sentence that says what to do. Empty: it can.
    blocked: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a plan may depend on, at one instant. `now` is a value: nothing in `core` reads a clock."""

    now: datetime
    world: World
    policies: Mapping[str, Policy] = field(default_factory=lambda: MappingProxyType({}))
    offers: Mapping[OfferKey, Offer] = field(default_factory=lambda: MappingProxyType({}))
    providers: Mapping[str, ProviderFacts] = field(default_factory=lambda: MappingProxyType({}))
    #: When each instance's agent was last heard; volatile, so a restarted daemon begins with its own start.
    heard: Mapping[str, datetime] = field(default_factory=lambda: MappingProxyType({}))
    #: Nobody is silent before this: when the daemon began to listen.
    listening_since: datetime | None = None
    #: Instance ids and provider ids for which an effect is being executed now.
    in_flight: frozenset[str] = frozenset()
    #: The build of the agent that new instances start.
    agent_sha256: str = ""

    def silent_for(self, instance_id: str) -> timedelta:
        """How long nothing was heard from an instance's agent, as far as we could have heard it."""
        last = self.heard.get(instance_id) or self.listening_since or self.now
        return self.now - last


@unique
class HoldReason(StrEnum):
    """Why nothing is done about a job now. "We did nothing" always has a reason."""

    RUNNING = "running"
    BOOTING = "booting"
    LAUNCHING = "launching"
    DRAINING = "draining"
    FENCE = "fence"
    NO_POLICY = "no_policy"
    NO_OFFER = "no_offer"
    PRICES_TOO_OLD = "prices_too_old"
    TOO_EXPENSIVE = "too_expensive"
    COOLING_DOWN = "cooling_down"
    PROVIDER_SUSPENDED = "provider_suspended"
    PROVIDER_BLOCKED = "provider_blocked"
    BACKING_OFF = "backing_off"
    CANCELLING = "cancelling"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Hold:
    """A non-action with its reason, and when it is worth looking again."""

    job_id: str
    why: HoldReason
    detail: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """Effect: call the provider's launch with this stored request."""

    request: LaunchRequest


@dataclass(frozen=True, slots=True)
class Resolve:
    """Effect: ask the provider what became of this request."""

    request: LaunchRequest


@dataclass(frozen=True, slots=True)
class Terminate:
    """Effect: ask the provider to end a machine."""

    provider: str
    region: str
    provider_id: str
    #: None: a stray.
    instance_id: str | None


Effect = Launch | Resolve | Terminate


def subject(effect: Effect) -> str:
    """The id under which an effect counts as in flight: one at a time for one machine."""
    match effect:
        case Launch(request) | Resolve(request):
            return request.token
        case Terminate(instance_id=None):
            return effect.provider_id
        case Terminate():
            return effect.instance_id or effect.provider_id


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing to do: events to record first, then an effect to execute, if any."""

    events: tuple[Event, ...]
    effect: Effect | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, why the rest is left alone, and when to look again at the latest."""

    decisions: tuple[Decision, ...]
    holds: tuple[Hold, ...]
    next_look: datetime | None


@dataclass(frozen=True, slots=True)
class Case:
    """One unfinished job with all that belongs to it: what the planner's rules look at."""

    job: Job
    policy: Policy | None
    #: Oldest first.
    attempts: tuple[Attempt, ...]
    instances: Mapping[str, tuple[Instance, ...]]
    #: Attempts that are not over. Every rule asks for them, so they are found once.
    active: tuple[Attempt, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "active", tuple(a for a in self.attempts if not a.ended))

    def current(self, attempt: Attempt) -> tuple[Instance, ...]:
        """The machine that speaks for an attempt, if one was asked for (one per rank)."""
        return tuple(i for i in self.of(attempt) if is_current(attempt, i))

    def blamed(self, attempt: Attempt) -> bool:
        """Whether it is known why an attempt ended: who shut its machine down is for the provider to say, once it is gone."""
        return attempt.reason is not EndReason.GUEST_SHUTDOWN or not any(i.live for i in self.current(attempt))

    def of(self, attempt: Attempt) -> tuple[Instance, ...]:
        """Every try of an attempt, oldest first."""
        return self.instances.get(attempt.id, ())

    @property
    def invalid_try(self) -> Instance | None:
        """A try that was refused because the request itself is wrong: the job fails with the sentence, nothing is tried again (DESIGN §5)."""
        tries = (i for a in self.active for i in self.of(a))
        return next((i for i in tries if i.refusal is ErrorKind.INVALID_REQUEST), None)
