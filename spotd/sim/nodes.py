"""Every simulated instance's software, found by its machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotd.sim.agent import Agent
from spotd.sim.link import directive_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spotd.sim.host import Host
    from spotd.sim.machine import Machine, Reclaim
    from spotd.sim.shelf import Work


class Nodes:
    """Implements `cloud.Inhabitant`."""

    def __init__(self, host: Host, works: dict[str, Work]) -> None:
        self._host = host
        self._works = works
        self.agents: dict[str, Agent] = {}
        self._living: dict[str, Agent] = {}

    def living(self) -> Iterator[Agent]:
        """Agents on machines that are not gone."""
        return (agent for agent in list(self._living.values()) if agent.alive)

    def powered_on(self, machine: Machine) -> None:
        """The machine runs: after a while its agent starts, if it ever does."""
        host = self._host
        if machine.request is None:
            return
        agent = Agent(machine, self._works[machine.request.job_id], host)
        self.agents[machine.provider_id] = self._living[machine.provider_id] = agent
        draws = host.draws
        stream = host.dice.stream(f"boot {machine.provider_id}")
        agent.blind = stream.random() < draws.blind_agents and not host.cloud.healed
        boot_s = draws.boot_s * stream.uniform(0.7, 1.6)
        if stream.random() < draws.never_boots and not host.cloud.healed:
            host.story.say("agent", f"{machine.provider_id} will never call")
            agent.hung = True
        host.timeline.after(boot_s, lambda: agent.do(agent.started))

    def warned(self, machine: Machine, reclaim: Reclaim) -> None:
        """A warning stands in the metadata server."""
        agent = self.agents.get(machine.provider_id)
        if agent is not None:
            agent.do(lambda: agent.warned(reclaim))

    def hinted(self, machine: Machine) -> None:
        """A recommendation stands in the metadata server."""
        agent = self.agents.get(machine.provider_id)
        if agent is not None:
            agent.hinted()

    def shutting_down(self, machine: Machine) -> None:
        """SIGTERM."""
        agent = self.agents.get(machine.provider_id)
        if agent is not None:
            agent.shutting_down()

    def gone(self, machine: Machine) -> None:
        """Nothing executes there any more."""
        agent = self._living.pop(machine.provider_id, None)
        if agent is not None:
            agent.gone()

    def host_changed(self) -> None:
        """The daemon went away or came back."""
        for agent in self.living():
            agent.link.changed()

    def directives_changed(self) -> None:
        """The world moved: agents whose directive is another one now fetch it within a heartbeat."""
        host = self._host
        world = host.engine.world
        for agent in self.living():
            link = agent.link
            if not link.session or not link.reachable:
                continue
            instance = world.instances.get(agent.token)
            if instance is not None and directive_key(host.api.order(world, instance)) != link.told:
                link.soon(within_s=10.0 if agent.phase == "running" else 1.0)
