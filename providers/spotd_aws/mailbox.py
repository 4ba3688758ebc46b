"""What was delivered, handed out and acknowledged. No threads, no AWS: the caller holds a lock, and says what time it is (monotonic, seconds)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from spotd.core.notice import Notice, NoticeKind

#: A notice of the listing that was handed out so long ago and is not acknowledged could not be recorded: it is handed out again.
_AGAIN_S = 30.0
#: Messages live in the queue for five minutes; what was acknowledged of the listing's is remembered for as long as it may be listed.
_FORGET_MESSAGE_S, _FORGET_SEEN_S = 900.0, 86_400.0


class Key(NamedTuple):
    """Which letter: a message by its region and id, or something that a listing showed."""

    region: str
    id: str


class Subject(NamedTuple):
    """What a notice is about: one letter may tell of several instances."""

    provider_id: str
    kind: NoticeKind


@dataclass(frozen=True, slots=True)
class Slip:
    """What it takes to delete a message: the queue, and the newest receipt of this message."""

    key: Key
    queue_url: str
    receipt: str


@dataclass(slots=True)
class _Letter:
    slip: Slip | None
    #: What is not acknowledged yet.
    left: dict[Subject, Notice]
    touched_at: float
    #: Not handed out since it came.
    waiting: bool = True


class Mailbox:
    """Letters with notices. One that is not acknowledged is handed out again when it is delivered again, and never twice in between."""

    def __init__(self) -> None:
        self._letters: dict[Key, _Letter] = {}

    def deliver(self, slip: Slip, notices: Iterable[tuple[str, Notice]], now: float) -> Slip | None:
        """A message came, for the first time or again. A slip: it was acknowledged before and could not be deleted then."""
        self._forget(now)
        letter = self._letters.get(slip.key)
        if letter is None:
            left = {Subject(provider_id, notice.kind): notice for provider_id, notice in notices}
            self._letters[slip.key] = _Letter(slip, left, now)
            return None
        # The receipt of the newest delivery is the one that is sure to be taken (facts/reclaim.md §1.7).
        letter.slip, letter.touched_at = slip, now
        if not letter.left:
            return slip
        letter.waiting = True
        return None

    def saw(self, provider_id: str, notice: Notice, now: float) -> bool:
        """A listing shows it; whether that is news."""
        self._forget(now)
        key = Key("", f"{provider_id} {notice.kind} {notice.deadline}")
        letter = self._letters.get(key)
        if letter is None:
            self._letters[key] = _Letter(None, {Subject(provider_id, notice.kind): notice}, now)
            return True
        if not letter.left or letter.waiting or now - letter.touched_at < _AGAIN_S:
            return False
        letter.waiting = True
        return True

    def take(self, now: float) -> list[tuple[Key, Subject, Notice]]:
        """Everything that waits, oldest first; it waits no more."""
        taken: list[tuple[Key, Subject, Notice]] = []
        for key, letter in self._letters.items():
            if letter.waiting:
                letter.waiting, letter.touched_at = False, now
                taken += [(key, subject, notice) for subject, notice in letter.left.items()]
        return taken

    def acknowledge(self, key: Key, subject: Subject) -> Slip | None:
        """One notice is safe. A slip: it was the last of its message, which can be deleted."""
        letter = self._letters.get(key)
        if letter is None or letter.left.pop(subject, None) is None or letter.left:
            return None
        letter.waiting = False
        return letter.slip

    def deleted(self, key: Key) -> None:
        """The message is gone from its queue."""
        self._letters.pop(key, None)

    def _forget(self, now: float) -> None:
        old = [k for k, one in self._letters.items() if now - one.touched_at > (_FORGET_SEEN_S if one.slip is None else _FORGET_MESSAGE_S)]
        for key in old:
            del self._letters[key]
