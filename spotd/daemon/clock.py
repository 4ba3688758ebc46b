"""The real clock, which does not jump while the daemon lives.

Time-outs, cooldowns and the ten minutes of the fence are differences of `now()`, so a step of the wall clock (NTP, an operator, a resumed
machine) must not make ten minutes pass in a second. `now()` is the wall time at the start plus what CLOCK_BOOTTIME has counted since (it counts
suspended time too). A wall clock that disagrees for long is followed slowly: at most `_SLEW` seconds per second.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime

#: How much of a second per second the anchored clock may lean towards the wall clock.
_SLEW = 0.05


class SystemClock:
    """Implements `ports.Clock`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mono = _boottime()
        self._wall = time.time()

    def now(self) -> datetime:
        """Aware UTC, never jumping."""
        with self._lock:
            mono, wall = _boottime(), time.time()
            passed = mono - self._mono
            anchored = self._wall + passed
            lean = max(-_SLEW * passed, min(_SLEW * passed, wall - anchored))
            self._mono, self._wall = mono, anchored + lean
            return datetime.fromtimestamp(self._wall, UTC)

    def monotonic(self) -> float:
        """Seconds that only go forward."""
        return time.monotonic()

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Wait for the event, at most so long."""
        return event.wait(timeout)


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
