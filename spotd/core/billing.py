"""What a provider charges for an instance's intervals, by dated rules as data.

The entry in force at launch is applied, and its version goes with every charge, so that a report of last year does not change when a provider
changes its terms: the new terms become one more entry. *Billed seconds* are seconds × speed, speed being `Capabilities.billing_speed`: 1 on
clouds, k where a recorded market is replayed k times faster. Minimum and free time are in billed seconds. Fractions of a second are charged as
fractions; providers may round each instance to whole seconds, which is less than a second's price per instance.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from spotd.core.instance import EndedBy
from spotd.core.money import ZERO_USD
from spotd.core.offer import Market

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spotd.core.instance import Interval

_MICROSECOND = timedelta(microseconds=1)
_MICROSECONDS = 1_000_000
_HOUR_MICROSECONDS = 3_600 * _MICROSECONDS


@dataclass(frozen=True, slots=True)
class Terms:
    """What a provider charges for instances launched from `since` on, until the next entry."""

    version: str
    since: datetime
    #: An instance that ran is charged for at least this many billed seconds.
    minimum_s: int
    #: A spot instance that the provider took back before it had run this many billed seconds costs nothing.
    free_if_reclaimed_within_s: int


#: Oldest entry first. What was launched before the first is charged by it: no earlier terms are recorded.
RULES: Mapping[str, tuple[Terms, ...]] = {
    "aws": (
        # Linux by the second with a minimum of 60, since 2 October 2017
        # (aws.amazon.com/about-aws/whats-new/2017/10/announcing-amazon-ec2-per-second-billing). A spot instance that EC2 interrupts in its first
        # hour is free, one that the user ends never is (facts/reclaim.md §1.11, facts/cloud-api.md §3.1). SUSE and RHEL have hourly terms: not here.
        Terms("aws/2017-10-02", datetime(2017, 10, 2, tzinfo=UTC), minimum_s=60, free_if_reclaimed_within_s=3600),
    ),
    "gcp": (
        # By the second with a minimum of one minute; a spot VM preempted in its first minute is free, GPUs and local SSD included
        # (facts/reclaim.md §2.6, facts/cloud-api.md §4.5). Dated by the edition of Google's "Spot VMs" page that the facts were read from.
        Terms("gcp/2026-03-19", datetime(2026, 3, 19, tzinfo=UTC), minimum_s=60, free_if_reclaimed_within_s=60),
    ),
}


@dataclass(frozen=True, slots=True)
class Charge:
    """What one instance costs. `usd` is what is paid; `billed_seconds` were counted for it, those later credited included."""

    usd: Decimal
    billed_seconds: Decimal
    #: What would have been paid had the provider not taken the instance back while it was young.
    credited_usd: Decimal
    rule_version: str


def terms_at(rule: str, launched_at: datetime) -> Terms:
    """The entry of a rule that an instance launched then is charged by. ValueError for a rule that nobody wrote."""
    try:
        entries = RULES[rule]
    except KeyError:
        raise ValueError(f"There is no billing rule {rule!r}; spotd knows {', '.join(sorted(RULES))}.") from None
    in_force = [entry for entry in entries if entry.since <= launched_at]
    return in_force[-1] if in_force else entries[0]


def billed_microseconds(speed: int, began_at: datetime, ended_at: datetime) -> int:
    """Billed time between two instants, exact; 0 when the end comes first (the two clocks may differ)."""
    return max((ended_at - began_at) // _MICROSECOND, 0) * speed


def usd_from(usd_microseconds: Decimal) -> Decimal:
    """An amount from a sum of hourly price × billed microseconds: divided once, so that it is rounded once, at the 28th digit."""
    return usd_microseconds / _HOUR_MICROSECONDS


def credited(terms: Terms, speed: int, market: Market, launched_at: datetime, ended_at: datetime | None, ended_by: EndedBy | None) -> bool:
    """Whether the provider waives the charge: it took back a spot instance that was still young. Who ended it decides, not who was asked."""
    if market is not Market.SPOT or ended_at is None or ended_by is not EndedBy.RECLAIM:
        return False
    return billed_microseconds(speed, launched_at, ended_at) < terms.free_if_reclaimed_within_s * _MICROSECONDS


def charge(
    rule: str,
    speed: int,
    market: Market,
    intervals: Sequence[Interval],
    launched_at: datetime | None,
    ended_at: datetime | None,
    ended_by: EndedBy | None,
    now: datetime,
) -> Charge:
    """What an instance costs so far (`ended_at` None: up to `now`) or cost in all.

    Intervals are cut at the instance's end: a price change that was seen after the provider had already ended it costs nothing. The minimum
    is owed as soon as an instance runs. An instance that never ran, or whose billing has not begun as far as the provider says
    (`launched_at` None), is charged nothing: pending time is free (facts/reclaim.md §1.11).
    """
    if launched_at is None or ended_by is EndedBy.NEVER_RAN or not intervals:
        return Charge(ZERO_USD, Decimal(0), ZERO_USD, terms_at(rule, launched_at or now).version)
    terms = terms_at(rule, launched_at)
    until = now if ended_at is None else ended_at
    counted = 0
    usd_microseconds = Decimal(0)
    for interval in intervals:
        length = interval_microseconds(speed, interval, launched_at, until)
        counted += length
        usd_microseconds += interval.price_usd_per_hour * length
    missing = max(terms.minimum_s * _MICROSECONDS - counted, 0)
    # At the price in force when it ended: a change that was seen later costs nothing here either.
    last = next((i for i in reversed(intervals) if i.started_at < until), intervals[0])
    usd_microseconds += last.price_usd_per_hour * missing
    billed_seconds = Decimal(counted + missing) / _MICROSECONDS
    usd = usd_from(usd_microseconds)
    if credited(terms, speed, market, launched_at, ended_at, ended_by):
        return Charge(ZERO_USD, billed_seconds, usd, terms.version)
    return Charge(usd, billed_seconds, ZERO_USD, terms.version)


def interval_microseconds(speed: int, interval: Interval, launched_at: datetime, until: datetime) -> int:
    """The billed length of an interval, cut to the instance's life."""
    ended_at = until if interval.ended_at is None else min(interval.ended_at, until)
    return billed_microseconds(speed, max(interval.started_at, launched_at), ended_at)


def reclaim_would_be_free(rule: str, speed: int, market: Market, launched_at: datetime, at: datetime) -> bool:
    """Whether an instance that the provider takes back at `at` would cost nothing: then it is left to the provider (DESIGN §9)."""
    return credited(terms_at(rule, launched_at), speed, market, launched_at, at, EndedBy.RECLAIM)
