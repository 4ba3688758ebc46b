"""What holds for every ledger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from spotd.core.attempt import Attempt, AttemptState, EndReason, Purpose
from spotd.core.billing import charge
from spotd.core.instance import EndedBy, Interval
from spotd.core.offer import Market, OfferKey
from spotd.core.savings import Billing, GroupBy, LedgerRow, Savings, report
from tests.contract.histories import Step, histories

START = datetime(2026, 5, 1, 20, tzinfo=UTC)
#: Amounts are divided once per line: lines and their sum may differ in the last of 28 digits.
CENT_OF_NOTHING = Decimal("1e-18")

moments = st.integers(-(10**9), 2 * 10**11).map(lambda us: START + timedelta(microseconds=us))
maybe = st.none() | moments
prices = st.decimals(0, 100, places=6)


@st.composite
def attempts(draw: st.DrawFn) -> Attempt:
    """Any times in any order: clocks differ and words come late."""
    reason = draw(st.none() | st.sampled_from(EndReason))
    number = draw(st.integers(1, 3))
    return Attempt(
        f"job-{number}",
        "job",
        number,
        Purpose.START,
        START,
        AttemptState.RUNNING if reason is None else AttemptState.ENDED,
        launched_at=draw(maybe),
        ready_at=draw(maybe),
        gate_opened_at=draw(maybe),
        started_at=draw(maybe),
        stopped_at=draw(maybe),
        ended_at=None if reason is None else draw(moments),
        reason=reason,
        exit_code=draw(st.none() | st.integers(0, 2)),
        saved=draw(st.none() | st.booleans()),
        step=draw(st.none() | st.integers(0, 3)),
        checkpoint_step=draw(st.none() | st.integers(0, 3)),
        checkpoint_at=draw(maybe),
        baseline_usd_per_hour=draw(st.none() | prices),
    )


@st.composite
def rows(draw: st.DrawFn) -> LedgerRow:
    """An instance with intervals that follow each other, ended or not."""
    launched = draw(moments)
    at = launched
    intervals = []
    for number in range(1, draw(st.integers(1, 4)) + 1):
        end = at + draw(st.integers(0, 5 * 10**10).map(lambda us: timedelta(microseconds=us)))
        intervals.append(Interval("i", number, draw(prices), at, end))
        at = end
    ended: datetime | None = at
    if draw(st.booleans()):
        last = intervals[-1]
        intervals[-1] = Interval("i", last.number, last.price_usd_per_hour, last.started_at)
        ended = None
    offer = OfferKey(draw(st.sampled_from(["aws", "gcp", "local"])), "r", "z", "t", draw(st.sampled_from(Market)))
    by = None if ended is None else draw(st.sampled_from(EndedBy))
    attempt = draw(attempts())
    identity = draw(st.sampled_from(["i-1", "i-2", "i-3"]))
    name, owner = draw(st.sampled_from("ab")), draw(st.sampled_from("xy"))
    return LedgerRow(identity, "job", name, owner, "p", offer, tuple(intervals), launched, ended, by, attempt, draw(st.booleans()))


BILLING = {"aws": Billing("aws"), "gcp": Billing("gcp"), "local": Billing("aws", 60)}
NOW = START + timedelta(days=5)


def the_bill(row: LedgerRow, now: datetime) -> tuple[Decimal, Decimal, Decimal]:
    """What `billing` says of a row."""
    how = BILLING[row.offer.provider]
    found = charge(how.rule, how.speed, row.offer.market, row.intervals, row.launched_at, row.ended_at, row.ended_by, now)
    return found.usd, found.billed_seconds, found.credited_usd


@given(st.lists(rows(), max_size=4), st.sampled_from(GroupBy))
def test_useful_time_and_waste_make_up_the_bill(ledger: list[LedgerRow], by: GroupBy) -> None:
    """Time to the microsecond, money to the last digits, and nothing negative, whatever the clocks said."""
    found = report(ledger, BILLING, by, NOW)
    bills = [the_bill(row, NOW) for row in ledger]
    assert found.total.billed_seconds == sum(seconds for _, seconds, _ in bills)
    assert abs(found.total.spend_usd - sum(usd for usd, _, _ in bills)) < CENT_OF_NOTHING
    assert abs(found.total.credited_usd - sum(credit for _, _, credit in bills)) < CENT_OF_NOTHING
    for line in (*found.rows, found.total):
        assert abs(line.useful_usd + line.waste_usd - line.spend_usd) < CENT_OF_NOTHING
        assert line.useful_seconds >= line.unpriced_seconds >= 0
        assert all(waste.seconds >= 0 and waste.usd >= 0 for waste in line.waste)


@given(st.lists(rows(), max_size=4), st.sampled_from(GroupBy))
def test_groups_add_up_to_the_total(ledger: list[LedgerRow], by: GroupBy) -> None:
    """No piece is in two groups or in none."""
    found = report(ledger, BILLING, by, NOW)
    assert sum(line.billed_seconds for line in found.rows) == found.total.billed_seconds
    assert sum(line.useful_seconds for line in found.rows) == found.total.useful_seconds
    assert abs(sum(line.spend_usd for line in found.rows) - found.total.spend_usd) < CENT_OF_NOTHING
    if found.total.baseline_usd is not None:
        assert abs(sum(line.baseline_usd or 0 for line in found.rows) - found.total.baseline_usd) < CENT_OF_NOTHING


def sums(found: Savings) -> list[Decimal]:
    """What must add up when a span of time is divided."""
    return [found.billed_seconds, found.useful_seconds, found.unpriced_seconds, found.spend_usd, found.credited_usd]


@given(st.lists(rows(), max_size=3), moments, st.sampled_from(GroupBy))
def test_two_halves_of_a_time_make_the_whole(ledger: list[LedgerRow], middle: datetime, by: GroupBy) -> None:
    """What was counted until noon and what was counted since add up, wherever noon is."""
    whole = report(ledger, BILLING, by, NOW).total
    before, after = report(ledger, BILLING, by, NOW, until=middle).total, report(ledger, BILLING, by, NOW, since=middle).total
    for one, two, both in zip(sums(before), sums(after), sums(whole), strict=True):
        assert abs(one + two - both) < CENT_OF_NOTHING


@settings(max_examples=50)
@given(histories())
def test_the_books_of_any_history_balance(steps: list[Step]) -> None:
    """Also of what the fold makes of random events: every instance's time is accounted for, and its bill is paid or waived."""
    world = steps[-1].world
    intervals: dict[str, dict[int, Interval]] = {}
    for step in steps:
        for interval in step.changes.intervals:
            intervals.setdefault(interval.instance_id, {})[interval.number] = interval
    now = max(step.events[-1].at for step in steps if step.events) if any(step.events for step in steps) else START
    ledger = [
        LedgerRow(
            instance.id,
            instance.job_id,
            "name",
            "owner",
            "policy",
            OfferKey("aws", *instance.request.offer.parts()[1:4], instance.request.offer.market),
            tuple(intervals.get(instance.id, {}).values()),
            instance.launched_at,
            instance.ended_at,
            instance.ended_by,
            world.attempts[instance.attempt_id],
        )
        for instance in world.instances.values()
    ]
    found = report(ledger, BILLING, GroupBy.ATTEMPT, now)
    bills = [the_bill(row, now) for row in ledger]
    assert found.total.billed_seconds == sum(seconds for _, seconds, _ in bills)
    assert abs(found.total.spend_usd - sum(usd for usd, _, _ in bills)) < CENT_OF_NOTHING
