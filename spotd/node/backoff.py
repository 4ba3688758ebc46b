"""How long to wait before saying something again."""

from __future__ import annotations

import random
from typing import Callable


class Backoff:
    """Waits that double from *first_s* to *most_s*, each drawn from the upper half of its range.

    The jitter keeps a thousand instances from knocking on a restarted daemon in the same second.
    """

    def __init__(self, first_s: float = 0.5, most_s: float = 30.0, draw: Callable[[], float] = random.random) -> None:
        """Draw is a source of numbers in [0, 1)."""
        self._first_s = first_s
        self._most_s = most_s
        self._draw = draw
        self._failures = 0

    def failed(self) -> float:
        """Seconds to wait after one more failure."""
        limit = min(self._most_s, self._first_s * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return limit * (0.5 + 0.5 * self._draw())

    def succeeded(self) -> None:
        """Start again from the shortest wait."""
        self._failures = 0
