"""What the trainer itself wrote down of every step, on whichever machine it ran: evidence that nothing of spotd has passed through."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Stint:
    """One process's steps without another's between them. Times are of the machine's monotonic clock."""

    pid: int
    first: int
    last: int
    began: float
    ended: float


def read(path: Path) -> list[Stint]:
    """Every stint, in the order in which the steps were trained."""
    rows: list[tuple[float, int, int]] = []
    text = path.read_text() if path.exists() else ""
    for line in text.splitlines():
        who, when, what = line.split()
        rows.append((float(when), int(who), int(what)))
    stints: list[Stint] = []
    for at, pid, step in sorted(rows):
        if stints and stints[-1].pid == pid:
            stints[-1] = Stint(pid, stints[-1].first, step, stints[-1].began, at)
        else:
            stints.append(Stint(pid, step, step, at, at))
    return stints


def redone(stints: list[Stint]) -> int:
    """Steps that were trained twice: from the last step of one stint back to where the next began."""
    return sum(max(before.last - after.first + 1, 0) for before, after in pairwise(stints))


def skipped(stints: list[Stint]) -> int:
    """Steps that nobody trained."""
    return sum(max(after.first - before.last - 1, 0) for before, after in pairwise(stints))


def overlapping(stints: list[Stint]) -> list[int]:
    """Processes that trained between another's steps: two workloads at once."""
    seen: set[int] = set()
    again: list[int] = []
    for stint in stints:
        if stint.pid in seen:
            again.append(stint.pid)
        seen.add(stint.pid)
    return again
