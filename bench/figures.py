"""One measured figure, and tables of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured, as it was seen."""

    part: str
    what: str
    value: float
    unit: str
    #: What we aim at, as text; empty where there is no aim.
    aim: str = ""
    note: str = ""

    @property
    def shown(self) -> str:
        """The value with as many digits as it can bear."""
        digits = 0 if abs(self.value) >= 100 else 1 if abs(self.value) >= 10 else 3
        return f"{self.value:,.{digits}f} {self.unit}"


def table(figures: Sequence[Figure]) -> str:
    """A Markdown table."""
    lines = ["| part | what | measured | aim | note |", "|---|---|---|---|---|"]
    lines += [f"| {f.part} | {f.what} | {f.shown} | {f.aim} | {f.note} |" for f in figures]
    return "\n".join(lines)
