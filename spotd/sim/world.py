"""One run: a world built from a seed, its faults, its healing, and what must be true at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spotd.core.plan import HoldReason
from spotd.sim.api import CloudApi
from spotd.sim.checks import Checks, Violation
from spotd.sim.cloud import Cloud
from spotd.sim.dice import Dice
from spotd.sim.draws import Draws, draw
from spotd.sim.fates import Fates
from spotd.sim.host import Host
from spotd.sim.market import Bazaar
from spotd.sim.nodes import Nodes
from spotd.sim.shelf import Shelf, Work, make_work
from spotd.sim.store import SimStore
from spotd.sim.story import Story
from spotd.sim.timeline import HOUR, DaemonClock, Timeline
from spotd.sim.users import Users
from spotd.sim.witness import Witness

if TYPE_CHECKING:
    from spotd.core.policy import Policy

DEPLOYMENT = "simulated"
#: After healing everything must be at rest within this: the longest cooldown (6 h) and back-off (1 h), and every job once more from the start.
_HEAL_HOURS = 60.0
#: Non-actions that explain an unfinished job in a world without faults: ops must change the policy.
_EXPLAINED = {HoldReason.NO_OFFER, HoldReason.TOO_EXPENSIVE, HoldReason.NO_POLICY}


@dataclass(frozen=True, slots=True)
class Parts:
    """What everything in a run shares."""

    timeline: Timeline
    dice: Dice
    draws: Draws
    cloud: Cloud
    story: Story
    checks: Checks


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a run."""

    seed: int
    draws: Draws
    violations: tuple[Violation, ...]
    story: Story
    virtual_s: float
    steps: int
    launches: int
    outcomes: dict[str, str]


class Simulation:
    """A world and its clockwork."""

    def __init__(self, seed: int, draws: Draws, *, told: bool = False) -> None:
        self.seed, self.draws = seed, draws
        self.faults_end_s = draws.fault_hours * HOUR
        self.timeline = Timeline()
        self.dice = Dice(seed)
        self.story = Story(self.timeline, told=told)
        self.checks = Checks(self.timeline)
        self.clock = DaemonClock(self.timeline)
        bazaar = Bazaar(self.dice, draws, self.faults_end_s)
        self.cloud = Cloud(self.timeline, self.dice, draws, bazaar, self.story)
        self.provider = CloudApi(self.cloud, self.clock, self.checks)
        self.store = SimStore(DEPLOYMENT, self.checks, lambda: not self.cloud.healed and self.dice.chance("store fails", draws.store_fails))
        self.shelf = Shelf()
        parts = Parts(self.timeline, self.dice, draws, self.cloud, self.story, self.checks)
        self.host = Host(parts, self.store, self.provider, self.clock, self.shelf)
        self.works: dict[str, Work] = {}
        for number in range(1, draws.jobs + 1):
            work = make_work(self.dice, number, draws.job_hours, draws.checkpoint_s, draws.job_errors)
            self.works[work.job_id] = work
        self.nodes = self.host.nodes = Nodes(self.host, self.works)
        self.cloud.inhabitants = self.nodes
        self.cloud.channel = self.host.noticed if draws.channel else None
        self.witness = self.host.witness = Witness(self.timeline, self.story, self.checks)
        self.users = Users(self)
        self.fates = Fates(self)
        self.submitted: set[str] = set()
        self.policies_so_far: list[Policy] = []
        self.checks.ready(self)

    def begin(self) -> None:
        """The daemon starts with its policy."""
        policy = self.users.policy()
        self.host.policies[policy.name] = policy
        self.policies_so_far.append(policy)
        self.host.start()

    def run(self) -> Result:
        """Play faults, heal, and look at the end."""
        self.begin()
        self.users.schedule(self.faults_end_s)
        self.fates.schedule(self.faults_end_s)
        self.timeline.run(self.faults_end_s, self._broken)
        if not self._broken():
            self.fates.heal()
            self.timeline.run(self.faults_end_s + _HEAL_HOURS * HOUR, self.at_rest)
            if not self._broken():
                self._converged()
                self.checks.at_end()
        return self.result()

    def result(self) -> Result:
        """What can be said now."""
        return Result(
            seed=self.seed,
            draws=self.draws,
            violations=tuple(self.checks.violations),
            story=self.story,
            virtual_s=self.timeline.now_s,
            steps=self.host.steps,
            launches=len(self.cloud.machines),
            outcomes={job.id: str(job.outcome) for job in self.store.jobs.values()},
        )

    def _broken(self) -> bool:
        return bool(self.checks.violations)

    def at_rest(self) -> bool:
        """Whether every job is finished or explained, and nothing of ours is left."""
        if self._broken():
            return True
        if len(self.submitted) < len(self.works) or not all(job.outcome is not None or self._explained(job.id) for job in self.store.jobs.values()):
            return False
        if any(machine.ours and machine.alive for machine in self.cloud.machines.values()):
            return False
        return all(not instance.live for instance in self.store.instances.values())

    def _explained(self, job_id: str) -> bool:
        """Whether nothing but a change of the policy can help this job, which is not a fault."""
        hold = self.host.engine.holds.get(job_id)
        return hold is not None and hold.why in _EXPLAINED and self.timeline.now_s > self.faults_end_s + 2 * self.draws.prices_s

    def _converged(self) -> None:
        """Every job is finished, or a hold says why not."""
        for job in self.store.jobs.values():
            if job.outcome is not None:
                continue
            if not self._explained(job.id):
                self.checks.violated("converges", f"{job.id} is not finished: {self.host.engine.holds.get(job.id)}")
        unsettled = [i.id for i in self.store.instances.values() if i.live]
        if unsettled:
            self.checks.violated("converges", f"{len(unsettled)} instances are not settled: {[self.store.instances[i] for i in unsettled][:2]}")


def simulate(seed: int, draws: Draws | None = None, *, told: bool = False) -> Result:
    """Run one seed."""
    return Simulation(seed, draw(seed) if draws is None else draws, told=told).run()
