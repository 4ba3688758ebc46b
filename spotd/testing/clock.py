"""A clock that moves only when it is told to."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

#: When a FakeClock begins unless told otherwise.
START = datetime(2026, 1, 1, tzinfo=UTC)
#: How soon (real seconds) `wait` sees that its event was set. That time has come it learns at once.
_GLANCE_S = 0.002


class FakeClock:
    """Implements `ports.Clock` without time: `step` is the only thing that lets any pass. May be used by several threads."""

    def __init__(self, start: datetime = START) -> None:
        if start.tzinfo is None:
            raise ValueError("A clock's time is aware: give its start a time zone.")
        self._stepped = threading.Condition()
        self._wall = start.astimezone(UTC)
        self._monotonic = 0.0

    def now(self) -> datetime:
        """The time stepped to: aware, UTC."""
        with self._stepped:
            return self._wall

    def monotonic(self) -> float:
        """Seconds stepped so far; a jump of the wall clock does not show here."""
        with self._stepped:
            return self._monotonic

    def step(self, seconds: float) -> None:
        """Let time pass, for both clocks. Waits that are over by then return."""
        if seconds < 0:
            raise ValueError(f"Time does not run backwards: {seconds} s. To set the wall clock back, use `jump`.")
        with self._stepped:
            self._monotonic += seconds
            self._wall += timedelta(seconds=seconds)
            self._stepped.notify_all()

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock, forward or back: no time passes."""
        with self._stepped:
            self._wall += timedelta(seconds=seconds)

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Wait until the event is set or the clock was stepped past the timeout; whether it is set.

        A timeout of None waits for the event alone. Who waits is another thread than the one that steps: alone it would wait for ever.
        """
        with self._stepped:
            end = None if timeout is None else self._monotonic + timeout
            while not event.is_set() and (end is None or self._monotonic < end):
                self._stepped.wait(_GLANCE_S)
        return event.is_set()
