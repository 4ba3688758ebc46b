"""What a provider charges: the table of facts/reclaim.md §1.11 and §2.6, line by line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from spotd.core.billing import RULES, Charge, charge, reclaim_would_be_free, terms_at
from spotd.core.instance import EndedBy, Interval
from spotd.core.offer import Market

LAUNCHED = datetime(2026, 5, 1, 10, tzinfo=UTC)
NOW = LAUNCHED + timedelta(days=1)
PRICE = Decimal("3.60")  # a tenth of a cent a second


def after(seconds: float) -> datetime:
    """That long after the launch."""
    return LAUNCHED + timedelta(seconds=seconds)


def bill(rule: str, seconds: float, by: EndedBy = EndedBy.US, market: Market = Market.SPOT, speed: int = 1) -> Charge:
    """The charge for an instance that lived so long at one price."""
    intervals = [Interval("i", 1, PRICE, LAUNCHED, after(seconds))]
    return charge(rule, speed, market, intervals, LAUNCHED, after(seconds), by, NOW)


@pytest.mark.parametrize(
    ("rule", "seconds", "by", "market", "usd", "credited"),
    [
        # Nobody pays for the first hour of what EC2 takes back, nor for one second of it less.
        ("aws", 1, EndedBy.RECLAIM, Market.SPOT, "0", "0.060"),
        ("aws", 3599.999999, EndedBy.RECLAIM, Market.SPOT, "0", "3.599999999"),
        ("aws", 3600, EndedBy.RECLAIM, Market.SPOT, "3.6", "0"),
        ("aws", 3601, EndedBy.RECLAIM, Market.SPOT, "3.601", "0"),
        # Who ended it decides.
        ("aws", 1800, EndedBy.US, Market.SPOT, "1.8", "0"),
        ("aws", 1800, EndedBy.EXTERNAL, Market.SPOT, "1.8", "0"),
        ("aws", 1800, EndedBy.GUEST, Market.SPOT, "1.8", "0"),
        ("aws", 1800, EndedBy.MAINTENANCE, Market.SPOT, "1.8", "0"),
        ("aws", 1800, EndedBy.UNKNOWN, Market.SPOT, "1.8", "0"),
        # On-demand capacity is never free, whoever ends it.
        ("aws", 1800, EndedBy.RECLAIM, Market.ON_DEMAND, "1.8", "0"),
        # The minimum of 60 seconds.
        ("aws", 0, EndedBy.US, Market.SPOT, "0.06", "0"),
        ("aws", 59.5, EndedBy.US, Market.ON_DEMAND, "0.06", "0"),
        ("aws", 60, EndedBy.US, Market.SPOT, "0.06", "0"),
        ("aws", 60.5, EndedBy.US, Market.SPOT, "0.0605", "0"),
        # What was refused or died while pending.
        ("aws", 500, EndedBy.NEVER_RAN, Market.SPOT, "0", "0"),
        ("gcp", 500, EndedBy.NEVER_RAN, Market.SPOT, "0", "0"),
        # GCP gives the first minute only.
        ("gcp", 59, EndedBy.RECLAIM, Market.SPOT, "0", "0.06"),
        ("gcp", 60, EndedBy.RECLAIM, Market.SPOT, "0.06", "0"),
        ("gcp", 1800, EndedBy.RECLAIM, Market.SPOT, "1.8", "0"),
        ("gcp", 10, EndedBy.US, Market.SPOT, "0.06", "0"),
    ],
)
def test_the_table_of_charges(rule: str, seconds: float, by: EndedBy, market: Market, usd: str, credited: str) -> None:
    """Each line of the providers' terms."""
    found = bill(rule, seconds, by, market)
    assert (found.usd, found.credited_usd) == (Decimal(usd), Decimal(credited))


@pytest.mark.parametrize(
    ("seconds", "by", "usd", "billed"),
    [(60, EndedBy.US, "3.6", 3600), (59, EndedBy.RECLAIM, "0", 3540), (60, EndedBy.RECLAIM, "3.6", 3600), (0.5, EndedBy.US, "0.06", 60)],
)
def test_a_fast_market_is_billed_by_its_own_seconds(seconds: float, by: EndedBy, usd: str, billed: int) -> None:
    """Sixty times faster, a minute is an hour: for the price, the minimum and the free hour alike."""
    found = bill("aws", seconds, by, speed=60)
    assert (found.usd, found.billed_seconds) == (Decimal(usd), Decimal(billed))


def test_each_interval_is_charged_at_its_price() -> None:
    """A price that moved counts from when it moved."""
    intervals = [Interval("i", 1, Decimal(1), LAUNCHED, after(1800)), Interval("i", 2, Decimal(3), after(1800), after(5400))]
    found = charge("aws", 1, Market.SPOT, intervals, LAUNCHED, after(5400), EndedBy.US, NOW)
    assert found == Charge(Decimal("3.5"), Decimal(5400), Decimal(0), "aws/2017-10-02")


def test_an_open_interval_is_charged_up_to_now() -> None:
    """A running instance costs what it has cost so far, and its minimum from the first second."""
    intervals = [Interval("i", 1, PRICE, LAUNCHED)]

    def so_far(seconds: float) -> Decimal:
        return charge("aws", 1, Market.SPOT, intervals, LAUNCHED, None, None, after(seconds)).usd

    assert [so_far(0), so_far(30), so_far(100)] == [Decimal("0.06"), Decimal("0.06"), Decimal("0.1")]


def test_nothing_is_charged_after_the_end() -> None:
    """A price change that we saw after the provider had ended the instance, and an interval nobody closed, stop at its end."""
    intervals = [Interval("i", 1, PRICE, LAUNCHED, after(110)), Interval("i", 2, PRICE * 10, after(110), after(110))]
    assert charge("aws", 1, Market.SPOT, intervals, LAUNCHED, after(100), EndedBy.US, NOW).usd == Decimal("0.1")
    assert charge("aws", 1, Market.SPOT, [Interval("i", 1, PRICE, LAUNCHED)], LAUNCHED, after(100), EndedBy.US, NOW).usd == Decimal("0.1")


def test_the_minimum_is_owed_at_the_price_in_force_at_the_end() -> None:
    """Simulation seed 408: a price seen after the end of an instance of 48 s was charged for the rest of its first minute."""
    intervals = [Interval("i", 1, PRICE, LAUNCHED, after(70)), Interval("i", 2, PRICE * 10, after(70), after(70))]
    assert charge("aws", 1, Market.SPOT, intervals, LAUNCHED, after(48), EndedBy.US, NOW).usd == Decimal("0.06")


def test_what_never_began_to_be_billed_is_free() -> None:
    """No launch time, no interval: pending, or refused."""
    assert charge("aws", 1, Market.SPOT, [], None, None, None, NOW).usd == 0
    assert charge("aws", 1, Market.SPOT, [], LAUNCHED, after(10), EndedBy.US, NOW) == Charge(Decimal(0), Decimal(0), Decimal(0), "aws/2017-10-02")


@pytest.mark.parametrize("rule", sorted(RULES))
def test_terms_are_in_the_order_of_their_dates(rule: str) -> None:
    """The entry of a rule is picked by the launch, and what was launched before the first falls under the first."""
    entries = RULES[rule]
    assert list(entries) == sorted(entries, key=lambda entry: entry.since)
    for entry in entries:
        assert terms_at(rule, entry.since) is entry
    assert terms_at(rule, datetime(1999, 1, 1, tzinfo=UTC)) is entries[0]
    assert len({entry.version for entry in entries}) == len(entries)


def test_a_rule_that_nobody_wrote_is_an_error() -> None:
    """It lists those there are, rather than charging nothing."""
    with pytest.raises(ValueError, match="no billing rule 'azure'; spotd knows aws, gcp"):
        terms_at("azure", LAUNCHED)


@pytest.mark.parametrize(
    ("rule", "speed", "market", "seconds", "free"),
    [
        ("aws", 1, Market.SPOT, 3599, True),
        ("aws", 1, Market.SPOT, 3600, False),
        ("aws", 1, Market.ON_DEMAND, 10, False),
        ("aws", 60, Market.SPOT, 59, True),
        ("aws", 60, Market.SPOT, 61, False),
        ("gcp", 1, Market.SPOT, 59, True),
        ("gcp", 1, Market.SPOT, 120, False),
    ],
)
def test_when_a_reclaim_would_be_free(rule: str, speed: int, market: Market, seconds: float, free: bool) -> None:
    """The planner leaves a young instance under notice to the provider exactly where that makes its charge zero."""
    assert reclaim_would_be_free(rule, speed, market, LAUNCHED, after(seconds)) is free
    assert (bill(rule, seconds, EndedBy.RECLAIM, market, speed).usd == 0) is free
