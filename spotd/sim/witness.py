"""Which workloads really run: what the jobs themselves would write into an append-only file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spotd.sim.machine import Machine
from spotd.sim.shelf import Work

if TYPE_CHECKING:
    from spotd.sim.checks import Checks
    from spotd.sim.story import Story
    from spotd.sim.timeline import Timeline


@dataclass(slots=True, eq=False)
class Run:
    """One life of a job's process on one machine."""

    work: Work
    machine: Machine
    attempt: int
    restored: str | None
    first_step: int
    started_s: float
    stopped_s: float | None = None
    why: str = ""

    def step(self, now_s: float) -> int:
        """How far it is."""
        until = now_s if self.stopped_s is None else self.stopped_s
        return min(self.first_step + int(until - self.started_s), self.work.steps)


class Witness:
    """Sees every start and stop of a workload."""

    def __init__(self, timeline: Timeline, story: Story, checks: Checks) -> None:
        self._timeline = timeline
        self._story = story
        self._checks = checks
        self.runs: dict[str, list[Run]] = {}

    def start(self, work: Work, machine: Machine, attempt: int, restored: str | None, step: int) -> Run:
        """A workload begins."""
        run = Run(work, machine, attempt, restored, step, self._timeline.now_s)
        self._story.say("job", f"{work.job_id} runs on {machine.provider_id} (attempt {attempt}) from step {step}, {restored or 'fresh'}")
        self._checks.workload_started(run, self.live(work.job_id))
        self.runs.setdefault(work.job_id, []).append(run)
        return run

    def stop(self, run: Run, why: str) -> None:
        """A workload ends."""
        if run.stopped_s is None:
            run.stopped_s, run.why = self._timeline.now_s, why
            self._story.say("job", f"{run.work.job_id} stops on {run.machine.provider_id} at step {run.step(self._timeline.now_s)}: {why}")

    def live(self, job_id: str) -> list[Run]:
        """Those of a job that run now."""
        return [run for run in self.runs.get(job_id, ()) if run.stopped_s is None]

    def on(self, machine: Machine) -> Run | None:
        """What runs on a machine now."""
        job = None if machine.request is None else machine.request.job_id
        return next((run for run in self.runs.get(job or "", ()) if run.machine is machine and run.stopped_s is None), None)
