"""Virtual time: a heap of what happens next. Nothing sleeps; a day without events costs nothing."""

from __future__ import annotations

import heapq
import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

#: When every simulation begins.
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = 3600.0
DAY = 86400.0
#: How fast the daemon's clock leans towards a wall clock that was stepped (daemon.clock.SystemClock).
_SLEW = 0.05


def stamp(seconds: float) -> datetime:
    """The instant so many seconds after the beginning."""
    return EPOCH + timedelta(seconds=seconds)


class Timeline:
    """What happens, in order. Two things of one instant happen in the order in which they were scheduled, never by chance."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def now(self) -> datetime:
        """The true time."""
        return EPOCH + timedelta(seconds=self.now_s)

    def at(self, when_s: float, action: Callable[[], None]) -> None:
        """Do this then; never in the past."""
        self._count += 1
        heapq.heappush(self._heap, (max(when_s, self.now_s), self._count, action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do this in so many seconds."""
        self.at(self.now_s + delay_s, action)

    def run(self, until_s: float, over: Callable[[], bool]) -> None:
        """Let things happen until then, or until it is over."""
        heap = self._heap
        while heap and not over():
            when_s, _, action = heap[0]
            if when_s > until_s:
                break
            heapq.heappop(heap)
            self.now_s = when_s
            action()
        else:
            if over():
                return
        self.now_s = max(self.now_s, until_s)


class DaemonClock:
    """The daemon's clock (`ports.Clock`): true time plus an error that grows no faster than SystemClock lets it.

    A wall clock that is stepped is followed slowly while the daemon lives; a daemon that starts afterwards begins with the stepped time.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._offset_s = 0.0
        self._as_of_s = 0.0
        self._wall_offset_s = 0.0

    def step_wall(self, seconds: float) -> None:
        """Somebody steps the wall clock of the daemon's host."""
        self.offset_s()
        self._wall_offset_s += seconds

    def mend_wall(self) -> None:
        """The wall clock is right again."""
        self.offset_s()
        self._wall_offset_s = 0.0

    def restart(self) -> None:
        """A new daemon reads the wall clock once."""
        self._offset_s, self._as_of_s = self._wall_offset_s, self._timeline.now_s

    def offset_s(self) -> float:
        """How wrong the daemon's time is now."""
        passed = self._timeline.now_s - self._as_of_s
        if passed > 0.0:
            lean = self._wall_offset_s - self._offset_s
            if lean:
                self._offset_s += math.copysign(min(abs(lean), _SLEW * passed), lean)
            self._as_of_s = self._timeline.now_s
        return self._offset_s

    def now(self) -> datetime:
        """What the daemon takes for the time."""
        return EPOCH + timedelta(seconds=self._timeline.now_s + self.offset_s())

    def true_s(self, instant: datetime) -> float:
        """When the daemon's clock will show this, if it goes on as it does."""
        return (instant - EPOCH).total_seconds() - self.offset_s()

    def monotonic(self) -> float:
        """Seconds that only go forward."""
        return self._timeline.now_s

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Nothing waits in virtual time."""
        del timeout
        return event.is_set()
