"""Growing waits: the one place that computes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta

#: Doubling beyond this is past every cap in use, and keeps the arithmetic of timedelta in range.
_MOST_DOUBLINGS = 16


def doubled(first: timedelta, times: int, longest: timedelta) -> timedelta:
    """`first`, doubled `times` times (none below 1), at most `longest`."""
    factor: int = 1 << min(max(times, 0), _MOST_DOUBLINGS)
    return min(first * factor, longest)
