"""A script: the simulated world without chance, and orders by the minute. What it tells is compared as text, so a change reads as a story."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from spotd.core.instance import EndedBy
from spotd.core.offer import Market
from spotd.sim.draws import Draws
from spotd.sim.machine import Machine
from spotd.sim.world import Simulation

#: Two regions, one zone each, prices that stand still, one job of two hours that saves every half hour.
_QUIET = Draws(jobs=1, regions=2, fault_hours=200.0, boot_s=60.0, price_moves_per_day=0.0, max_preemptions=3, observe_s=60.0)
_SEED = 1
#: Why this offer and not another is the business of other tests; here it would only hide the story.
_BECAUSE = re.compile(r"(asks for [^;]*);.*")
_QUIETLY = ("costs $", "for the first time", "is acknowledged", "says that it runs", "store    ", "learns that there is")


class Script:
    """One job, and what is done to it."""

    def __init__(self, hours: float = 2.0, **draws: object) -> None:
        self.sim = Simulation(_SEED, dataclasses.replace(_QUIET, **draws), told=True)  # type: ignore[arg-type]
        work = self.sim.works["job-1"]
        work.steps, work.checkpoint_s = int(hours * 3600), 1800.0
        work.save_s, work.upload_s, work.restore_s, work.setup_s = 20.0, 10.0, 15.0, 30.0
        self.sim.begin()
        self.at(1, lambda: self.sim.users.submit(work))

    def at(self, minutes: float, action: Callable[[], object]) -> None:
        """Do this then."""
        self.sim.timeline.at(minutes * 60.0, lambda: (action(), None)[1])

    def cloud(self, **draws: object) -> None:
        """From now on the cloud's calls go like this."""
        self.sim.provider.draws = dataclasses.replace(self.sim.provider.draws, **draws)  # type: ignore[arg-type]

    def daemon(self, **draws: object) -> None:
        """From now on the daemon's host is like this."""
        self.sim.host.draws = dataclasses.replace(self.sim.host.draws, **draws)  # type: ignore[arg-type]

    def machine(self) -> Machine:
        """The newest machine that lives."""
        return [m for m in self.sim.cloud.machines.values() if m.alive][-1]

    def reclaim(self, notice_s: float = 120.0) -> None:
        """The provider wants it back."""
        self.sim.cloud.take_back(self.machine(), notice_s, told=notice_s > 0, cancelled=False)

    def dry(self, market: Market, *regions: str) -> None:
        """There is no capacity there from now on."""
        bazaar = self.sim.cloud.bazaar
        before = bazaar.dry
        bazaar.dry = lambda key, when_s: (key.market is market and key.region in regions) or before(key, when_s)  # type: ignore[method-assign]

    def end_by_hand(self) -> None:
        """Somebody ends it in the provider's console."""
        self.sim.cloud.shut_down(self.machine(), EndedBy.EXTERNAL, "Client.UserInitiatedShutdown", 10.0)

    def kill_daemon(self, minutes: float) -> None:
        """Kill -9, and the next start so much later."""
        self.sim.host.crash(minutes * 60.0, "kill -9")

    def told(self, hours: float) -> str:
        """Play it, and what happened. No rule may be broken."""
        self.sim.timeline.run(hours * 3600.0, lambda: bool(self.sim.checks.violations))
        assert not self.sim.checks.violations, self.sim.checks.violations[0]
        lines = []
        for when, who, what in self.sim.story.lines:
            line = f"{who:<8} " + _BECAUSE.sub(r"\1", what)
            if not any(word in line for word in _QUIETLY):
                lines.append(f"{int(when // 3600):02d}:{int(when % 3600 // 60):02d} {line}")
        return "\n".join(lines) + "\n"
