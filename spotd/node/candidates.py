"""Which checkpoint to commit next, if any. Pure.

A job that announces its checkpoints is believed, and only then; for one that never did, a tree at rest is a checkpoint: unchanged for five
seconds and open for writing by nobody. A tree does not become complete by its writer's death.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from spotd.node.progress import Announcement

QUIET_S = 5.0
_MOST_TRIES = 3  # of one announced checkpoint that changed while it was read
_RETRY_S = 2.0
_SAMPLES = 20


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A checkpoint that may be committed: *name* below the checkpoint directory, None for the whole tree."""

    name: str | None
    step: int | None
    trigger: str
    ordinal: int | None  # of the announcement
    signature: str  # of the whole tree when it was found complete
    save_s: float  # how long writing it seems to have taken


class Candidates:
    """Follows announcements and the tree, and remembers what is settled."""

    def __init__(self, settled_ordinal: int = 0, settled_signature: str = "", saves: list[float] | None = None) -> None:
        """Everything up to *settled_ordinal*, and the tree of *settled_signature*, needs no commit (any more)."""
        self.settled_ordinal = settled_ordinal
        self.settled_signature = settled_signature
        self.saves = list(saves or ())
        self.latest: Announcement | None = None
        self.signature = settled_signature
        self.ended: str | None = None  # trigger of the last commit, once the job is gone
        self._trusted_end = False
        self._changed_at: float | None = None
        self._dirty_since: float | None = None
        self._touched: dict[str, float] = {}  # when each path was first seen to differ since the last announcement
        self._save_s = 0.0
        self._tries = 0
        self._not_before = 0.0

    def announced(self, announcement: Announcement | None, now: float) -> None:
        """Take the newest announcement."""
        if announcement is None or (self.latest is not None and announcement.ordinal <= self.latest.ordinal):
            return
        self.latest = announcement
        self._tries, self._not_before = 0, 0.0
        if announcement.ordinal > self.settled_ordinal:
            self._saved(announcement.name, now)

    def scanned(self, signature: str, now: float, *, writer: bool, touched: Iterable[str] = ()) -> None:
        """Take the state of the tree; *writer*: somebody has a file in it open for writing; *touched*: paths that differ from the last scan."""
        for path in touched:
            self._touched.setdefault(path, now)
        if signature != self.signature:
            self.signature = signature
            self._changed_at = now
            if self._dirty_since is None:
                self._dirty_since = now
        if writer:
            self._changed_at = now  # an open file is a change that has not come yet; it ends five seconds after the last sight of it

    @property
    def may_be_quiet(self) -> bool:
        """Whether the answer to *writer* matters at the next scan: the tree is new and the job never announces."""
        return self.latest is None and self.signature not in ("", self.settled_signature)

    def quiet(self, now: float) -> bool:
        """Whether the tree has been at rest long enough."""
        return self._changed_at is None or now - self._changed_at >= QUIET_S

    @property
    def saving_since(self) -> float | None:
        """When a save that is not complete yet seems to have begun, None where none is seen."""
        return min(self._touched.values()) if self._touched else None

    def end(self, trigger: str, now: float, *, succeeded: bool) -> None:
        """The job is gone. After a success the tree is complete as it is; after a crash only if it was at rest before."""
        if self.ended is None:
            self._trusted_end = succeeded or self.quiet(now)
        self.ended = trigger
        self._tries, self._not_before = 0, 0.0

    def next(self, now: float) -> Candidate | None:
        """Return the newest checkpoint worth committing; older ones that were overtaken are never asked for."""
        return self.pending(now) if now >= self._not_before else None

    def pending(self, now: float) -> Candidate | None:
        """Return the same, also while one that changed is given a moment to come to rest: it is not committed, and not given up."""
        if self._tries >= _MOST_TRIES:
            return None
        if self.latest is not None:
            if self.latest.ordinal <= self.settled_ordinal:
                return None
            return Candidate(
                self.latest.name,
                self.latest.step,
                self.ended or "announced",
                self.latest.ordinal,
                self.signature,
                self._save_s,
            )
        if self.signature in ("", self.settled_signature):
            return None
        if not (self._trusted_end if self.ended is not None else self.quiet(now)):
            return None
        saved = 0.0 if self._dirty_since is None or self._changed_at is None else self._changed_at - self._dirty_since
        return Candidate(None, None, self.ended or "quiet", None, self.signature, saved)

    def settled(self, candidate: Candidate) -> None:
        """*candidate* is committed, or never will be."""
        if candidate.ordinal is not None:
            self.settled_ordinal = max(self.settled_ordinal, candidate.ordinal)
        else:
            self.settled_signature = candidate.signature
            self._sample(candidate.save_s)
            self._dirty_since = None
            self._touched = {}
        if self.latest is None or candidate.ordinal == self.latest.ordinal:
            self._tries = 0

    def discarded(self, candidate: Candidate, now: float) -> None:
        """*candidate* changed while it was read: the next announcement or rest, or a later look, brings another. One overtaken costs no try."""
        newest = self.latest is not None and candidate.ordinal == self.latest.ordinal
        if newest or (candidate.ordinal is None and self.ended is not None):
            self._tries += 1
            self._not_before = now + _RETRY_S
        elif candidate.ordinal is None:
            self._changed_at = now

    def _saved(self, name: str, now: float) -> None:
        """Measure the save of *name*: from the first change seen below it. Other files (logs beside it) must not count as saving."""
        below = "" if name in ("", ".") else name.rstrip("/")
        begun = [at for path, at in self._touched.items() if path == below or path.startswith(f"{below}/")]
        self._save_s = now - min(begun) if begun else 0.0
        self._touched = {}
        self._dirty_since = None
        self._sample(self._save_s)

    def _sample(self, seconds: float) -> None:
        self.saves = [*self.saves, seconds][-_SAMPLES:]
