"""What the control API is given: the engine's door, the read model, policies, files. Handlers find it in the application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Protocol

from aiohttp import web

from spotd.config.policy_book import PolicyBook
from spotd.core.attempt import Attempt, Checkpoint
from spotd.core.instance import Instance, Interval
from spotd.core.job import Job
from spotd.core.offer import Market, Offer
from spotd.daemon.peer import Peer, peer_of
from spotd.daemon.reader import JournalRow
from spotd.ports import Clock, Recorder


class ReadModel(Protocol):
    """What is asked of the database, finished jobs included (see `reader.Reader`). Called from threads; each answer is one consistent view."""

    def jobs(self, *, owner: str | None = None, policy: str | None = None, unfinished: bool = False, limit: int = 100) -> Sequence[Job]:
        """Jobs that fit, newest first."""

    def job(self, word: str) -> Job:
        """The job meant by an id, the beginning of one, or a name. Raises UnknownJob, AmbiguousJob."""

    def attempts(self, job_id: str) -> Sequence[Attempt]:
        """A job's attempts, oldest first."""

    def instances(self, job_id: str) -> Sequence[Instance]:
        """Every try of every attempt, oldest first."""

    def checkpoints(self, job_id: str) -> Sequence[Checkpoint]:
        """A job's committed checkpoints, oldest first."""

    def intervals(self, instance_ids: Collection[str]) -> Mapping[str, Sequence[Interval]]:
        """The priced intervals of some instances, oldest first."""

    def journal(
        self, after_seq: int = 0, limit: int = 1_000, job_id: str | None = None, kinds: Collection[str] | None = None
    ) -> Sequence[JournalRow]:
        """Rows after a sequence number, oldest first."""

    def last_seq(self) -> int:
        """The sequence number of the newest row."""

    def prices(
        self,
        *,
        provider: str | None = None,
        region: str | None = None,
        zone: str | None = None,
        instance_type: str | None = None,
        market: Market | None = None,
        since: datetime | None = None,
        limit: int = 100_000,
    ) -> Sequence[Offer]:
        """Changes of price, oldest first; with `since`, also each price that was in force then."""


class Arriving(Protocol):
    """An object on its way in (see `directory_store.Incoming`)."""

    @property
    def sha256(self) -> str:
        """Of what was written so far."""

    def write(self, piece: bytes) -> None:
        """Add a piece."""

    def commit(self, *, create_only: bool = False) -> None:
        """Give the object its name."""

    def close(self) -> None:
        """Forget what was not committed."""


class WorkdirStore(Protocol):
    """Where archives of working directories lie: the daemon's directory store."""

    def receive(self, key: str) -> Arriving:
        """Begin to write an object."""

    def open(self, key: str) -> IO[bytes]:
        """An object's content. KeyError where there is none."""


#: `savings(since, until, by)`: the report as plain JSON values. ValueError with a sentence when `by` is not known.
Savings = Callable[[datetime | None, datetime | None, str], Mapping[str, Any]]
#: Per provider, plain JSON values: what `spotd status` shows.
Health = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Everything the handlers reach."""

    recorder: Recorder
    reader: ReadModel
    policies: PolicyBook
    clock: Clock
    savings: Savings
    health: Health
    logs_dir: Path
    workdirs: WorkdirStore
    workdir_limit: int
    admin_group: str
    version: str
    started_at: datetime
    identify: Callable[[web.Request], Peer] = peer_of
    #: Set at shutdown: whoever follows something is let go.
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    #: One submit at a time: whether a nonce is new must still be true when it is recorded.
    submitting: asyncio.Lock = field(default_factory=asyncio.Lock)


CONTROL: web.AppKey[Control] = web.AppKey("control", Control)


async def pause(control: Control, seconds: float) -> bool:
    """Wait a little; whether the daemon is closing."""
    try:
        async with asyncio.timeout(seconds):
            await control.closing.wait()
    except TimeoutError:
        return False
    return True
