"""What a simulated agent does between a warning and its deadline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotd.daemon import agent_messages as m

if TYPE_CHECKING:
    from spotd.sim.agent import Agent

_ENDED = ("drained", "exited", "failed", "stopped")


class Drain:
    """At most one: later causes only bring its deadline forward."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._plan = 0
        self._kind = ""
        self._began_s = 0.0
        self._deadline_s = 0.0
        self._saved = False
        self._causes: set[str] = set()

    @property
    def active(self) -> bool:
        """Whether one is under way."""
        return self._agent.phase == "draining"

    def begin(self, name: str, kind: str, deadline_s: float) -> None:
        """A cause to stop the job by then."""
        agent = self._agent
        if agent.phase in _ENDED or name in self._causes:
            return
        self._causes.add(name)
        now = agent.timeline.now_s
        agent.host.checks.drain_begins(agent, kind, deadline_s)
        if agent.phase == "draining":
            if deadline_s < self._deadline_s:
                self._deadline_s = deadline_s
                self._cut(now)
            return
        ran = agent.phase == "running"
        agent.phase, self._kind, self._began_s, self._deadline_s = "draining", kind, now, deadline_s
        if not ran or agent.run is None:
            agent.later(0.5, self._report)
            return
        work = agent.work
        if agent.run.stopped_s is not None or now + work.save_s + work.upload_s > deadline_s - self._reserve_s():
            # A save that cannot end in time is not begun (DESIGN §6).
            agent.kill(f"{kind}: a save does not fit")
            agent.later(0.5, self._report)
            return
        self._plan += 1
        plan = self._plan
        agent.later(work.save_s, lambda: self._save(plan))

    def _reserve_s(self) -> float:
        return float(self._agent.spec["drain_reserve_s"])

    def _cut(self, now: float) -> None:
        """The deadline came forward: what cannot be over by then is given up."""
        work = self._agent.work
        if self._began_s + work.save_s + work.upload_s <= self._deadline_s - self._reserve_s():
            return
        self._plan += 1
        self._agent.later(max(self._deadline_s - self._reserve_s() - now, 0.0), self._give_up)

    def _give_up(self) -> None:
        if self.active:
            self._agent.kill(f"{self._kind}: the time was up")
            self._report()

    def _save(self, plan: int) -> None:
        agent = self._agent
        if plan != self._plan or not self.active or agent.run is None or agent.run.stopped_s is not None:
            return
        step = agent.run.step(agent.timeline.now_s)
        agent.kill(f"{self._kind}: saved and stopped")
        agent.saver.save(step, "notice", lambda: self._committed(plan))

    def _committed(self, plan: int) -> None:
        if plan == self._plan and self.active:
            self._saved = True
            self._report()

    def job_ended(self) -> None:
        """The job died of its own in the middle of it."""
        self._plan += 1
        self._report()

    def forget(self) -> None:
        """The job finished: that counts instead."""
        self._plan += 1

    def _report(self) -> None:
        agent = self._agent
        if not self.active:
            return
        agent.kill(f"{self._kind}: drained")
        used, given, step, saved, kind = agent.timeline.now_s - self._began_s, self._deadline_s - self._began_s, agent.step, self._saved, self._kind
        checkpoint = agent.saver.last.checkpoint if saved and agent.saver.last is not None else None
        agent.link.say(
            lambda seq, age: m.Drained.model_construct(
                seq=seq,
                age_s=age,
                type="drained",
                kind=kind,
                step=step,
                checkpoint=checkpoint,
                saved=saved,
                seconds_used=used,
                seconds_given=max(given, 0.0),
                hook_exit=None,
                hook_s=None,
                detail="",
            )
        )
        agent.end("drained")
