"""Machines and spot requests of the fake account: the truth, and what it looked like at an earlier time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import Generic, TypeVar

from spotd.core.offer import Market

T = TypeVar("T")


@unique
class State(StrEnum):
    """As EC2 calls them."""

    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"
    STOPPING = "stopping"
    STOPPED = "stopped"

    @property
    def code(self) -> int:
        """EC2's number for it."""
        return _CODES[self]

    @property
    def alive(self) -> bool:
        """Whether it may still execute something or costs money."""
        return self is not State.TERMINATED


_CODES = {State.PENDING: 0, State.RUNNING: 16, State.SHUTTING_DOWN: 32, State.TERMINATED: 48, State.STOPPING: 64, State.STOPPED: 80}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an instance changed its state: StateReason, and the free text beside it (facts/reclaim.md §1.9)."""

    code: str = ""
    message: str = ""
    transition: str = ""


NO_REASON = Reason()


def by_user(at: datetime) -> Reason:
    """Somebody called TerminateInstances."""
    return Reason(
        "Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown", f"User initiated ({at:%Y-%m-%d %H:%M:%S} GMT)"
    )


#: The machine switched itself off.
BY_GUEST = Reason("Client.InstanceInitiatedShutdown", "Client.InstanceInitiatedShutdown: Instance initiated shutdown")
RECLAIMED = Reason("Server.SpotInstanceTermination", "Server.SpotInstanceTermination: Spot instance termination", "Server.SpotInstanceTermination")
RECLAIM_STOPPED = Reason("Server.SpotInstanceShutdown", "Server.SpotInstanceShutdown: Spot instance shutdown", "Server.SpotInstanceShutdown")


class Past(Generic[T]):
    """What something was since when: lets an answer be late."""

    def __init__(self, at: datetime, value: T) -> None:
        self._since = [at]
        self._values = [value]

    def set(self, at: datetime, value: T) -> None:
        """It is this from then on."""
        self._since.append(at)
        self._values.append(value)

    def at(self, moment: datetime) -> T:
        """What it was then; before the beginning, what it began as."""
        return self._values[max(bisect_right(self._since, moment) - 1, 0)]

    @property
    def now(self) -> T:
        """What it is."""
        return self._values[-1]


@dataclass(frozen=True, slots=True)
class Volume:
    """A disk of an instance."""

    id: str
    device: str
    gb: int
    kind: str
    delete_on_termination: bool
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A scheduled event."""

    id: str
    code: str
    description: str
    not_before: datetime
    not_after: datetime


@dataclass(slots=True)
class FakeInstance:
    """One machine: everything the launch said, and what became of it."""

    instance_id: str
    region: str
    zone: str
    zone_id: str
    instance_type: str
    lifecycle: Market
    launched_at: datetime
    client_token: str
    tags: dict[str, str]
    image_id: str
    subnet_id: str
    vpc_id: str
    security_groups: tuple[str, ...]
    #: As it runs on the machine: decoded.
    user_data: bytes
    volumes: tuple[Volume, ...]
    metadata_options: Mapping[str, str]
    #: What a shutdown from inside does: `stop` or `terminate`.
    shutdown_behavior: str
    architecture: str
    root_device: str
    private_address: str
    public_address: str | None
    key_name: str | None
    instance_profile_arn: str | None
    max_price: str | None
    spot_request_id: str | None
    history: Past[tuple[State, Reason]]
    running_at: datetime | None = None
    #: When it began to shut down, where billing ends (facts/reclaim.md §1.11), and when it was terminated.
    ended_at: datetime | None = None
    gone_at: datetime | None = None
    #: What the metadata service says: the reclaim's action and time; when the hint was given.
    action: tuple[str, datetime] | None = None
    rebalance_at: datetime | None = None
    #: `spot/termination-time`: stays after a reclaim that was cancelled (facts/reclaim.md §1.3).
    termination_time: datetime | None = None
    maintenance: list[Maintenance] = field(default_factory=list)

    @property
    def state(self) -> State:
        """What it is now."""
        return self.history.now[0]

    @property
    def state_reason(self) -> Reason:
        """Why, where there is a reason."""
        return self.history.now[1]

    @property
    def alive(self) -> bool:
        """Whether it may still execute something."""
        return self.state.alive

    def tags_at(self, moment: datetime, kept: timedelta) -> dict[str, str]:
        """Its tags; they vanish before the row does (facts/reclaim.md §1.9)."""
        return {} if self.gone_at is not None and moment >= self.gone_at + kept else self.tags


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """State and status code of a spot request (facts/reclaim.md §1.8)."""

    state: str
    code: str
    message: str
    since: datetime


@dataclass(slots=True)
class SpotRequest:
    """The spot request behind a spot instance."""

    id: str
    region: str
    zone: str
    zone_id: str
    instance_id: str
    instance_type: str
    image_id: str
    max_price: str
    kind: str
    created_at: datetime
    tags: dict[str, str]
    history: Past[RequestStatus]
    closed_at: datetime | None = None

    @property
    def status(self) -> RequestStatus:
        """What it is now."""
        return self.history.now


_MESSAGES = {
    "fulfilled": "Your spot request is fulfilled.",
    "instance-terminated-by-user": "Spot Instance terminated due to user-initiated termination.",
    "instance-terminated-no-capacity": "Your Spot instance was terminated because there is no Spot capacity available.",
    "instance-terminated-by-price": "Your Spot instance was terminated because the Spot price exceeded your maximum price.",
    "instance-terminated-by-experiment": "Your Spot instance was terminated by an AWS Fault Injection Service experiment.",
    "marked-for-stop": "Your Spot instance is marked for stop.",
    "marked-for-termination": "Your Spot instance is marked for termination.",
    "request-canceled-and-instance-running": "You canceled the Spot request while its instance is still running.",
}


def message_of(code: str) -> str:
    """The sentence beside a status code."""
    return _MESSAGES.get(code, f"{code.replace('-', ' ').capitalize()}.")
