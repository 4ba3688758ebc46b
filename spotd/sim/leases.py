"""When a simulated instance ends itself although nobody told it to: the rules of spotd/node/leases.py, by alarm clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotd.sim.agent import Agent

_FAREWELL_S = 60.0
_FENCE_MARGIN_S = 60.0
_ENDED = ("drained", "exited", "failed", "stopped")


class Leases:
    """Watches over silence, idleness and age."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._began_s = 0.0
        self._own = ""

    def began(self) -> None:
        """The agent's first start on this machine."""
        self._began_s = self._agent.timeline.now_s

    def armed(self) -> None:
        """The specification is known."""
        self._look_in(float(self._agent.spec["max_lifetime_s"]))
        if self._agent.link.silent_since_s is not None:
            self.silence_began()

    def silence_began(self) -> None:
        """Nobody answers from now on."""
        agent = self._agent
        if not agent.spec:
            return
        self._look_in(float(agent.spec["idle_timeout_s"]))
        limit = agent.spec["stop_when_unreachable_s"]
        if limit is not None:
            self._look_in(float(limit))
            since = agent.link.silent_since_s
            fence = float(limit) + float(agent.spec["notice_s"]) + _FENCE_MARGIN_S
            agent.timeline.after(fence, lambda: self._fence(since))

    def ended(self) -> None:
        """The job is over here."""
        if self._agent.spec:
            self._look_in(float(self._agent.spec["idle_timeout_s"]))
            if self._own:
                self._look_in(_FAREWELL_S)

    def _look_in(self, seconds: float) -> None:
        self._agent.later(seconds + 0.5, self._look)

    def _fence(self, since: float | None) -> None:
        """The shim ends the job by itself: its agent has had no contact, or is no more, since then."""
        agent = self._agent
        if agent.alive and since is not None and agent.link.silent_since_s == since and agent.run is not None and agent.run.stopped_s is None:
            run = agent.run
            agent.host.witness.stop(run, "the shim's fence: no contact")
            agent.do(lambda: agent.say_exited(137, done=False) if agent.phase == "running" else agent.drain.job_ended())

    def _look(self) -> None:
        agent = self._agent
        if not agent.machine.up:
            return
        now = agent.timeline.now_s
        silence, ended = agent.link.silence_s(), agent.phase in _ENDED
        idle = 0.0 if agent.ended_s is None else now - agent.ended_s
        limit = agent.spec["stop_when_unreachable_s"]
        if agent.phase == "draining":
            return
        if ended and self._own and (not agent.link.unsaid or idle >= _FAREWELL_S):
            agent.power_off(self._own)
        elif (ended or agent.phase == "ready") and min(silence, idle if ended else silence) >= float(agent.spec["idle_timeout_s"]):
            agent.power_off("idle")
        elif now - self._began_s >= float(agent.spec["max_lifetime_s"]):
            self._expire("lifetime")
        elif limit is not None and silence >= float(limit):
            self._expire("unreachable")

    def _expire(self, why: str) -> None:
        agent = self._agent
        if agent.phase != "running":
            agent.power_off(why)
        elif not self._own:
            self._own = why
            agent.own_notice("lease", "agent", why, float(agent.spec["notice_s"]))
