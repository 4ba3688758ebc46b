"""Faults that come by themselves: the daemon's deaths, outages, lost lines, hung agents, strays. All of them end when the world is healed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotd.core.offer import Market

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotd.sim.agent import Agent
    from spotd.sim.world import Simulation


class Fates:
    """Schedules everything at the beginning, each kind from its own stream."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._dice = sim.dice

    def schedule(self, until_s: float) -> None:
        """What will go wrong."""
        draws = self._sim.draws
        plan: tuple[tuple[str, float, Callable[[], None]], ...] = (
            ("crashes", draws.crashes_per_day, self._crash),
            ("clock steps", draws.clock_steps_per_day, self._step_clock),
            ("outages", draws.outages_per_day, self._outage),
            ("unauthorized", draws.not_authorized_per_day, self._unauthorized),
            ("bursts", draws.zone_bursts_per_day, self._burst),
            ("strays", draws.strays_per_day, self._stray),
            ("hangs", draws.hangs_per_day, self._hang),
            ("agent crashes", draws.agent_crashes_per_day, self._agent_crash),
            ("link losses", draws.link_losses_per_day, self._link_loss),
        )
        for name, per_day, befall in plan:
            for when in self._dice.times(name, per_day, until_s):
                self._sim.timeline.at(when, befall)

    def _crash(self) -> None:
        if not self._sim.cloud.healed:
            long = self._dice.chance("long downtime", 0.3)
            self._sim.host.crash(self._dice.between("down", 60.0, 5400.0) if long else self._dice.between("down", 1.0, 30.0), "kill -9")

    def _step_clock(self) -> None:
        seconds = self._dice.between("clock step", -900.0, 900.0)
        self._sim.story.say("daemon", f"its host's wall clock is stepped by {seconds:.0f} s")
        self._sim.clock.step_wall(seconds)

    def _outage(self) -> None:
        region = self._dice.choice("outage where", self._sim.cloud.bazaar.regions)
        lasts = self._dice.between("outage lasts", 60.0, 7200.0)
        self._sim.story.cloud(f"the control plane of {region} is down for {lasts:.0f} s")
        self._sim.provider.down[region] = self._sim.timeline.now_s + lasts

    def _unauthorized(self) -> None:
        lasts = self._dice.between("unauthorized lasts", 60.0, 3600.0)
        self._sim.story.cloud(f"launches are not authorized for {lasts:.0f} s")
        self._sim.provider.unauthorized_until_s = self._sim.timeline.now_s + lasts

    def _burst(self) -> None:
        region = self._dice.choice("burst region", self._sim.cloud.bazaar.regions)
        zone = self._dice.choice("burst zone", self._sim.cloud.bazaar.zones[region])
        self._sim.story.cloud(f"takes back all of {zone}")
        self._sim.cloud.burst(zone)

    def _stray(self) -> None:
        key = self._dice.choice("stray where", [k for k in self._sim.cloud.bazaar.keys if k.market is Market.ON_DEMAND])
        ours = self._dice.chance("stray is ours", 0.6)
        machine = self._sim.cloud.create_other(key, ours=ours)
        self._sim.story.cloud(f"{machine.provider_id} appears, {'with our tag and no record' if ours else 'of somebody else'}")

    def _somebody(self, kind: str) -> Agent | None:
        living = list(self._sim.nodes.living())
        return self._dice.choice(f"{kind} whose", living) if living else None

    def _hang(self) -> None:
        agent = self._somebody("hang")
        if agent is not None and agent.responsive:
            lasts = self._dice.between("hang lasts", 60.0, 14400.0)
            self._sim.story.say("agent", f"{agent.machine.provider_id} hangs for {lasts:.0f} s")
            agent.hang()
            self._sim.timeline.after(lasts, agent.restart)

    def _agent_crash(self) -> None:
        agent = self._somebody("agent crash")
        if agent is not None and agent.responsive:
            self._sim.story.say("agent", f"{agent.machine.provider_id}: the agent dies and is restarted")
            agent.hang()
            self._sim.timeline.after(self._dice.between("restart", 1.0, 30.0), agent.restart)

    def _link_loss(self) -> None:
        agent = self._somebody("link loss")
        if agent is None or not agent.link.up:
            return
        long = self._dice.chance("long loss", 0.4)
        lasts = self._dice.between("loss", 600.0, 10800.0) if long else self._dice.between("loss", 5.0, 300.0)
        self._sim.story.say("agent", f"{agent.machine.provider_id} cannot reach the daemon for {lasts:.0f} s")
        link = agent.link
        link.up = False
        link.changed()
        self._sim.timeline.after(lasts, lambda: self._link_back(agent))

    def _link_back(self, agent: Agent) -> None:
        agent.link.up = True
        agent.link.changed()

    def heal(self) -> None:
        """Everything that can be mended is mended: lines, agents (as systemd would), endpoints, permissions, clocks, the daemon."""
        sim = self._sim
        sim.story.say("HEAL", "all faults end here")
        sim.cloud.heal()
        sim.provider.down.clear()
        sim.provider.unauthorized_until_s = 0.0
        sim.clock.mend_wall()
        for agent in list(sim.nodes.living()):
            agent.blind = False
            agent.link.up = True
            agent.link.changed()
            agent.restart()
        if not sim.host.up:
            sim.host.start()
