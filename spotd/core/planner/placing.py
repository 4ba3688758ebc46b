"""Where the next try of a job goes, or why there is none now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from spotd.core.attempt import Attempt, AttemptState, EndReason, Purpose
from spotd.core.cooldown import Cooling
from spotd.core.events import AttemptPlaced, LaunchRequested
from spotd.core.fallback import MarketChoice, market_for, shy_regions
from spotd.core.ids import attempt_id, instance_id
from spotd.core.instance import Instance, InstanceState, LaunchRequest
from spotd.core.offer import Market
from spotd.core.placement import NoPlacement, Placement, Shortlist, choose, rank, shortlist
from spotd.core.plan import HoldReason, Launch
from spotd.core.planner.moving import wanted

if TYPE_CHECKING:
    from decimal import Decimal

    from spotd.core.plan import Case, Snapshot
    from spotd.core.planner.findings import Findings
    from spotd.core.policy import Policy

Shortlists = Mapping[Market, Shortlist]

#: A launch call whose outcome stays unknown this long does not hold the job up: it is tried in another region, and what became of the call
#: is found out beside that. Its workload could not run anyway: the gate is the attempt's.
UNRESOLVED_PATIENCE = timedelta(minutes=3)
#: Room after `max_run_duration` before the provider's own lock ends the instance.
_EXPIRY_ROOM = timedelta(minutes=10)
#: Endings upon which `settling` decides before anything is placed.
_TO_SETTLE = {EndReason.EXITED, EndReason.FAILED_TO_START, EndReason.GUEST_SHUTDOWN, EndReason.EXTERNAL}


def place(snapshot: Snapshot, cases: list[Case], findings: Findings) -> set[str]:
    """Place every job that needs it; the ids of those that were. Offers are ranked once for each policy."""
    placed: set[str] = set()
    lists: dict[str, Shortlists] = {}
    cooldowns = Cooling.at(snapshot.world.cooldowns, snapshot.now)
    for case in cases:
        if case.job.cancel_requested_at is not None or case.invalid_try is not None:
            continue
        if case.policy is None:
            if not case.active:
                detail = f"no policy named {case.job.spec.policy!r} is loaded; add it to the policy directory"
                findings.hold(case.job.id, HoldReason.NO_POLICY, detail)
            continue
        need = _need(snapshot, case, findings)
        if need is None:
            continue
        if case.policy.name not in lists:
            lists[case.policy.name] = shortlists(snapshot, case.policy, cooldowns)
        before = findings.count
        _place(snapshot, case, need, lists[case.policy.name], findings)
        if findings.count != before:
            placed.add(case.job.id)
    return placed


def shortlists(snapshot: Snapshot, policy: Policy, cooldowns: Cooling) -> Shortlists:
    """What a policy may buy now, by market."""
    world = snapshot.world
    ranking = rank(policy, snapshot.offers, world.lifetimes, snapshot.now)
    blocked = {name: facts.blocked for name, facts in snapshot.providers.items() if facts.blocked}
    return {market: shortlist(ranking, market, cooldowns, world.suspended, snapshot.now, blocked) for market in Market}


def _need(snapshot: Snapshot, case: Case, findings: Findings) -> Purpose | Attempt | None:
    """A purpose: a new attempt is due. An attempt: it needs its next try. None: nothing to place."""
    runner = next((a for a in case.active if a.may_have_run), None)
    pending = [a for a in case.active if not a.may_have_run]
    if pending:
        return _next_try(case, pending[-1], findings)
    if any(a.ended and a.number > case.job.settled and a.reason in _TO_SETTLE and case.blamed(a) for a in case.attempts):
        return None
    if runner is None:
        if case.job.not_before is not None and case.job.not_before > snapshot.now:
            findings.hold(case.job.id, HoldReason.BACKING_OFF, "waits before it is run again", case.job.not_before)
            return None
        last = case.attempts[-1].reason if case.attempts else None
        return Purpose.START if last in {None, EndReason.EXITED, EndReason.FAILED_TO_START} else Purpose.REPLACE
    if runner.state is AttemptState.DRAINING:
        return Purpose.REPLACE
    return wanted(case, runner, findings)


def _next_try(case: Case, attempt: Attempt, findings: Findings) -> Attempt | None:
    live = [i for i in case.of(attempt) if i.live]
    if attempt.state is AttemptState.PLACED and all(_given_up(i, findings) for i in live):
        return attempt
    if attempt.state is AttemptState.PLACED:
        findings.hold(case.job.id, HoldReason.LAUNCHING, f"attempt {attempt.number}: {live[-1].request.offer} was asked for")
    elif attempt.state is AttemptState.BOOTING and not any(a.may_have_run for a in case.active):
        findings.hold(case.job.id, HoldReason.BOOTING, f"attempt {attempt.number} boots")
    return None


def _given_up(instance: Instance, findings: Findings) -> bool:
    if instance.state is not InstanceState.REQUESTED or instance.asked_at is None or instance.nonce_sha256 is not None:
        # Not asked yet; or it exists: its agent has called.
        return False
    return instance.refusal is not None or findings.passed(instance.requested_at, UNRESOLVED_PATIENCE)


def _place(snapshot: Snapshot, case: Case, need: Purpose | Attempt, lists: Shortlists, findings: Findings) -> None:
    policy = case.policy
    if policy is None:
        return
    purpose = need if isinstance(need, Purpose) else need.purpose
    runs = any(a.state is AttemptState.RUNNING for a in case.active)
    shy = shy_regions(case.attempts, _regions(case), snapshot.now)
    spot, on_demand = (choose(lists[market], shy, _unresolved_regions(case)) for market in (Market.SPOT, Market.ON_DEMAND))
    only_spot = purpose is Purpose.RETURN and runs
    found = spot if only_spot else decide_market(market_for(case.job, policy, case.attempts, snapshot.now), spot, on_demand)
    if isinstance(found, NoPlacement):
        if not any(a.may_have_run for a in case.active):
            findings.hold(case.job.id, found.why, found.detail, found.until)
        elif found.until is not None:
            findings.look_at(found.until)
        return
    number = case.job.attempts + 1 if isinstance(need, Purpose) else need.number
    identity = attempt_id(case.job.id, number)
    instance = _instance(snapshot, case, policy, identity, number, found, tries=0 if isinstance(need, Purpose) else need.tries)
    requested = LaunchRequested(snapshot.now, instance)
    if isinstance(need, Purpose):
        placed = AttemptPlaced(snapshot.now, case.job.id, identity, number, purpose)
        findings.decide(placed, requested, effect=Launch(instance.request))
    else:
        findings.decide(requested, effect=Launch(instance.request))


def decide_market(choice: MarketChoice, spot: Placement | NoPlacement, on_demand: Placement | NoPlacement) -> Placement | NoPlacement:
    """Which of the best spot offer and the best on-demand offer is bought: what placement does, and what `spotd explain` says it would do."""
    if choice.first is Market.ON_DEMAND:
        if isinstance(on_demand, NoPlacement):
            return NoPlacement(on_demand.why, f"{choice.because}; {on_demand.detail}", on_demand.until)
        return _said(on_demand, choice.because)
    if isinstance(on_demand, NoPlacement):
        return spot
    if isinstance(spot, NoPlacement):
        if choice.then is not None:
            return _said(on_demand, choice.because)
        if spot.why is HoldReason.TOO_EXPENSIVE:
            return _said(on_demand, "every spot offer is dearer than on-demand or above the cap")
        return spot
    return _unless_dearer(spot, on_demand)


def _regions(case: Case) -> dict[str, tuple[str, str]]:
    """Where each attempt is or was."""
    return {a.id: (i.request.offer.provider, i.request.offer.region) for a in case.attempts for i in case.current(a)}


def _unless_dearer(spot: Placement, on_demand: Placement) -> Placement:
    """On-demand at once where the expected cost of spot is not below it (known-faults A.46, A.94)."""
    costs = spot.entry.cost_usd_per_useful_hour, on_demand.entry.cost_usd_per_useful_hour
    if costs[0] < costs[1]:
        return spot
    return _said(on_demand, f"spot would cost ${costs[0]:.4f} per useful hour, on-demand ${costs[1]:.4f}")


def _said(found: Placement, because: str) -> Placement:
    return Placement(found.entry, f"{because}; {found.because}")


def _unresolved_regions(case: Case) -> frozenset[tuple[str, str]]:
    return frozenset(
        (i.request.offer.provider, i.request.offer.region)
        for a in case.active
        for i in case.of(a)
        if i.state is InstanceState.REQUESTED and i.refusal is None
    )


def _instance(snapshot: Snapshot, case: Case, policy: Policy, attempt: str, number: int, found: Placement, *, tries: int) -> Instance:
    key = found.offer.key
    token = instance_id(snapshot.world.deployment, attempt, 0, tries + 1, key)
    request = LaunchRequest(
        token=token,
        deployment=snapshot.world.deployment,
        job_id=case.job.id,
        job_name=case.job.spec.name,
        attempt=number,
        rank=0,
        offer=key,
        max_price_usd_per_hour=_price_cap(policy, found),
        expires_at=snapshot.now + policy.max_run_duration + _EXPIRY_ROOM,
        labels=case.job.spec.labels,
        disk_gb=case.job.spec.disk_gb,
        instance_profile=policy.instance_profile,
        agent_sha256=snapshot.agent_sha256,
    )
    return Instance(
        id=token,
        job_id=case.job.id,
        attempt_id=attempt,
        rank=0,
        try_number=tries + 1,
        request=request,
        price_usd_per_hour=found.offer.price_usd_per_hour,
        because=found.because,
        requested_at=snapshot.now,
    )


def _price_cap(policy: Policy, found: Placement) -> Decimal | None:
    """Spot never above the policy's cap nor above the on-demand price of the same type in the same region."""
    if found.offer.key.market is not Market.SPOT:
        return None
    caps = [c for c in (policy.max_hourly_price_usd, found.entry.on_demand_usd_per_hour) if c is not None]
    return min(caps, default=None)
