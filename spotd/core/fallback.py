"""From spot to on-demand, and back: the preemption budget and the time to return."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from spotd.core.attempt import Attempt, AttemptState, Purpose
from spotd.core.offer import Market

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spotd.core.job import Job
    from spotd.core.policy import Policy

#: Offers of a region come last for this long after a job was reclaimed there.
SHY = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class MarketChoice:
    """Which market the next try is made in, and whether the other may follow when nothing is to be had."""

    first: Market
    #: Tried when the first has nothing now.
    then: Market | None
    because: str


def preemptions(job: Job, policy: Policy, attempts: Iterable[Attempt], now: datetime) -> int:
    """How many preemptions count now: those within `preemption_window`, else since the job last returned to spot."""
    window = policy.spot_handlers.preemption_window
    since = now - window if window is not None else (job.spot_since or job.submitted_at)
    return sum(1 for a in attempts if a.preempted_at is not None and a.preempted_at >= since)


def market_for(job: Job, policy: Policy, attempts: Iterable[Attempt], now: datetime) -> MarketChoice:
    """On-demand at `max_preemptions`, spot otherwise; both when the job has waited `max_wait` on spot alone."""
    count = preemptions(job, policy, attempts, now)
    limit = policy.spot_handlers.max_preemptions
    if count >= limit:
        return MarketChoice(Market.ON_DEMAND, None, f"{count} preemptions, max_preemptions is {limit}: on-demand")
    waited = now - job.waiting_since if job.waiting_since is not None else timedelta(0)
    if waited >= policy.max_wait:
        return MarketChoice(Market.SPOT, Market.ON_DEMAND, f"waited {waited} of max_wait {policy.max_wait}: on-demand if there is no spot")
    return MarketChoice(Market.SPOT, None, f"{count} of {limit} preemptions: spot")


def return_due(attempt: Attempt, attempts: Iterable[Attempt], policy: Policy) -> datetime | None:
    """When a running on-demand attempt may first look for a way back to spot; None: never.

    `return_to_spot.after` counts from its start, and anew from a return that failed. A job that has never committed a checkpoint does not
    return: it would begin again from zero.
    """
    after = policy.return_to_spot_after
    if after is None or attempt.state is not AttemptState.RUNNING or attempt.market is not Market.ON_DEMAND:
        return None
    if attempt.started_at is None or attempt.checkpoint_at is None:
        return None
    failed = [a.ended_at for a in attempts if a.purpose is Purpose.RETURN and a.number > attempt.number and a.ended_at is not None]
    return max([attempt.started_at, *failed]) + after


def shy_regions(attempts: Iterable[Attempt], regions: dict[str, tuple[str, str]], now: datetime) -> frozenset[tuple[str, str]]:
    """(provider, region) pairs where the job was reclaimed within `SHY`; `regions` maps attempt ids to where they were."""
    return frozenset(regions[a.id] for a in attempts if a.preempted_at is not None and now - a.preempted_at < SHY and a.id in regions)
