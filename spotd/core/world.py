"""All that is recorded and still matters, as one immutable value, and what a set of events changed in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from spotd.core.attempt import Attempt, Checkpoint
from spotd.core.errors import ErrorKind
from spotd.core.instance import Instance, Interval
from spotd.core.job import Job
from spotd.core.offer import Market, OfferKey
from spotd.core.survival import Lifetime

if TYPE_CHECKING:
    from collections.abc import Callable

_Row = TypeVar("_Row")

#: Stands for "every zone" or "every type" in a cooldown.
ANY = "*"


@dataclass(frozen=True, slots=True, order=True)
class CooldownKey:
    """Which offers a cooldown covers: a provider's region and market, narrowed to a zone and a type unless those are `ANY`."""

    provider: str
    region: str
    zone: str
    instance_type: str
    market: Market

    def covers(self, offer: OfferKey) -> bool:
        """Whether the offer lies in it."""
        return (
            self.provider == offer.provider
            and self.region in {ANY, offer.region}
            and self.market is offer.market
            and self.zone in {ANY, offer.zone}
            and self.instance_type in {ANY, offer.instance_type}
        )


@dataclass(frozen=True, slots=True)
class Cooldown:
    """Not to be tried again before `until`. `failures` in a row make it longer each time."""

    key: CooldownKey
    until: datetime
    failures: int
    cause: ErrorKind | None
    #: When the last failure was: a quiet day forgets them.
    failed_at: datetime


@dataclass(frozen=True, slots=True)
class Stray:
    """A live machine with our deployment's tag that no record of ours accounts for."""

    provider: str
    region: str
    provider_id: str
    first_seen_at: datetime
    launched_at: datetime | None
    terminate_called_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class World:
    """Current rows of everything unfinished. Never mutated: `fold.fold` makes the next one."""

    deployment: str
    jobs: Mapping[str, Job] = field(default_factory=lambda: MappingProxyType({}))
    attempts: Mapping[str, Attempt] = field(default_factory=lambda: MappingProxyType({}))
    instances: Mapping[str, Instance] = field(default_factory=lambda: MappingProxyType({}))
    #: By job, oldest first.
    checkpoints: Mapping[str, tuple[Checkpoint, ...]] = field(default_factory=lambda: MappingProxyType({}))
    #: The open interval of each billed instance.
    intervals: Mapping[str, Interval] = field(default_factory=lambda: MappingProxyType({}))
    cooldowns: Mapping[CooldownKey, Cooldown] = field(default_factory=lambda: MappingProxyType({}))
    lifetimes: Mapping[OfferKey, Lifetime] = field(default_factory=lambda: MappingProxyType({}))
    #: By (provider, provider id).
    strays: Mapping[tuple[str, str], Stray] = field(default_factory=lambda: MappingProxyType({}))
    #: Providers not to be called for launches before this time (throttled, or not authorised).
    suspended: Mapping[str, datetime] = field(default_factory=lambda: MappingProxyType({}))
    #: When each alarm was last raised, by (kind, subject): said once per subject, not once per tick.
    alarms: Mapping[tuple[str, str], datetime] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Changes:
    """The rows that a set of events made or changed: what the store writes, in the same transaction as the journal."""

    jobs: tuple[Job, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    instances: tuple[Instance, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    intervals: tuple[Interval, ...] = ()
    cooldowns: tuple[Cooldown, ...] = ()
    lifetimes: tuple[Lifetime, ...] = ()

    def then(self, later: Changes) -> Changes:
        """These changes followed by later ones: one row each, the last word wins."""
        return Changes(
            jobs=_last(self.jobs + later.jobs, lambda r: r.id),
            attempts=_last(self.attempts + later.attempts, lambda r: r.id),
            instances=_last(self.instances + later.instances, lambda r: r.id),
            checkpoints=_last(self.checkpoints + later.checkpoints, lambda r: (r.job_id, r.id)),
            intervals=_last(self.intervals + later.intervals, lambda r: (r.instance_id, r.number)),
            cooldowns=_last(self.cooldowns + later.cooldowns, lambda r: r.key),
            lifetimes=_last(self.lifetimes + later.lifetimes, lambda r: r.offer),
        )


def _last(rows: tuple[_Row, ...], key: Callable[[_Row], object]) -> tuple[_Row, ...]:
    return tuple({key(row): row for row in rows}.values())
