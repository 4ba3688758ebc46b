"""Warnings that an instance will be taken away, and how those of several channels become one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum, unique

#: What is further away than this is planned for, not answered.
_SOON = timedelta(minutes=5)


@unique
class NoticeKind(StrEnum):
    """What a warning says. Only some stop the job (`stops_job`)."""

    RECLAIM = "reclaim"
    MAINTENANCE = "maintenance"
    #: The operating system told the agent to stop, and no channel said why.
    SHUTDOWN = "shutdown"
    #: A rebalance recommendation: no deadline, never stops a job.
    REBALANCE = "rebalance"

    @property
    def stops_job(self) -> bool:
        """Whether the job must checkpoint and stop before the deadline."""
        return self is not NoticeKind.REBALANCE


@unique
class NoticeSource(StrEnum):
    """Which channel told us first."""

    IMDS = "imds"
    SIGNAL = "signal"
    #: A lease of the agent's own ran out (its lifetime, or nobody answered it): nobody's fault, least of all the job's.
    AGENT = "agent"
    PROVIDER = "provider"


@dataclass(frozen=True, slots=True)
class Notice:
    """One warning about one instance. Channels merge by (instance, kind): the earliest deadline wins (DESIGN §6)."""

    kind: NoticeKind
    source: NoticeSource
    seen_at: datetime
    #: None: no deadline is known (a rebalance hint).
    deadline: datetime | None

    def imminent(self, now: datetime) -> bool:
        """Whether the job must stop now. Maintenance is announced days ahead (facts/reclaim.md §1.1): there is time to move first."""
        if self.kind is not NoticeKind.MAINTENANCE or self.deadline is None:
            return self.kind.stops_job
        return self.deadline - now <= _SOON

    def merged(self, other: Notice) -> Notice:
        """This notice after a second channel (or a second reading) said `other` about the same instance and kind."""
        deadlines = [d for d in (self.deadline, other.deadline) if d is not None]
        first = self if self.seen_at <= other.seen_at else other
        return Notice(self.kind, first.source, first.seen_at, min(deadlines, default=None))
