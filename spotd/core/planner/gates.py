"""The gate: when the workload of an attempt that is ready may run."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from spotd.core.attempt import AttemptState
from spotd.core.events import GateOpened
from spotd.core.offer import Market
from spotd.core.plan import HoldReason
from spotd.core.planner.fence import fence

if TYPE_CHECKING:
    from spotd.core.plan import Case, Snapshot
    from spotd.core.planner.findings import Findings
    from spotd.core.policy import Policy


def open_gate(snapshot: Snapshot, case: Case, findings: Findings) -> None:
    """Open at most one gate of a job: the newest attempt that is ready, once every earlier workload is known to have stopped."""
    job = case.job
    running = next((a for a in case.active if a.may_have_run), None)
    if running is not None:
        why = HoldReason.RUNNING if running.state is AttemptState.RUNNING else HoldReason.DRAINING
        findings.hold(job.id, why, f"attempt {running.number} is {running.state}")
        return
    ready = [a for a in case.active if a.state is AttemptState.READY]
    if job.cancel_requested_at is not None or not ready:
        return
    attempt = ready[-1]
    if any(i.live and i.notice is not None for i in case.current(attempt)):
        return
    if job.not_before is not None and job.not_before > snapshot.now:
        findings.hold(job.id, HoldReason.BACKING_OFF, "an instance is ready; the job is run again after a back-off", job.not_before)
        return
    closed = fence(snapshot, case, attempt)
    if not closed.open:
        findings.hold(job.id, HoldReason.FENCE, closed.detail)
        return
    findings.decide(GateOpened(snapshot.now, attempt.id, _baseline(snapshot, case, findings), "no earlier workload of the job can run any more"))


def _baseline(snapshot: Snapshot, case: Case, findings: Findings) -> Decimal | None:
    policy = case.policy
    return None if policy is None else findings.once(f"baseline/{policy.name}", lambda: baseline_price(snapshot, policy))


def baseline_price(snapshot: Snapshot, policy: Policy) -> Decimal | None:
    """What the job's user would have paid per hour: `fallback_node`, else the cheapest allowed on-demand offer, at this time's price (DESIGN §9)."""
    fallback = policy.spot_handlers.fallback_node
    prices = [
        offer.price_usd_per_hour
        for key, offer in snapshot.offers.items()
        if key.market is Market.ON_DEMAND
        and any(
            key.provider == c.provider
            and key.region in c.regions
            and (key.instance_type == fallback if fallback is not None else key.instance_type in c.instance_types)
            for c in policy.candidates
        )
    ]
    return min(prices, default=None)
