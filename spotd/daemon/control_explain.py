"""`spotd explain`: what placement sees for one job now, with every factor, and why nothing else is done."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from spotd.core.cooldown import Cooling
from spotd.core.fallback import SHY, market_for, preemptions, return_due, shy_regions
from spotd.core.offer import Market
from spotd.core.placement import Placement, choose, rank
from spotd.core.planner.placing import decide_market, shortlists
from spotd.daemon.control_views import View, hold_view, offer_view, priced_view, seconds_view, time_view, usd_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spotd.core.attempt import Attempt
    from spotd.core.instance import Instance
    from spotd.core.job import Job
    from spotd.core.placement import Ranked
    from spotd.core.plan import Hold, Snapshot
    from spotd.core.policy import Policy


def explanation(job: Job, attempts: Sequence[Attempt], instances: Sequence[Instance], hold: Hold | None, snapshot: Snapshot) -> View:
    """Everything that decides where a job goes, and what it waits for."""
    policy = snapshot.policies.get(job.spec.policy)
    view: View = {
        "policy": job.spec.policy,
        "hold": hold_view(hold) if job.outcome is None else None,
        "not_before": time_view(job.not_before),
        "tries": [try_view(i, attempts) for i in instances],
        "policy_loaded": policy is not None,
        "market": None,
        "ranking": [],
        "rejected": [],
        "if_placed_now": None,
        "return_to_spot": None,
    }
    if policy is None:
        return view
    ranking = rank(policy, snapshot.offers, snapshot.world.lifetimes, snapshot.now)
    shy = _shy(attempts, instances, snapshot)
    view["ranking"] = [_ranked_view(entry, shy, snapshot) for entry in ranking.ranked]
    view["rejected"] = [{**priced_view(offer, snapshot.now), "why": why.value} for offer, why in ranking.rejected]
    if job.outcome is None:
        view["market"] = _market(job, policy, attempts, snapshot)
        view["if_placed_now"] = _next(job, policy, attempts, shy, snapshot)
        view["return_to_spot"] = _return(policy, attempts)
    return view


def try_view(instance: Instance, attempts: Sequence[Attempt]) -> View:
    """One launch request and what came of it."""
    number = next((a.number for a in attempts if a.id == instance.attempt_id), instance.request.attempt)
    return {
        "attempt": number,
        "try": instance.try_number,
        "offer": offer_view(instance.request.offer),
        "price_usd_per_hour": usd_view(instance.price_usd_per_hour),
        "requested_at": time_view(instance.requested_at),
        "because": instance.because,
        "state": instance.state.value,
        "refusal": instance.refusal.value if instance.refusal else None,
        "error": instance.error,
        "ended_by": instance.ended_by.value if instance.ended_by else None,
    }


def _shy(attempts: Sequence[Attempt], instances: Sequence[Instance], snapshot: Snapshot) -> frozenset[tuple[str, str]]:
    where = {i.attempt_id: (i.request.offer.provider, i.request.offer.region) for i in instances}
    return shy_regions(attempts, where, snapshot.now)


def _market(job: Job, policy: Policy, attempts: Sequence[Attempt], snapshot: Snapshot) -> View:
    choice = market_for(job, policy, attempts, snapshot.now)
    waited = snapshot.now - job.waiting_since if job.waiting_since is not None else timedelta(0)
    return {
        "first": choice.first.value,
        "then": choice.then.value if choice.then else None,
        "because": choice.because,
        "preemptions": preemptions(job, policy, attempts, snapshot.now),
        "max_preemptions": policy.spot_handlers.max_preemptions,
        "preemption_window_s": seconds_view(policy.spot_handlers.preemption_window),
        "counted_since": time_view(job.spot_since) if policy.spot_handlers.preemption_window is None else None,
        "waited_s": round(waited.total_seconds(), 3),
        "max_wait_s": seconds_view(policy.max_wait),
    }


def _ranked_view(entry: Ranked, shy: frozenset[tuple[str, str]], snapshot: Snapshot) -> View:
    key = entry.offer.key
    cooldown = Cooling.at(snapshot.world.cooldowns, snapshot.now).of(key)
    suspended = snapshot.world.suspended.get(key.provider)
    return {
        **priced_view(entry.offer, snapshot.now),
        "hazard_per_hour": round(entry.hazard_per_hour, 6),
        "overhead": round(entry.overhead, 6),
        "cost_usd_per_useful_hour": f"{entry.cost_usd_per_useful_hour:.6f}",
        "preference": entry.preference,
        "just_reclaimed_there": (key.provider, key.region) in shy,
        "just_reclaimed_s": SHY.total_seconds(),
        "cooldown": None
        if cooldown is None
        else {
            "until": time_view(cooldown.until),
            "cause": cooldown.cause.value if cooldown.cause else "reclaim",
            "failures": cooldown.failures,
            "covers": f"{cooldown.key.region}/{cooldown.key.zone}/{cooldown.key.instance_type}",
        },
        "suspended_until": time_view(suspended) if suspended is not None and suspended > snapshot.now else None,
    }


def _next(job: Job, policy: Policy, attempts: Sequence[Attempt], shy: frozenset[tuple[str, str]], snapshot: Snapshot) -> View:
    """What the planner would buy for the job. A running job is not placed; this is what a replacement would get."""
    lists = shortlists(snapshot, policy, Cooling.at(snapshot.world.cooldowns, snapshot.now))
    spot, on_demand = choose(lists[Market.SPOT], shy), choose(lists[Market.ON_DEMAND], shy)
    found = decide_market(market_for(job, policy, attempts, snapshot.now), spot, on_demand)
    if isinstance(found, Placement):
        return {"offer": offer_view(found.offer.key), "because": found.because, "why": None, "detail": None, "until": None}
    return {"offer": None, "because": None, "why": found.why.value, "detail": found.detail, "until": time_view(found.until)}


def _return(policy: Policy, attempts: Sequence[Attempt]) -> str | None:
    dues = [due for a in attempts if (due := return_due(a, attempts, policy)) is not None]
    return time_view(max(dues, default=None))
