"""A simulated year without faults but the market's: one-day jobs spread over it, for the bench (`python -m spotd.sim.year`)."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spotd.sim.draws import Draws
from spotd.sim.shelf import Work
from spotd.sim.timeline import DAY, HOUR
from spotd.sim.world import Simulation

if TYPE_CHECKING:
    from collections.abc import Sequence

_YEAR_DAYS = 365
#: Reclaims as often as in the recorded V100 market: a mean life of 3.2 h (facts/placement.md §5.3).
_YEAR = Draws(
    jobs=0,
    regions=3,
    zones=2,
    checkpoint_s=1800.0,
    observe_s=600.0,
    prices_s=3600.0,
    boot_s=120.0,
    price_moves_per_day=4.0,
    reclaims_per_day=7.5,
    notice_none=0.05,
    no_capacity=0.05,
)


@dataclass(frozen=True, slots=True)
class Year:
    """What a year took and what became of it."""

    jobs: int
    days: float
    outcomes: dict[str, int]
    machines: int
    preemptions: int
    steps: int
    violations: tuple[str, ...]
    took_s: float
    #: Of one core: what the bench compares, since a machine may have others to serve.
    cpu_s: float


def play(jobs: int, days: float = _YEAR_DAYS, seed: int = 1) -> Year:
    """Submit that many one-day jobs at equal distances, and play until the last one is finished and nothing is left."""
    began, cpu = time.perf_counter(), time.process_time()
    faults_end_s = (days + 30.0) * DAY
    sim = Simulation(seed, replace(_YEAR, fault_hours=faults_end_s / HOUR))
    sim.begin()
    for number in range(1, jobs + 1):
        work = Work(f"job-{number}", f"day-{number}", int(DAY), 1800.0, 20.0, 10.0, 15.0, 30.0)
        sim.works[work.job_id] = work
        sim.timeline.at(number * days * DAY / jobs, lambda work=work: sim.users.submit(work))  # type: ignore[misc]  # bound now
    sim.timeline.run(faults_end_s, sim.at_rest)
    if not sim.at_rest():
        sim.checks.violated("converges", f"{jobs - len(sim.submitted)} jobs were not submitted, or some did not finish")
    sim.checks.at_end()
    return Year(
        jobs=jobs,
        days=sim.timeline.now_s / DAY,
        outcomes=dict(Counter(str(job.outcome) for job in sim.store.jobs.values())),
        machines=len(sim.cloud.machines),
        preemptions=sum(attempt.preempted_at is not None for attempt in sim.store.attempts.values()),
        steps=sim.host.steps,
        violations=tuple(f"{violation.rule}: {violation.text}" for violation in sim.checks.violations),
        took_s=time.perf_counter() - began,
        cpu_s=time.process_time() - cpu,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Play it and say how long it took."""
    parser = argparse.ArgumentParser(prog="python -m spotd.sim.year", description="One-day jobs spread over a simulated year.")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--days", type=float, default=_YEAR_DAYS)
    arguments = parser.parse_args(argv)
    year = play(arguments.jobs, arguments.days)
    print(
        f"{year.jobs} jobs over {year.days:.0f} simulated days in {year.took_s:.1f} s, {year.cpu_s:.1f} s of CPU "
        f"({year.jobs / year.cpu_s:.1f} job-days per second of CPU): "
        f"{year.machines} machines, {year.preemptions} preemptions, {year.steps} steps, {year.outcomes}"
    )
    for violation in year.violations:
        print(f"VIOLATION {violation}")
    return 1 if year.violations else 0


if __name__ == "__main__":
    sys.exit(main())
