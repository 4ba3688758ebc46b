"""Ctrl-C, SIGTERM and SIGHUP: noted when they come, answered where it is safe, so that what was begun is always ended."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """Somebody wants the demonstration to end."""


class Curtain:
    """While this context is open a signal interrupts no line of ours: `check` and `pause` raise Interrupted instead."""

    def __init__(self) -> None:
        self.falls = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        """Take the signals over."""
        for number in _SIGNALS:
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # as nohup wants it
            self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        """Give them back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise Interrupted if a signal has come."""
        if self.falls:
            raise Interrupted

    def pause(self, seconds: float) -> None:
        """Sleep in short pieces, awake to signals."""
        until = time.monotonic() + seconds
        while True:
            self.check()
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.1))

    def _heard(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.falls = True
