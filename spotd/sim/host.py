"""The daemon's host: the engine with its effects in flight, which dies at any moment and comes back with what the store holds."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from spotd.core.errors import ProviderError
from spotd.core.events import Event, Listed, NoticeSeen
from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd.core.plan import Effect, Launch, ProviderFacts, Resolve, subject
from spotd.daemon.engine import Engine
from spotd.daemon.execute import execute
from spotd.ports import OfferQuery
from spotd.sim.agents_api import AgentsApi, NoAnswer
from spotd.sim.market import PROVIDER
from spotd.sim.tell import Names, told
from spotd.sim.timeline import DaemonClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from spotd.core.instance import ObservedInstance
    from spotd.core.policy import Policy
    from spotd.daemon.engine import Step
    from spotd.sim.api import CloudApi
    from spotd.sim.machine import Machine
    from spotd.sim.nodes import Nodes
    from spotd.sim.shelf import Shelf
    from spotd.sim.store import SimStore
    from spotd.sim.witness import Witness
    from spotd.sim.world import Parts

    Listing = tuple[str, tuple[ObservedInstance, ...]]

_STORE_RETRY_S = 1.0
_REPLAN_EVERY = 16
#: Listings that are answered within this reach the loop together.
_SLOW_S = 1.5
_NEVER = float("inf")


class StoreDown(Exception):
    """The commit failed: nothing was written."""


class Host:
    """What `spotd.daemon.loop` and `spotd.daemon.observer` are with threads, by virtual time."""

    def __init__(self, parts: Parts, store: SimStore, provider: CloudApi, clock: DaemonClock, shelf: Shelf) -> None:
        self.timeline = parts.timeline
        self.dice = parts.dice
        self.draws = parts.draws
        self.cloud = parts.cloud
        self.story = parts.story
        self.checks = parts.checks
        self.store = store
        self.provider = provider
        self.clock = clock
        self.shelf = shelf
        self.policies: dict[str, Policy] = {}
        self.api = AgentsApi(self)
        self.up = False
        self.life = 0
        self.steps = 0
        self.nodes: Nodes
        self.witness: Witness
        self.engine: Engine
        self._due_s = _NEVER
        self._names = Names()

    # Living and dying --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A new daemon: what the store holds, and nothing else."""
        self.life += 1
        self.up = True
        self.clock.restart()
        facts = {
            PROVIDER: ProviderFacts(
                notice=self.provider.capabilities.notice,
                boot_timeout=self.provider.capabilities.boot_timeout,
                billing_rule=self.provider.capabilities.billing_rule,
            )
        }
        self.engine = Engine(self.store, self.store.load(), facts, self.clock.now())
        self.engine.use_policies(dict(self.policies))
        self.story.say("daemon", f"starts (life {self.life})")
        self._due_s = _NEVER
        life = self.life
        self._sweep(life)
        self._observe(life)
        self.nodes.host_changed()
        self.tell(())

    def crash(self, downtime_s: float, why: str) -> None:
        """Killed with -9: what was committed stays, what was in memory or in flight is gone."""
        if not self.up:
            return
        self.up = False
        self.life += 1
        self.story.say("daemon", f"dies: {why}")
        self.nodes.host_changed()
        self.timeline.after(downtime_s, self._come_back)

    def _come_back(self) -> None:
        if not self.up:
            self.start()

    # Steps ---------------------------------------------------------------------------------------------------------------------

    def tell(self, events: Sequence[Event], done: Iterable[str] = ()) -> None:
        """Events that nobody waits for: said again until they are committed, as long as this daemon lives."""
        subjects = tuple(done)
        if not self.up:
            return
        try:
            self._step(events, subjects)
        except StoreDown:
            life = self.life
            self.timeline.after(_STORE_RETRY_S, lambda: self.tell(events, subjects) if self.life == life else None)

    def record(self, events: Sequence[Event]) -> None:
        """Commit or raise NoAnswer: what agents and users wait for."""
        if not self.up:
            raise NoAnswer("down")
        try:
            self._step(events, ())
        except StoreDown:
            raise NoAnswer("5xx") from None

    def _step(self, events: Sequence[Event], done: tuple[str, ...]) -> None:
        self.hear_everybody()
        self.steps += 1
        before = self.engine.world
        try:
            step = self.engine.step(self.clock.now(), events, done)
        except OSError as error:
            raise StoreDown from error
        except Exception as error:
            self.checks.violated("settles", f"step({[type(e).__name__ for e in events]}) raised {type(error).__name__}: {error}")
            raise StoreDown from error
        if self.story.told:
            self._tell_story(step)
        self._schedule(step)
        if step.effects and self.dice.chance("crash after commit", self._rate(self.draws.crash_after_commit)):
            self.crash(self._downtime_s(), "between the commit and its effects")
            return
        for effect in step.effects:
            delay = self.dice.between("worker", 0.001, 0.3)
            self.timeline.after(delay, partial(self._carry_out, effect, self.life))
        if self.engine.world is not before:
            self.nodes.directives_changed()
        if self.steps % _REPLAN_EVERY == 0 and not step.effects:
            self._replan()

    def _replan(self) -> None:
        """A plan carried out leaves nothing to plan at the same instant."""
        again = self.engine.step(self.clock.now())
        if again.events or again.effects:
            self.checks.violated("settles", f"planned again at the same instant: {again.events} {again.effects}")

    def _rate(self, rate: float) -> float:
        return 0.0 if self.cloud.healed else rate

    def _downtime_s(self) -> float:
        return self.dice.between("downtime", 1.0, 20.0) if self.dice.chance("short downtime", 0.7) else self.dice.between("downtime", 60.0, 3600.0)

    def hear_everybody(self) -> None:
        """Heartbeats that brought no news: every agent with a working line was heard a moment ago."""
        now = self.clock.now()
        for agent in self.nodes.living():
            if agent.link.session and agent.link.reachable:
                self.engine.heard(agent.token, now)

    def _schedule(self, step: Step) -> None:
        if step.next_look is None:
            self._due_s = _NEVER
            return
        due = max(self.clock.true_s(step.next_look), self.timeline.now_s + 0.01)
        if due != self._due_s:
            self._due_s = due
            life = self.life
            self.timeline.at(due, lambda: self._look(life, due))

    def _look(self, life: int, due_s: float) -> None:
        if life == self.life and due_s == self._due_s:
            self._due_s = _NEVER
            self.tell(())

    def _tell_story(self, step: Step) -> None:
        for event in step.events:
            if event.journaled:
                self.story.say("daemon", told(event, self._names))

    # Effects ---------------------------------------------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect, life: int) -> None:
        if life != self.life:
            return
        event = execute(effect, {PROVIDER: self.provider}, lambda _: "", self.clock)
        if self.dice.chance("crash after call", self._rate(self.draws.crash_after_call)):
            what = "launch" if isinstance(effect, Launch) else "question" if isinstance(effect, Resolve) else "terminate"
            self.crash(self._downtime_s(), f"during a {what} call")
            return
        self.timeline.after(self.provider.took_s, lambda: self._came_back(event, effect, life))

    def _came_back(self, event: Event, effect: Effect, life: int) -> None:
        if life == self.life:
            self.tell((event,), (subject(effect),))

    # Looking ---------------------------------------------------------------------------------------------------------------------

    def _observe(self, life: int) -> None:
        if life != self.life:
            return
        asked_at = self.clock.now()
        together: list[Listing] = []
        for region in self.cloud.bazaar.regions:
            rows = self._list(region)
            if rows is None:
                continue
            if self.provider.took_s > _SLOW_S:
                # It may be overtaken by a later one.
                self.timeline.after(self.provider.took_s, partial(self._listed, [(region, rows)], asked_at, life))
            else:
                together.append((region, rows))
        self.timeline.after(_SLOW_S, lambda: self._listed(together, asked_at, life))
        self.timeline.after(self.draws.observe_s, lambda: self._observe(life))

    def _list(self, region: str) -> tuple[ObservedInstance, ...] | None:
        try:
            return tuple(self.provider.instances(region))
        except ProviderError:
            # Unknown is a value: nothing is concluded from a listing that failed.
            return None

    def _listed(self, listings: list[Listing], asked_at: datetime, life: int) -> None:
        if life != self.life or not listings:
            return
        now = self.clock.now()
        self.tell([Listed(now, asked_at, PROVIDER, region, rows, self.engine.started_at) for region, rows in listings])

    def _sweep(self, life: int) -> None:
        if life != self.life:
            return
        bazaar = self.cloud.bazaar
        sheet = self.provider.offers(OfferQuery(frozenset(bazaar.types), frozenset(bazaar.regions)))
        kept = {key: offer for key, offer in self.engine.offers.items() if key.region in sheet.failures}
        self.checks.swept([region for region in bazaar.regions if region not in sheet.failures])
        self.engine.use_offers(kept | {offer.key: offer for offer in sheet.offers})
        self.timeline.after(self.draws.prices_s, lambda: self._sweep(life))
        if life > 0 and self.steps:
            self.tell(())

    def noticed(self, machine: Machine) -> None:
        """The provider's own channel tells of a reclaim; it tells again until that is recorded."""
        reclaim = machine.reclaim
        if reclaim is None or not machine.alive:
            return
        left_s = reclaim.deadline_s - self.timeline.now_s
        if self.up:
            instance = next((i for i in self.engine.world.instances.values() if i.provider_id == machine.provider_id and i.live), None)
            if instance is None:
                return
            now = self.clock.now()
            notice = Notice(NoticeKind.RECLAIM, NoticeSource.PROVIDER, now, now + timedelta(seconds=max(left_s, 0.0)))
            try:
                self.record((NoticeSeen(now, instance.id, notice),))
            except NoAnswer:
                pass
            else:
                return
        self.timeline.after(self.dice.between("channel again", 5.0, 30.0), lambda: self.noticed(machine))
