"""Chance by name: one stream per kind of question, so that a question asked once more in one place shifts no answer in another."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeVar

    _T = TypeVar("_T")


class Dice:
    """All chance of one run. Seeds are strings: Python hashes those the same way in every version since 3.2."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, random.Random] = {}

    def stream(self, name: str) -> random.Random:
        """The stream of this name, going on from where it was."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = random.Random(f"{self.seed}/{name}")
        return found

    def chance(self, name: str, probability: float) -> bool:
        """Whether it happens. What never happens draws nothing."""
        return probability > 0.0 and self.stream(name).random() < probability

    def between(self, name: str, low: float, high: float) -> float:
        """A number from a range."""
        return low + (high - low) * self.stream(name).random()

    def choice(self, name: str, values: Sequence[_T]) -> _T:
        """One of these."""
        return values[int(self.stream(name).random() * len(values))]

    def times(self, name: str, per_day: float, until_s: float) -> list[float]:
        """When something happens that happens so often a day, at random moments."""
        if per_day <= 0.0:
            return []
        stream = self.stream(name)
        found: list[float] = []
        now = stream.expovariate(per_day / 86400.0)
        while now < until_s:
            found.append(now)
            now += stream.expovariate(per_day / 86400.0)
        return found
