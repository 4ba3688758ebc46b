"""Waiting, within the time that a self-test has."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from spotd_aws.trial_report import Failed

_Thing = TypeVar("_Thing")


@dataclass(slots=True)
class Pace:
    """A clock with an end. Times are seconds."""

    limit_s: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    every_s: float = 1.0
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    @property
    def left_s(self) -> float:
        """How much time is left."""
        return self.began + self.limit_s - self.clock()

    def until(self, ask: Callable[[], _Thing | None], what: str, within_s: float | None = None) -> _Thing:
        """The first answer that says something (neither None nor False). Failed when the time is over first."""
        began, given = self.clock(), self.left_s if within_s is None else min(within_s, self.left_s)
        while True:
            answer = ask()
            if answer is not None and answer is not False:
                return answer
            if self.clock() - began >= given:
                whole = "" if self.left_s > 0 else ", and the time limit is reached (--timeout)"
                raise Failed(f"{what}: not within {max(given, 0):.0f} s{whole}")
            self.sleep(self.every_s)
