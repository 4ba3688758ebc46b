"""What holds for every bill."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from spotd.core.billing import RULES, charge, reclaim_would_be_free
from spotd.core.instance import EndedBy, Interval
from spotd.core.offer import Market

LAUNCHED = datetime(2026, 5, 1, tzinfo=UTC)

rules = st.sampled_from(sorted(RULES))
speeds = st.sampled_from([1, 7, 120])
markets = st.sampled_from(Market)
prices = st.decimals(0, 100, places=6)
lengths = st.integers(0, 10**11).map(lambda us: timedelta(microseconds=us))


@st.composite
def bills(draw: st.DrawFn) -> tuple[list[Interval], datetime]:
    """Intervals that follow each other from the launch on, and their end."""
    at = LAUNCHED
    intervals = []
    for number, length in enumerate(draw(st.lists(lengths, min_size=1, max_size=6)), start=1):
        intervals.append(Interval("i", number, draw(prices), at, at + length))
        at += length
    return intervals, at


@given(bills(), rules, speeds, markets, st.sampled_from(EndedBy))
def test_a_bill_is_either_paid_or_waived(bill: tuple[list[Interval], datetime], rule: str, speed: int, market: Market, by: EndedBy) -> None:
    """Never both, never negative; waived exactly when the provider took back a young spot instance; and at least the minimum was counted."""
    intervals, end = bill
    found = charge(rule, speed, market, intervals, LAUNCHED, end, by, end)
    assert found.usd >= 0
    assert found.credited_usd >= 0
    assert not (found.usd and found.credited_usd)
    free = by is EndedBy.RECLAIM and reclaim_would_be_free(rule, speed, market, LAUNCHED, end)
    if by is EndedBy.NEVER_RAN:
        assert found.usd == found.credited_usd == found.billed_seconds == 0
    else:
        assert found.billed_seconds == max(Decimal((end - LAUNCHED) // timedelta(microseconds=1)) * speed / 1_000_000, Decimal(60))
        assert not (free and found.usd)
        assert free or not found.credited_usd


@given(bills(), rules, speeds, markets)
def test_cutting_an_interval_in_two_changes_nothing(bill: tuple[list[Interval], datetime], rule: str, speed: int, market: Market) -> None:
    """How finely the ledger is divided does not matter, to the last digit."""
    intervals, end = bill
    cut: list[Interval] = []
    for interval in intervals:
        assert interval.ended_at is not None
        middle = interval.started_at + (interval.ended_at - interval.started_at) / 3
        cut.append(Interval("i", len(cut) + 1, interval.price_usd_per_hour, interval.started_at, middle))
        cut.append(Interval("i", len(cut) + 1, interval.price_usd_per_hour, middle, interval.ended_at))
    whole = charge(rule, speed, market, intervals, LAUNCHED, end, EndedBy.US, end)
    assert charge(rule, speed, market, cut, LAUNCHED, end, EndedBy.US, end) == whole


@given(bills(), rules, speeds, markets, lengths)
def test_a_running_instance_never_gets_cheaper(
    bill: tuple[list[Interval], datetime], rule: str, speed: int, market: Market, later: timedelta
) -> None:
    """What is owed grows with time, and at the end is what was owed at the last moment."""
    intervals, end = bill
    last = intervals[-1]
    running = [*intervals[:-1], Interval("i", last.number, last.price_usd_per_hour, last.started_at)]
    at_end = charge(rule, speed, market, running, LAUNCHED, None, None, end)
    assert at_end == charge(rule, speed, market, intervals, LAUNCHED, end, EndedBy.US, end)
    assert charge(rule, speed, market, running, LAUNCHED, None, None, end + later).usd >= at_end.usd
