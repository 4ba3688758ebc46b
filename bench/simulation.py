"""How fast the simulated world runs: a year of one-day jobs, and seeds of the soak."""

from __future__ import annotations

import time

from bench.figures import Figure
from spotd.sim.soak import look
from spotd.sim.year import play

JOBS, DAYS, SEEDS = 1000, 365, 200


def measure() -> list[Figure]:
    """A simulated year on one core, and two hundred runs under drawn faults."""
    year = play(JOBS, DAYS)
    if year.violations:
        raise RuntimeError(f"the simulated year broke a rule: {year.violations[0]}")
    begin = time.perf_counter()
    broken = [seen for seen in map(look, range(1, SEEDS + 1)) if seen.broken]
    took = time.perf_counter() - begin
    if broken:
        raise RuntimeError(f"seed {broken[0].seed} broke a rule")
    note = f"{year.machines} machines, {year.preemptions} preemptions, one core"
    return [
        Figure("simulation", f"{JOBS} one-day jobs over a simulated year", year.took_s, "s", "< 300", note),
        Figure("simulation", "job-days simulated per second", year.jobs / year.took_s, "/s"),
        Figure("simulation", "seeds under drawn faults per second", SEEDS / took, "/s", "", f"{SEEDS} seeds, one core"),
    ]
