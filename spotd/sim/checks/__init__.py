"""Independent checkers, one for each rule of DESIGN §4.

They look at the simulated cloud's truth, at what workloads really did, at the stored
rows and at the meter; never at the engine's own helpers, which may be wrong in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spotd.sim.checks.checkpoints import Checkpoints
from spotd.sim.checks.endings import Endings
from spotd.sim.checks.launches import Launches
from spotd.sim.checks.ledger import Ledger
from spotd.sim.checks.preemptions import Preemptions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from spotd.core.events import Event
    from spotd.core.instance import LaunchRequest, ObservedInstance
    from spotd.core.world import Changes
    from spotd.sim.agent import Agent
    from spotd.sim.machine import Machine
    from spotd.sim.timeline import Timeline
    from spotd.sim.witness import Run
    from spotd.sim.world import Simulation


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken."""

    rule: str
    at_s: float
    text: str


class Checks:
    """Hands what happens to the checkers and collects what they find."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.violations: list[Violation] = []
        self.sim: Simulation

    def ready(self, sim: Simulation) -> None:
        """Everything that is looked at exists."""
        self.sim = sim
        self.launches = Launches(self)
        self.checkpoints = Checkpoints(self)
        self.endings = Endings(self)
        self.preemptions = Preemptions(self)
        self.ledger = Ledger(self)

    @property
    def now_s(self) -> float:
        """The true time."""
        return self._timeline.now_s

    def violated(self, rule: str, text: str) -> None:
        """A rule does not hold."""
        self.violations.append(Violation(rule, self._timeline.now_s, text))
        self.sim.story.say("CHECK", f"{rule}: {text}")

    # What happens ----------------------------------------------------------------------------------------------------------------

    def committing(self, events: Sequence[Event], changes: Changes) -> None:
        """A commit is about to be written."""
        del changes
        self.preemptions.committing(events)

    def committed(self, events: Sequence[Event], changes: Changes) -> None:
        """A commit is durable."""
        self.launches.committed(events)
        self.checkpoints.committed(events)
        self.endings.committed(events, changes)
        self.preemptions.committed(events, changes)
        self.ledger.committed(events, changes)

    def launch_called(self, request: LaunchRequest) -> None:
        """The daemon asks for a machine."""
        self.launches.called(request)

    def launched(self, machine: Machine, price: Decimal) -> None:
        """A machine was made."""
        self.launches.made(machine, price)

    def listed(self, region: str, rows: Sequence[ObservedInstance]) -> None:
        """A complete listing was given."""
        self.endings.listed(region, rows)

    def swept(self, regions: Sequence[str]) -> None:
        """Prices were told."""
        self.ledger.swept(regions)

    def terminate_called(self, provider_id: str) -> None:
        """The daemon asks for a machine's end."""
        self.endings.terminate_called(provider_id)

    def terminate_executed(self, machine: Machine) -> None:
        """The cloud begins to end a machine because the daemon asked."""
        self.endings.terminate_executed(machine)

    def told_to_stop(self, agent: Agent, why: str) -> None:
        """An agent that runs a workload is told to end it at once."""
        self.endings.told_to_stop(agent, why)

    def workload_started(self, run: Run, others: Sequence[Run]) -> None:
        """A workload begins."""
        if others:
            where = ", ".join(f"{other.machine.provider_id} (attempt {other.attempt})" for other in others)
            self.violated("one workload", f"{run.work.job_id} starts on {run.machine.provider_id} (attempt {run.attempt}) while it runs on {where}")
        self.checkpoints.workload_started(run)

    def drain_begins(self, agent: Agent, kind: str, deadline_s: float) -> None:
        """An agent was warned or ordered, and begins to save."""
        self.endings.drain_begins(agent, kind, deadline_s)

    def at_end(self) -> None:
        """Everything was healed and came to rest, or should have."""
        self.checkpoints.at_end()
        self.endings.at_end()
        self.preemptions.at_end()
        self.ledger.at_end()
