"""How long a decision takes: `plan()` for 1,000 jobs and 2,000 offers, in the states a busy daemon sees."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from bench.figures import Figure
from spotd.core.events import AgentReady, Event, JobSubmitted, LaunchSucceeded, NoticeSeen, WorkloadStarted
from spotd.core.fold import fold
from spotd.core.job import Job, JobSpec
from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd.core.offer import Market, Offer, OfferKey
from spotd.core.plan import Launch, ProviderFacts, Snapshot
from spotd.core.planner import plan
from spotd.core.policy import Candidate, Policy, SpotHandlers
from spotd.core.world import World

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOBS, OFFERS, POLICIES, ROUNDS = 1000, 2000, 10, 15


def _offers() -> dict[OfferKey, Offer]:
    offers = {}
    for number in range(OFFERS):
        region, zone, kind = f"region-{number % 20}", f"zone-{number % 60}", f"type-{number // 40 % 25}"
        market = Market.ON_DEMAND if number % 4 == 0 else Market.SPOT
        key = OfferKey("cloud", region, zone + str(number), kind, market)
        price = Decimal(3) if market is Market.ON_DEMAND else Decimal(80 + number % 37) / 100
        offers[key] = Offer(key, price, NOW)
    return offers


def _types(policy: int) -> tuple[str, ...]:
    """Five of the 25 types in each policy, so that every type is in two policies."""
    return tuple(f"type-{(policy * 5 + n) % 25}" for n in range(5))


def _snapshot() -> Snapshot:
    regions = tuple(f"region-{n}" for n in range(20))
    policies = {
        f"policy-{n}": Policy(f"policy-{n}", (Candidate("cloud", _types(n), regions),), SpotHandlers(max_preemptions=n % 4 + 1))
        for n in range(POLICIES)
    }
    facts = {"cloud": ProviderFacts(timedelta(minutes=2), timedelta(minutes=10), "aws")}
    jobs = [
        Job(f"job-{n}", JobSpec(f"job-{n}", f"policy-{n % POLICIES}", "true"), "alice", NOW, spot_since=NOW, waiting_since=NOW) for n in range(JOBS)
    ]
    world, _ = fold(World("bench"), [JobSubmitted(NOW, job) for job in jobs])
    return Snapshot(NOW, world, policies, _offers(), facts, listening_since=NOW)


def _carried_out(snapshot: Snapshot, *, until: str) -> Snapshot:
    """The snapshot after its plan was carried out, with every launch answered as far as `until`."""
    found = plan(snapshot)
    world, _ = fold(snapshot.world, [e for d in found.decisions for e in d.events])
    tokens = [d.effect.request.token for d in found.decisions if isinstance(d.effect, Launch)]
    if until == "launching":
        return replace(snapshot, world=world, in_flight=frozenset(tokens))
    events: list[Event] = []
    for token in tokens:
        events += [LaunchSucceeded(NOW, token, f"i-{token}", NOW), AgentReady(NOW, token, None, None, 1.0, 0.0, 0.0)]
    world, _ = fold(world, events)
    opened = replace(snapshot, world=world)
    world, _ = fold(world, [e for d in plan(opened).decisions for e in d.events])
    world, _ = fold(world, [WorkloadStarted(NOW, token) for token in tokens])
    if until == "running":
        return replace(snapshot, world=world)
    notice = Notice(NoticeKind.RECLAIM, NoticeSource.IMDS, NOW, NOW + timedelta(minutes=2))
    world, _ = fold(world, [NoticeSeen(NOW, token, notice) for token in tokens[:50]])
    return replace(snapshot, world=world)


def _milliseconds(snapshot: Snapshot) -> tuple[float, int]:
    times = []
    found = plan(snapshot)
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        found = plan(snapshot)
        times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times), len(found.decisions)


def measure() -> list[Figure]:
    """All jobs waiting, all launching, all running, and fifty reclaimed at once."""
    waiting = _snapshot()
    cases = {
        "all wait to be placed": waiting,
        "all launches in flight": _carried_out(waiting, until="launching"),
        "all run": _carried_out(waiting, until="running"),
        "50 reclaimed at once": _carried_out(waiting, until="reclaimed"),
    }
    figures = []
    for name, snapshot in cases.items():
        milliseconds, decisions = _milliseconds(snapshot)
        what = f"plan(), {JOBS} jobs x {OFFERS} offers: {name}"
        figures.append(Figure("planning", what, milliseconds, "ms", aim="< 100", note=f"{decisions} decisions, median of {ROUNDS}"))
    return figures
