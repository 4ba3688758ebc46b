"""What the engine needs from the world, as Protocols. Implementations are synchronous, do not retry, sleep or log: the shell owns that.

Every provider passes the one contract suite in `spotd.testing.contract`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum, unique
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from spotd.core.errors import ProviderError
from spotd.core.events import Event
from spotd.core.instance import LaunchRequest, ObservedInstance
from spotd.core.notice import Notice
from spotd.core.offer import Offer
from spotd.core.plan import Hold, Snapshot
from spotd.core.world import Changes, World

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence


@unique
class MetadataKind(StrEnum):
    """Which metadata protocol the agent speaks on this provider's instances."""

    IMDS = "imds"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a provider can do, as values: asked, never found out by an error."""

    #: How long before the end a full notice comes.
    notice: timedelta
    #: An instance whose agent has not called home by then is ended.
    boot_timeout: timedelta
    #: How often an agent calls the daemon, and how often it asks the metadata server.
    heartbeat: timedelta
    metadata_poll: timedelta
    metadata: MetadataKind
    #: How late a listing may show a new instance, or still show an old state.
    listing_lag: timedelta
    #: Name of the dated rule in `core.billing`.
    billing_rule: str
    #: Billed seconds per second: 1 on clouds, k where a recorded market is replayed faster (DESIGN §1).
    billing_speed: int = 1
    #: Whether `notices()` has anything to say.
    notice_channel: bool = False
    #: Whether its instances are other machines: they then need an address of this daemon, and a checkpoint store, that they reach.
    remote: bool = True


@dataclass(frozen=True, slots=True)
class OfferQuery:
    """Which offers are wanted: the cross product of types and regions, both markets."""

    instance_types: frozenset[str]
    regions: frozenset[str]


@dataclass(frozen=True, slots=True)
class OfferSheet:
    """Current offers. A region that could not be asked is named in `failures`, never silently empty: unknown is a value."""

    offers: tuple[Offer, ...]
    failures: Mapping[str, ProviderError] = field(default_factory=lambda: MappingProxyType({}))
    #: What was left out or done without, and what to do about it: one sentence each, for people.
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Launched:
    """The machine exists."""

    provider_id: str
    #: When billing began, if the provider said so.
    launched_at: datetime | None = None
    #: What the request was resolved to (image, network, disk), for people.
    details: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Pending:
    """The provider works on it; ask again."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was launched, and this request will not launch anything any more."""

    error: ProviderError


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nothing is to be found, which proves nothing yet (listings lag, facts/reclaim.md §1.8)."""


LaunchOutcome = Launched | Pending | Refused | Unknown


@dataclass(frozen=True, slots=True)
class DeliveredNotice:
    """A notice from the provider's own channel. `acknowledge` is called after the notice was committed; until then it is delivered again."""

    provider_id: str
    notice: Notice
    acknowledge: Callable[[], None]


class Provider(Protocol):
    """One cloud, or what looks like one."""

    @property
    def name(self) -> str:
        """The word used in policies and offers."""

    @property
    def capabilities(self) -> Capabilities:
        """Fixed for the life of the object."""

    def regions(self) -> Sequence[str]:
        """Every region this provider is configured for."""

    def offers(self, query: OfferQuery) -> OfferSheet:
        """Offers with current prices. Raises ProviderError only when no region could be asked at all."""

    def launch(self, request: LaunchRequest, user_data: str) -> Launched:
        """Ask for one instance; returns at once, before it has booted. Idempotent by `request.token`.

        `user_data` is a shell script run as the machine's first act; it holds a credential and is never logged or stored.
        Raises a ProviderError: after the refusals nothing was launched; after ProviderUnavailable the outcome is unknown.
        """

    def outcome(self, request: LaunchRequest) -> LaunchOutcome:
        """What became of a launch call, looked up by token. Raises ProviderError when it cannot be asked."""

    def instances(self, region: str) -> Sequence[ObservedInstance]:
        """Every instance of our deployment in this region: complete, or raises ProviderError. Never a partial list."""

    def terminate(self, region: str, provider_id: str) -> None:
        """Ask for the end of an instance. Returning means acknowledged, not gone. An absent instance is success; repeating is harmless."""

    def notices(self, stop: threading.Event) -> Sequence[DeliveredNotice]:
        """Wait for notices of the provider's own channel, at most some 20 s, less once `stop` is set; may return none."""

    def close(self) -> None:
        """Release what this object holds. Instances live on."""


class Clock(Protocol):
    """Time as a port: real in the daemon, virtual in the simulator and in tests."""

    def now(self) -> datetime:
        """Wall time: aware, UTC. May jump."""

    def monotonic(self) -> float:
        """Seconds that only go forward, from an arbitrary start."""

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Wait until the event is set or the timeout (seconds) is over; whether it is set."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What `head` tells of an object."""

    key: str
    size: int
    sha256: str | None = None


class AlreadyExists(Exception):
    """A create-only write found an object in its place."""


class ObjectStore(Protocol):
    """Where checkpoints live. Keys are relative paths of printable ASCII (`core.object_key`). `KeyError` when an object is absent.

    A cloud's store raises ProviderError for everything else that goes wrong, as providers do, and makes no second attempt.
    """

    def put(self, key: str, body: bytes, *, create_only: bool = False) -> None:
        """Write a small object whole. With `create_only`, AlreadyExists when there is one."""

    def get(self, key: str) -> bytes:
        """Read a small object whole."""

    def head(self, key: str) -> ObjectInfo:
        """Whether and how large it is."""

    def list(self, prefix: str) -> Sequence[str]:
        """Every key that begins with `prefix`, sorted."""

    def delete(self, key: str) -> None:
        """Remove it; absent is success."""

    def sign(self, method: str, key: str, expires_at: datetime, *, create_only: bool = False) -> str:
        """A URL with which a holder may do `method` (GET, HEAD, PUT) on exactly this object until then, or until the credentials that sign end.

        With `create_only` a PUT never replaces: its holder must send `If-None-Match: *`, and nothing is written where there is an object.
        Begins with `/` where the daemon serves it, and is an absolute address otherwise.
        """

    def close(self) -> None:
        """Release what this object holds. Objects and addresses live on."""


class Store(Protocol):
    """Current rows and the append-only journal, in one place and one transaction. Used by one writer; readers are separate."""

    def load(self) -> World:
        """What is unfinished: jobs with their attempts, instances and checkpoints, every instance not GONE, open intervals, cooldowns, lifetimes."""

    def commit(self, events: Sequence[Event], changes: Changes) -> None:
        """Write rows and journal durably in one transaction, or raise and write nothing."""

    def close(self) -> None:
        """Release the files."""


class Recorder(Protocol):
    """What the APIs need of the engine: the world now, and a door for events."""

    @property
    def world(self) -> World:
        """The current world: an immutable value, safe to read from any thread."""

    def record(self, events: Sequence[Event]) -> None:
        """Fold and commit events, then return; the caller may acknowledge. Raises what the store raises, with nothing changed."""

    def heard(self, instance_id: str) -> None:
        """An agent called: volatile, never stored."""

    def snapshot(self) -> Snapshot:
        """What a plan made now would read."""

    def holds(self) -> Mapping[str, Hold]:
        """By job id: why nothing is being done about it, as of the last plan."""
