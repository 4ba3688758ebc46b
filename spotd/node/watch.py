"""The thread that asks a metadata server again and again."""

from __future__ import annotations

import random
import threading
from typing import Callable, Protocol

from spotd.node.clock import Clock
from spotd.node.notices import Observation
from spotd.node.voice import say

_ALERT_AFTER = 3  # looks without an answer; facts/reclaim.md §1.3


class Watcher(Protocol):
    """One cloud's way to ask. `look` raises OSError where there was no usable answer."""

    source: str

    def look(self) -> Observation:
        """Ask once, within a few seconds."""
        ...


class Watch:
    """Looks every *poll_s* seconds with jitter, for ever: neither errors nor silence end it. *seen* takes each observation."""

    def __init__(self, watcher: Watcher, poll_s: float, clock: Clock, seen: Callable[[Observation], None]) -> None:
        self._watcher = watcher
        self._poll_s = poll_s
        self._clock = clock
        self._seen = seen
        self._stop = threading.Event()
        #: Looks in a row without a usable answer.
        self.unknown = 0

    def start(self) -> None:
        """Begin looking."""
        threading.Thread(target=self._loop, name="watch", daemon=True).start()

    def stop(self) -> None:
        """End looking."""
        self._stop.set()

    def step(self) -> None:
        """Look once. Never raises."""
        try:
            observation = self._watcher.look()
        except Exception as error:  # noqa: BLE001 - "unknown" is a value; a watcher that died would be a notice missed
            self.unknown += 1
            if self.unknown == _ALERT_AFTER:
                say(f"{self._watcher.source}: no answer {self.unknown} times, reclaims may go unseen: {error}")
            return
        self.unknown = 0
        self._seen(observation)

    def _loop(self) -> None:
        while not self._stop.is_set():
            begun = self._clock.monotonic()
            self.step()
            # Never later than promised; the jitter is so that a thousand instances do not ask in step.
            pause = self._poll_s * random.uniform(0.8, 1.0)  # noqa: S311
            self._clock.wait(self._stop, max(0.0, begun + pause - self._clock.monotonic()))
