"""A small stage for tests of the core: one provider, two regions, an engine that keeps what it committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from spotd.core.attempt import Attempt
from spotd.core.events import Event, JobSubmitted
from spotd.core.instance import Instance
from spotd.core.job import Job, JobSpec
from spotd.core.offer import Market, Offer, OfferKey
from spotd.core.plan import Effect, ProviderFacts, subject
from spotd.core.policy import Candidate, Policy, SpotHandlers
from spotd.core.world import Changes, World
from spotd.daemon.engine import Engine

START = datetime(2026, 1, 1, tzinfo=UTC)
FACTS = {"cloud": ProviderFacts(notice=timedelta(minutes=2), boot_timeout=timedelta(minutes=10), billing_rule="aws")}


def offer_key(region: str, market: Market = Market.SPOT, zone: str = "a", instance_type: str = "gpu") -> OfferKey:
    """An offer of the stage's only provider."""
    return OfferKey("cloud", region, region + zone, instance_type, market)


def policy(**changes: object) -> Policy:
    """Two regions, one type, three preemptions."""
    values: dict[str, object] = {
        "name": "p",
        "candidates": (Candidate("cloud", ("gpu",), ("east", "west")),),
        "spot_handlers": SpotHandlers(max_preemptions=3),
    }
    return Policy(**(values | changes))  # type: ignore[arg-type]


def job(**spec: object) -> Job:
    """A job of that policy, submitted at the start."""
    values: dict[str, object] = {"name": "train", "policy": "p", "run": "python train.py"}
    return Job("job-1", JobSpec(**(values | spec)), "alice", START, spot_since=START, waiting_since=START)  # type: ignore[arg-type]


@dataclass
class Ledger:
    """A store that remembers what was committed, and can refuse."""

    events: list[Event] = field(default_factory=list)
    broken: bool = False
    #: By number, as last written: what is over leaves the engine's memory.
    attempts: dict[int, Attempt] = field(default_factory=dict)
    #: By id, likewise.
    instances: dict[str, Instance] = field(default_factory=dict)

    def load(self) -> World:
        """Nothing is loaded on this stage."""
        return World("d")

    def commit(self, events: Sequence[Event], changes: Changes) -> None:
        """Remember, or refuse."""
        if self.broken:
            raise OSError("disk full")
        self.events += events
        self.attempts.update((attempt.number, attempt) for attempt in changes.attempts)
        self.instances.update((instance.id, instance) for instance in changes.instances)

    def close(self) -> None:
        """Nothing to release."""


class Stage:
    """An engine at a time that the test steps."""

    def __init__(self, the_policy: Policy | None = None, prices: dict[OfferKey, str] | None = None) -> None:
        self.now = START
        self.ledger = Ledger()
        self.engine = Engine(self.ledger, World("d"), FACTS, START)
        self.use(the_policy or policy())
        self.price(prices or default_prices())
        self.effects: list[Effect] = []
        self.seen: list[str] = []

    def use(self, the_policy: Policy) -> None:
        """Plan by this policy."""
        self.engine.use_policies({the_policy.name: the_policy})

    def price(self, prices: dict[OfferKey, str]) -> None:
        """These are the offers now."""
        self.engine.use_offers({k: Offer(k, Decimal(v), self.now) for k, v in prices.items()})

    def step(self, *events: Callable[[datetime], Event], after: float = 1.0, done: Sequence[Effect] = ()) -> list[str]:
        """Let time pass, hand in events, and tell which kinds were recorded."""
        self.now += timedelta(seconds=after)
        found = self.engine.step(self.now, [make(self.now) for make in events], [subject(e) for e in done])
        self.effects += found.effects
        self.seen = [type(e).__name__ for e in found.events]
        return self.seen

    def submit(self, the_job: Job | None = None) -> None:
        """Submit a job."""
        submitted = the_job or job()
        self.step(lambda at: JobSubmitted(at, submitted), after=0)

    def take(self) -> Effect:
        """The oldest effect that was handed out."""
        return self.effects.pop(0)


def default_prices() -> dict[OfferKey, str]:
    """Spot at a third of on-demand, east a little cheaper than west."""
    return {
        offer_key("east"): "1.00",
        offer_key("west"): "1.10",
        offer_key("east", Market.ON_DEMAND): "3.00",
        offer_key("west", Market.ON_DEMAND): "3.00",
    }
