"""A clock that moves only when a test says so."""

from __future__ import annotations

import threading


class SteppedClock:
    """Sleeping steps it, so that nothing waits."""

    def __init__(self, now: float = 1000.0, epoch: float = 1_800_000_000.0) -> None:
        self.now = now
        self.wall = epoch

    def step(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.wall += seconds

    def monotonic(self) -> float:
        """See spotd.node.clock."""
        return self.now

    def epoch(self) -> float:
        """See spotd.node.clock."""
        return self.wall

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Pass the time at once."""
        self.step(max(0.0, seconds))
        return event.is_set()
