"""Time as a port, so that tests step it."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """The two clocks an agent reads, and the only way it sleeps."""

    def monotonic(self) -> float:
        """Seconds since the machine booted; never goes back, counts while suspended."""
        ...

    def epoch(self) -> float:
        """Seconds since 1970 by the instance's own wall clock, which may be wrong: for display and for what users read only."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Sleep up to *seconds*, less if *event* is set; whether it is set."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """CLOCK_BOOTTIME: the same for every process of one boot, so stamps written to disk outlive the agent's process."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def epoch(self) -> float:
        """The wall clock."""
        return time.time()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Sleep on *event*."""
        return event.wait(max(0.0, seconds))
