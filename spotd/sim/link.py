"""How a simulated agent talks to the daemon: numbered messages, said again until they are acknowledged.

Heartbeats without news are not played one by one: while an agent can reach the daemon, the host counts it as heard (`Host.hear_everybody`), and
a directive that changed is fetched within one heartbeat. That is the only shortcut, and it makes a quiet week cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spotd.daemon import agent_messages as m
from spotd.sim.agents_api import Answer, NoAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotd.core.directive import Directive
    from spotd.sim.agent import Agent
    from spotd.sim.host import Host

_RETRY_S = (2.0, 15.0)
_BOOTSTRAP_RETRY_S = 20.0


def directive_key(order: Directive) -> tuple[bool, str | None, str | None, bool]:
    """What of a directive makes an agent act."""
    return (order.gate_open, None if order.drain is None else order.drain.id, order.stop, order.power_off)


class Link:
    """One agent's journal of messages and its calls."""

    def __init__(self, agent: Agent, host: Host) -> None:
        self._agent = agent
        self._host = host
        self._timeline = host.timeline
        self._dice = host.dice
        self._unsaid: list[tuple[int, float, Callable[[int, float], m.Message]]] = []
        self._seq = 0
        self._scheduled = False
        self.up = True
        self.session = False
        self.silent_since_s: float | None = None
        self.last_silence_s = -1.0
        self.told: tuple[bool, str | None, str | None, bool] | None = None

    @property
    def reachable(self) -> bool:
        """Whether a call made now gets an answer."""
        return self.up and self._host.up and self._agent.responsive

    @property
    def unsaid(self) -> bool:
        """Whether messages wait for acknowledgement."""
        return bool(self._unsaid)

    def silence_s(self) -> float:
        """How long the daemon has not answered."""
        return 0.0 if self.silent_since_s is None else self._timeline.now_s - self.silent_since_s

    def changed(self) -> None:
        """The line, the daemon or the agent went away or came back."""
        if self.reachable:
            if self.silent_since_s is not None:
                self.silent_since_s = None
                self.last_silence_s = self._timeline.now_s
                self.soon()
        elif self.silent_since_s is None:
            self.silent_since_s = self._timeline.now_s
            if self.session and self._host.up:
                # Its last heartbeat was a moment ago; the host only notes heartbeats when it steps.
                self._host.engine.heard(self._agent.token, self._host.clock.now())
            self._agent.silence_began()

    # Saying --------------------------------------------------------------------------------------------------------------

    def say(self, make: Callable[[int, float], m.Message]) -> None:
        """Put a message into the journal and call at once."""
        self._seq += 1
        self._unsaid.append((self._seq, self._timeline.now_s, make))
        self.soon()

    def soon(self, within_s: float = 0.3) -> None:
        """Call soon."""
        if not self._scheduled:
            self._scheduled = True
            self._timeline.after(self._dice.between("call", 0.01, within_s), self._call)

    def _call(self) -> None:
        self._scheduled = False
        if not self._agent.alive or not self.reachable:
            return
        if not self.session:
            self._bootstrap()
            return
        now = self._timeline.now_s
        messages = [make(seq, now - said) for seq, said, make in self._unsaid]
        try:
            answer = self._host.api.sync(self._agent.token, self._agent.state, messages, self._agent.step)
        except NoAnswer:
            self._again()
            return
        if not self._host.up or self._lost():
            # The daemon heard it, or even died of it: the agent knows nothing and says everything again.
            self._again()
            return
        self._timeline.after(self._dice.between("reply", 0.005, 0.2), lambda: self._answered(answer))

    def _lost(self) -> bool:
        return not self._host.cloud.healed and self._dice.chance("reply lost", self._host.draws.reply_lost)

    def _again(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._timeline.after(self._dice.between("call again", *_RETRY_S), self._call)

    def _answered(self, answer: Answer) -> None:
        if not self._agent.alive:
            return
        self._unsaid = [entry for entry in self._unsaid if entry[0] > answer.acknowledged]
        self.told = directive_key(answer.order)
        self._agent.do(lambda: self._agent.answered(answer))

    def _bootstrap(self) -> None:
        try:
            spec: dict[str, Any] = self._host.api.bootstrap(self._agent.token)
        except NoAnswer:
            self._timeline.after(_BOOTSTRAP_RETRY_S, self.soon)
            return
        if not self._host.up or self._lost():
            self._again()
            return
        self.session = True
        self._agent.do(lambda: self._agent.bootstrapped(spec))
