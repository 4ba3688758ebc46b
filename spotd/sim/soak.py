"""`python -m spotd.sim.soak --seeds A-B`: any number of seeds on all cores, and for each failure a shrunk story that can be played again."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from spotd.sim.shrink import shrink
from spotd.sim.world import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHUNK = 20
#: Where nobody sees a bar: a line for a log.
_SAY_EVERY = 500
#: Failures that are shrunk; the others are named.
_MOST_STORIES = 5


@dataclass(frozen=True, slots=True)
class Seen:
    """What is kept of one seed."""

    seed: int
    broken: str
    text: str
    virtual_s: float
    steps: int
    machines: int
    outcomes: tuple[str, ...]


def look(seed: int) -> Seen:
    """Run one seed. Whatever is raised is a failure of that seed, not of the soak."""
    try:
        result = simulate(seed)
    except Exception as error:  # noqa: BLE001 - a crash of the simulator is reported with its seed like any other failure
        return Seen(seed, "simulator", f"{type(error).__name__}: {error}", 0.0, 0, 0, ())
    first = result.violations[0] if result.violations else None
    return Seen(
        seed,
        "" if first is None else first.rule,
        "" if first is None else first.text,
        result.virtual_s,
        result.steps,
        result.launches,
        tuple(result.outcomes.values()),
    )


def seeds_of(text: str) -> range:
    """`N` is 1 to N, `A-B` is from A to B."""
    first, dash, last = text.partition("-")
    try:
        return range(int(first), int(last) + 1) if dash else range(1, int(first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor a range such as 1-200") from None


def soak(seeds: range, jobs: int, console: Console) -> list[Seen]:
    """Run them all, showing how far it is."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    found: list[Seen] = []
    with multiprocessing.get_context("fork").Pool(jobs) as pool, Progress(*columns, console=console) as progress:
        task = progress.add_task(f"seeds {seeds.start}-{seeds.stop - 1}", total=len(seeds))
        for seen in pool.imap_unordered(look, seeds, _CHUNK):
            found.append(seen)
            if seen.broken:
                console.print(f"seed {seen.seed}: {seen.broken}: {seen.text}", markup=False)
            progress.advance(task)
            if not console.is_terminal and len(found) % _SAY_EVERY == 0:
                console.print(f"{len(found)} of {len(seeds)} seeds, {sum(bool(s.broken) for s in found)} failures")
    return found


def report(found: Sequence[Seen], took_s: float, jobs: int, console: Console) -> None:
    """Figures of the whole."""
    days = sum(seen.virtual_s for seen in found) / 86400.0
    outcomes = Counter(outcome for seen in found for outcome in seen.outcomes)
    failures = Counter(seen.broken for seen in found if seen.broken)
    console.print(
        f"{len(found)} seeds in {took_s:.0f} s with {jobs} processes ({len(found) / took_s:.1f} a second): "
        f"{days:.0f} simulated days, {sum(s.machines for s in found)} machines, {sum(s.steps for s in found)} steps; "
        f"jobs: {dict(outcomes)}; {sum(failures.values())} failures {dict(failures) if failures else ''}",
        markup=False,
    )


def tell(seen: Seen, console: Console) -> None:
    """A failure, made as small as it gets."""
    result, left_out = shrink(seen.seed)
    again = f"spotd sim replay {seen.seed}" + (f" --without {','.join(left_out)}" if left_out else "")
    console.print(f"\nseed {seen.seed} breaks {seen.broken}; what is left: {result.draws.told()}", markup=False)
    for violation in result.violations[:1]:
        console.print(f"  {violation.text}", markup=False)
    console.print(f"  {again}", markup=False)


def main(argv: Sequence[str] | None = None) -> int:
    """0 if no seed broke a rule."""
    parser = argparse.ArgumentParser(prog="python -m spotd.sim.soak", description="Run the simulated world under faults, seed by seed.")
    parser.add_argument("--seeds", type=seeds_of, default=seeds_of("200"), metavar="N|A-B", help="1 to N, or from A to B (default 200)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    arguments = parser.parse_args(argv)
    console = Console()
    began = time.monotonic()
    found = soak(arguments.seeds, arguments.jobs, console)
    report(found, time.monotonic() - began, arguments.jobs, console)
    failures = sorted((seen for seen in found if seen.broken), key=lambda seen: seen.seed)
    for seen in failures[:_MOST_STORIES]:
        if seen.broken != "simulator":
            tell(seen, console)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
