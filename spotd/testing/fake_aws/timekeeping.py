"""Time in the fake: a real clock for manual play, and the agenda of what is due when."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime


class WallClock:
    """Implements `ports.Clock` with the machine's own time."""

    def now(self) -> datetime:
        """Aware, UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that only go forward."""
        return time.monotonic()

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Whether the event was set within so many seconds."""
        return event.wait(timeout)


class Agenda:
    """What will happen, each at its time. Nothing runs by itself: `catch_up` is called with every request."""

    def __init__(self) -> None:
        self._due: list[tuple[datetime, int, Callable[[datetime], None]]] = []
        self._order = itertools.count()

    def at(self, moment: datetime, what: Callable[[datetime], None]) -> None:
        """Let it happen then; it is told the moment for which it was set, not the one at which it is called."""
        heapq.heappush(self._due, (moment, next(self._order), what))

    def catch_up(self, now: datetime) -> None:
        """Let happen what is due by now, in the order of its times; that may set more."""
        while self._due and self._due[0][0] <= now:
            moment, _, what = heapq.heappop(self._due)
            what(moment)
