"""Fold what happened, plan, record the intents, hand out the effects: one step of the loop, the same in the daemon and in the simulator.

The engine knows no threads, clocks or clouds. `step` is called by one writer at a time; it commits before it returns effects, so an intent is
durable before its effect can begin (DESIGN §4 rule 1). If the commit fails nothing has changed and no effect is handed out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from spotd.core.events import Event
from spotd.core.fold import fold
from spotd.core.plan import Effect, Plan, Snapshot, subject
from spotd.core.planner import plan
from spotd.core.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spotd.core.offer import Offer, OfferKey
    from spotd.core.plan import Hold, ProviderFacts
    from spotd.core.policy import Policy
    from spotd.ports import Store

#: Decisions settle in a few rounds (an attempt ends, its job is settled, the next is placed). More means that two rules contradict each other.
MAX_ROUNDS = 12


class PlanDoesNotSettle(Exception):
    """Planning after carrying out a plan never came to rest: a bug of spotd. What was decided is kept and retried at the next step."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did."""

    #: Committed events, those handed in first.
    events: tuple[Event, ...]
    #: To be executed now; each must come back as exactly one event, with its subject.
    effects: tuple[Effect, ...]
    next_look: datetime | None


class Engine:
    """Holds the current world and what is volatile about it."""

    def __init__(self, store: Store, world: World, facts: Mapping[str, ProviderFacts], started_at: datetime, agent_sha256: str = "") -> None:
        self._store = store
        self._world = world
        self._in_flight: frozenset[str] = frozenset()
        self._facts = facts
        self._started_at = started_at
        self._agent_sha256 = agent_sha256
        self._policies: Mapping[str, Policy] = MappingProxyType({})
        self._offers: Mapping[OfferKey, Offer] = MappingProxyType({})
        self._heard: dict[str, datetime] = {}
        self._holds: Mapping[str, Hold] = MappingProxyType({})

    @property
    def started_at(self) -> datetime:
        """Since when this daemon's clock runs without a jump, and agents can have been heard."""
        return self._started_at

    @property
    def world(self) -> World:
        """The last committed world: an immutable value."""
        return self._world

    @property
    def holds(self) -> Mapping[str, Hold]:
        """By job id: why nothing is done about it, as of the last plan."""
        return self._holds

    def use_policies(self, policies: Mapping[str, Policy]) -> None:
        """Plan by these from now on."""
        self._policies = policies

    def use_offers(self, offers: Mapping[OfferKey, Offer]) -> None:
        """Place by these from now on."""
        self._offers = offers

    @property
    def offers(self) -> Mapping[OfferKey, Offer]:
        """What can be bought, as last seen."""
        return self._offers

    def heard(self, instance_id: str, now: datetime) -> None:
        """An agent called."""
        self._heard[instance_id] = now

    def snapshot(self, now: datetime, world: World | None = None) -> Snapshot:
        """What a plan made now reads."""
        return Snapshot(
            now=now,
            world=self._world if world is None else world,
            policies=self._policies,
            offers=self._offers,
            providers=self._facts,
            heard=dict(self._heard),
            listening_since=self._started_at,
            agent_sha256=self._agent_sha256,
            in_flight=self._in_flight,
        )

    def step(self, now: datetime, events: Sequence[Event] = (), done: Iterable[str] = ()) -> Step:
        """Fold events, plan until nothing is left to decide, commit, and return the effects to execute.

        `done` names the subjects of effects that came back with these events. Raises what `fold` or the store raises; nothing has changed then.
        """
        flying = self._in_flight - frozenset(done)
        world, changes = fold(self._world, events)
        recorded = list(events)
        effects: list[Effect] = []
        found = self._plan(now, world, flying)
        rounds = 0
        while found.decisions:
            rounds += 1
            if rounds > MAX_ROUNDS:
                raise PlanDoesNotSettle(f"{len(found.decisions)} decisions were left after {MAX_ROUNDS} rounds: {found.decisions[:3]}")
            decided = [event for decision in found.decisions for event in decision.events]
            new = [d.effect for d in found.decisions if d.effect is not None]
            flying |= {subject(effect) for effect in new}
            effects += new
            recorded += decided
            world, more = fold(world, decided)
            changes = changes.then(more)
            found = self._plan(now, world, flying)
        if recorded:
            self._store.commit(recorded, changes)
        self._world, self._in_flight = self._without_finished(world), flying
        self._holds = {hold.job_id: hold for hold in found.holds}
        return Step(tuple(recorded), tuple(effects), found.next_look)

    def _plan(self, now: datetime, world: World, flying: frozenset[str]) -> Plan:
        return plan(replace(self.snapshot(now, world), in_flight=flying))

    def _without_finished(self, world: World) -> World:
        """Jobs that are over and own nothing any more leave memory; the store keeps them."""
        busy = {i.job_id for i in world.instances.values() if i.live}
        over = {job.id for job in world.jobs.values() if job.outcome is not None and job.id not in busy}
        if not over:
            return world
        gone = [i.id for i in world.instances.values() if i.job_id in over]
        for identity in gone:
            self._heard.pop(identity, None)
        return replace(
            world,
            jobs={k: v for k, v in world.jobs.items() if k not in over},
            attempts={k: v for k, v in world.attempts.items() if v.job_id not in over},
            instances={k: v for k, v in world.instances.items() if v.job_id not in over},
            checkpoints={k: v for k, v in world.checkpoints.items() if k not in over},
        )
