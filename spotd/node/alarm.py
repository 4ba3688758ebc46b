"""What warns this instance, and the telling of it: notices of the provider, of the OS, and of the agent's own leases."""

from __future__ import annotations

import threading
from collections.abc import Callable

from spotd.node.clock import Clock
from spotd.node.journal import Journal
from spotd.node.notices import Notice, NoticeBook, Observation
from spotd.node.places import Places
from spotd.node.voice import say


class Alarm:
    """The notices in force. Each is in the journal, to be said to the daemon, before anything else is done about it. Thread-safe."""

    def __init__(self, instance: str, notice_s: float, places: Places, journal: Journal, clock: Clock, wake: Callable[[], None]) -> None:
        self._places = places
        self._journal = journal
        self._clock = clock
        self._wake = wake
        self._lock = threading.Lock()
        self._book = NoticeBook(instance, notice_s, journal.get("notices"))

    def seen(self, observation: Observation) -> None:
        """Fold one look at the metadata server in."""
        with self._lock:
            now = self._clock.monotonic()
            news = self._book.fold(observation, now)
            kept = self._book.to_json()
            for notice in news.said:
                left = None if notice.deadline_at is None else round(max(0.0, notice.deadline_at - now), 3)
                fields = {"notice_id": notice.id, "kind": notice.kind, "source": notice.source, "action": notice.action, "seconds_left": left}
                self._journal.say("notice", fields, notices=kept)
                if notice.kind == "rebalance" and self._journal.get("drain") is None:
                    self._hint(notice)
            for notice in news.cancelled:
                self._journal.say("notice_cancelled", {"notice_id": notice.id, "kind": notice.kind}, notices=kept)
        if news.said or news.cancelled:
            self._wake()

    def stopping(self) -> Notice | None:
        """The provider's notice that the job must be stopped for now, if there is one."""
        with self._lock:
            return self._book.stopping(self._clock.monotonic())

    def own(self, name: str, source: str, action: str, seconds: float) -> float:
        """Warn, once per *name*, of what does not come from the provider; the deadline, as it was first set."""
        deadline_at = self._clock.monotonic() + seconds
        fields = {"notice_id": name, "kind": "shutdown", "source": source, "action": action, "seconds_left": seconds}
        if self._journal.say("notice", fields, once=f"notice {name}", **{f"{name}_at": deadline_at}):
            self._wake()
        return float(self._journal.get(f"{name}_at"))

    def _hint(self, notice: Notice) -> None:
        try:
            self._places.write_notice("hint", None, None, notice.source, notice.id)
        except OSError as error:
            say(f"the notice file cannot be written: {error}")
