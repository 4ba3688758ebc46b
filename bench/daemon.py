"""The daemon and the command line: start, memory, and what a verb costs."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

from bench.figures import Figure
from bench.stage import Stage, stage
from spotd.core.events import JobSubmitted
from spotd.core.fold import fold
from spotd.core.job import Job, JobSpec
from spotd.core.world import World
from spotd.daemon.store import SqlStore

JOBS, STARTS, VERB_RUNS = 1000, 5, 15


def _fill(found: Stage) -> None:
    """A thousand unfinished jobs in the store, of a policy that does not exist, so that the daemon holds them all and is otherwise idle."""
    state = found.root / "state"
    state.mkdir(mode=0o700)
    now = datetime.now(UTC) - timedelta(hours=1)
    jobs = [Job(f"{n:08x}-0000-4000-8000-000000000000", JobSpec(f"job-{n}", "absent", "true"), "alice", now, spot_since=now) for n in range(JOBS)]
    events = [JobSubmitted(now, job) for job in jobs]
    _, changes = fold(World("bench"), events)
    store = SqlStore.open(state / "spotd.db", "bench")
    store.commit(events, changes)
    store.close()


def _verb(found: Stage, *words: str) -> tuple[float, float]:
    """Median CPU and wall seconds of a verb as a whole process."""
    cpu, wall = [], []
    for _ in range(VERB_RUNS):
        begin = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-m", "spotd.cli.main", *words], stdout=subprocess.DEVNULL, env=found.environment)
        _, status, usage = os.wait4(process.pid, 0)
        wall.append(time.perf_counter() - begin)
        cpu.append(usage.ru_utime + usage.ru_stime)
        if status != 0:
            raise RuntimeError(f"spotd {' '.join(words)} ended with status {status}")
    return statistics.median(cpu), statistics.median(wall)


def measure() -> list[Figure]:
    """Start with 1,000 jobs in the store, idle memory, and two verbs."""
    with stage() as found:
        _fill(found)
        starts = []
        for _ in range(STARTS):
            starts.append(found.start())
            if len(starts) < STARTS:
                found.stop()
        time.sleep(8)
        memory = found.resident_mb()
        jobs_cpu, jobs_wall = _verb(found, "jobs")
        help_cpu, help_wall = _verb(found, "--help")
    note = f"{JOBS} jobs in the store"
    return [
        Figure("daemon", "start to first answered request", statistics.median(starts), "s", "< 1.5", f"{note}, median of {STARTS}"),
        Figure("daemon", "resident memory, idle", memory, "MB", "< 120", note),
        Figure("command line", "spotd jobs, CPU", jobs_cpu, "s", "< 0.15", f"median of {VERB_RUNS}, whole process"),
        Figure("command line", "spotd jobs, wall", jobs_wall, "s"),
        Figure("command line", "spotd --help, CPU", help_cpu, "s", "< 0.15", f"median of {VERB_RUNS}, whole process"),
        Figure("command line", "spotd --help, wall", help_wall, "s"),
    ]
