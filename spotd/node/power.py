"""The way to switch the machine off."""

from __future__ import annotations

import subprocess

from spotd.node.backoff import Backoff
from spotd.node.clock import Clock
from spotd.node.voice import say

_TIMEOUT_S = 60.0


class Power:
    """Runs the operator's power-off command; without one, leaving is all there is to do."""

    def __init__(self, command: str | None, clock: Clock) -> None:
        self._command = command
        self._clock = clock
        self._backoff = Backoff(1.0, 60.0)
        self._not_before = 0.0

    def off(self, why: str) -> bool:
        """Switch off because of *why*; False when that did not work and is to be tried again later."""
        if self._clock.monotonic() < self._not_before:
            return False
        say(f"powering off: {why}")
        if self._command is None:
            return True
        try:
            ended = subprocess.run(["bash", "-c", self._command], stdin=subprocess.DEVNULL, timeout=_TIMEOUT_S, check=False)
            if ended.returncode == 0:
                return True
            problem = f"exit {ended.returncode}"
        except (OSError, subprocess.SubprocessError) as error:
            problem = str(error)
        say(f"power-off command: {problem}")
        self._not_before = self._clock.monotonic() + self._backoff.failed()
        return False
