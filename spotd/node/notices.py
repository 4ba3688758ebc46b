"""Warnings that this instance may go away: what was seen, and what it adds up to. Pure.

A watcher reports the same warning at every look, sometimes with another time in it (facts/reclaim.md §5, 11), and may itself be restarted.
However often it is seen: one kind on one instance is one notice, and its earliest deadline counts.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

_JITTER_S = 2.0  # the service's Date has whole seconds: an earlier deadline counts as news from here on
_CANCELLED_AFTER_S = 300.0  # facts/reclaim.md §1.3: before that, a warning that disappeared may still be carried out


@dataclasses.dataclass(frozen=True)
class Sighting:
    """One warning in one look. *deadline_at* is on the monotonic clock, None where there is no deadline."""

    kind: str
    source: str
    action: str
    deadline_at: float | None
    identity: str
    stops: bool


@dataclasses.dataclass(frozen=True)
class Observation:
    """What one look showed; *complete* when every question was answered, so that absence means something."""

    sightings: tuple[Sighting, ...]
    complete: bool


@dataclasses.dataclass(frozen=True)
class Notice:
    """What is known of one kind of warning; *stops*: the job must be stopped before *deadline_at*."""

    id: str
    kind: str
    source: str
    action: str
    deadline_at: float | None
    stops: bool

    def to_json(self) -> dict[str, Any]:
        """Return it as a value for the journal."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class News:
    """What changed: notices to report (new, or with an earlier deadline) and notices that are off."""

    said: tuple[Notice, ...] = ()
    cancelled: tuple[Notice, ...] = ()


class NoticeBook:
    """The notices in force, by kind."""

    def __init__(self, instance: str, notice_s: float, kept: dict[str, Any] | None = None) -> None:
        """*kept* is what `to_json` returned before a restart."""
        self._instance = instance
        self._notice_s = notice_s
        self._notices = {kind: Notice(**value) for kind, value in (kept or {}).items()}

    def to_json(self) -> dict[str, Any]:
        """Return the book as a value for the journal."""
        return {kind: notice.to_json() for kind, notice in self._notices.items()}

    def fold(self, seen: Observation, now: float) -> News:
        """Take one look in."""
        said = []
        for sighting in sorted(seen.sightings, key=lambda s: (not s.stops, s.deadline_at is None, s.deadline_at or 0.0)):
            notice = self._merged(sighting)
            if notice is not None:
                self._notices[sighting.kind] = notice
                said.append(notice)
        shown = {sighting.kind for sighting in seen.sightings}
        off = [n for n in self._notices.values() if seen.complete and n.kind not in shown and self._is_off(n, now)]
        for notice in off:
            del self._notices[notice.kind]
        return News(tuple(said), tuple(off))

    def stopping(self, now: float) -> Notice | None:
        """Return the notice that the job must be stopped for now: a reclaim at once, maintenance announced days ahead when its notice begins."""
        due = [n for n in self._notices.values() if n.stops and n.deadline_at is not None and (n.kind != "maintenance" or self._is_near(n, now))]
        return min(due, key=lambda n: n.deadline_at or 0.0) if due else None

    def _is_near(self, notice: Notice, now: float) -> bool:
        return notice.deadline_at is not None and notice.deadline_at - now <= self._notice_s

    def _merged(self, sighting: Sighting) -> Notice | None:
        """Return the notice to keep and report, None when the sighting brings nothing new."""
        known = self._notices.get(sighting.kind)
        if known is None:
            digest = hashlib.sha256(f"{self._instance}\0{sighting.kind}\0{sighting.identity}".encode()).hexdigest()
            return Notice(digest[:32], sighting.kind, sighting.source, sighting.action, sighting.deadline_at, sighting.stops)
        if sighting.deadline_at is None or (known.stops and not sighting.stops):
            return None
        earlier = known.deadline_at is None or sighting.deadline_at < known.deadline_at - _JITTER_S
        if not earlier and known.stops == sighting.stops:
            return None
        deadline = sighting.deadline_at if known.deadline_at is None else min(known.deadline_at, sighting.deadline_at)
        return dataclasses.replace(known, deadline_at=deadline, stops=known.stops or sighting.stops, action=sighting.action)

    def _is_off(self, notice: Notice, now: float) -> bool:
        if notice.deadline_at is None:
            return False  # a rebalance hint comes once per instance, whatever happens to it
        if notice.kind == "maintenance" and not self._is_near(notice, now) and now < notice.deadline_at:
            return True  # moved or cancelled days before it would have begun
        return now > notice.deadline_at + _CANCELLED_AFTER_S
