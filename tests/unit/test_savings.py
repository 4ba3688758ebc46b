"""What was spent, what it was good for, and what the same work would have cost."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from spotd.core.attempt import Attempt, AttemptState, EndReason, Purpose
from spotd.core.instance import EndedBy, Interval
from spotd.core.offer import Market, OfferKey
from spotd.core.savings import Billing, Cause, GroupBy, LedgerRow, Report, Savings, report

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
NOW = NOON + timedelta(days=2)
BILLING = {"aws": Billing("aws"), "gcp": Billing("gcp"), "local": Billing("aws", speed=60)}


def at(minutes: float) -> datetime:
    """That long after noon."""
    return NOON + timedelta(minutes=minutes)


def attempt(**changed: Any) -> Attempt:
    """Launched at noon, ready at 5, let in at 7, at work from 10 on, baseline 6 $/h. Changes name minutes."""
    times: dict[str, Any] = {"launched_at": 0, "ready_at": 5, "gate_opened_at": 7, "started_at": 10}
    fields = {name: value for name, value in changed.items() if not name.endswith("_at")}
    times.update({name: value for name, value in changed.items() if name.endswith("_at")})
    state = AttemptState.ENDED if "reason" in changed else AttemptState.RUNNING
    base = Attempt("job-1", "job", 1, Purpose.START, NOON, state, Market.SPOT, baseline_usd_per_hour=Decimal(6))
    moments: dict[str, Any] = {name: None if value is None else at(value) for name, value in times.items()}
    return replace(base, **moments, **fields)


def row(of: Attempt, ended: float | None = None, by: EndedBy | None = None, usd: str = "1.20", **changed: Any) -> LedgerRow:
    """An instance of an attempt, launched at noon at one price."""
    end = None if ended is None else at(ended)
    offer = OfferKey("aws", "us-1", "us-1a", "gpu.8", Market.SPOT)
    intervals = (Interval("i-1", 1, Decimal(usd), NOON, end),)
    base = LedgerRow("i-1", "job", "train", "alice", "h100", offer, intervals, NOON, end, by, of)
    return replace(base, **changed)


def counted(*rows: LedgerRow, now: datetime = NOW, **asked: Any) -> Savings:
    """The total of some rows."""
    return report(rows, BILLING, asked.pop("by", GroupBy.JOB), now, **asked).total


def minutes(found: Savings) -> dict[str, float]:
    """Where billed time went, in minutes, zeros left out."""
    lines = {"useful": found.useful_seconds, **{line.cause.value: line.seconds for line in found.waste}}
    return {name: float(seconds) / 60 for name, seconds in lines.items() if seconds}


def test_a_clean_run() -> None:
    """Boot and gate before it, the machine's own end after it; the work between counts whole."""
    found = counted(row(attempt(stopped_at=70, ended_at=70, reason=EndReason.EXITED, exit_code=0), ended=72, by=EndedBy.US))
    assert minutes(found) == {"useful": 60, "boot": 8, "gate": 2, "drain": 2}
    assert found.spend_usd == Decimal("1.44")
    assert found.baseline_usd == Decimal(6)
    assert found.saving_usd == Decimal("4.56")
    assert found.saving_pct == 76
    assert found.useful_hours == 1
    assert found.useful_usd == Decimal("1.20")
    assert found.waste_usd == Decimal("0.24")


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        # Reclaimed without a checkpoint: all of it is lost.
        ({"stopped_at": 70, "ended_at": 70, "reason": EndReason.RECLAIMED}, {"boot": 8, "gate": 2, "lost": 60, "drain": 2}),
        # Reclaimed twenty minutes after the last checkpoint.
        (
            {"stopped_at": 70, "ended_at": 70, "reason": EndReason.RECLAIMED, "checkpoint_at": 50, "saved": False},
            {"boot": 8, "gate": 2, "useful": 40, "lost": 20, "drain": 2},
        ),
        # It answered the warning with a checkpoint of its last step; after that it only stopped.
        (
            {"stopped_at": 70, "ended_at": 70, "reason": EndReason.RECLAIMED, "checkpoint_at": 69, "saved": True, "step": 9, "checkpoint_step": 9},
            {"boot": 8, "gate": 2, "useful": 59, "drain": 3},
        ),
        # The checkpoint came, and the workload went on for some steps that it does not hold.
        (
            {"stopped_at": 70, "ended_at": 70, "reason": EndReason.RECLAIMED, "checkpoint_at": 69, "saved": True, "step": 9, "checkpoint_step": 8},
            {"boot": 8, "gate": 2, "useful": 59, "lost": 1, "drain": 2},
        ),
        # It failed by itself: what it did since the checkpoint is done again.
        (
            {"stopped_at": 70, "ended_at": 70, "reason": EndReason.EXITED, "exit_code": 1, "checkpoint_at": 40},
            {"boot": 8, "gate": 2, "useful": 30, "lost": 30, "drain": 2},
        ),
        # Vanished: when its end was noticed counts, cut to the instance's end.
        ({"ended_at": 90, "reason": EndReason.LOST, "checkpoint_at": 40}, {"boot": 8, "gate": 2, "useful": 30, "lost": 32}),
        # The checkpoint was committed after the stop was reported.
        ({"stopped_at": 70, "ended_at": 70, "reason": EndReason.MOVED, "checkpoint_at": 71}, {"boot": 8, "gate": 2, "useful": 60, "drain": 2}),
        # The last checkpoint is older than the workload (an agent spoke late): bounded by the run.
        ({"stopped_at": 70, "ended_at": 70, "reason": EndReason.LOST, "checkpoint_at": 3}, {"boot": 8, "gate": 2, "lost": 60, "drain": 2}),
        # Running: nothing is lost yet.
        ({}, {"boot": 8, "gate": 2, "useful": 62}),
        ({"checkpoint_at": 20}, {"boot": 8, "gate": 2, "useful": 62}),
        # Never came up.
        (
            {"ready_at": None, "gate_opened_at": None, "started_at": None, "ended_at": 60, "reason": EndReason.BOOT_TIMEOUT},
            {"boot": 60, "drain": 12},
        ),
        # Waited at the gate and was not needed.
        ({"gate_opened_at": None, "started_at": None, "ended_at": 60, "reason": EndReason.NOT_NEEDED}, {"boot": 5, "gate": 55, "drain": 12}),
        # Let in, and the process could not be started.
        (
            {"started_at": None, "stopped_at": 9, "ended_at": 9, "reason": EndReason.FAILED_TO_START},
            {"boot": 7, "gate": 2, "drain": 63},
        ),
        # Still booting, and still waiting.
        ({"ready_at": None, "gate_opened_at": None, "started_at": None}, {"boot": 72}),
        ({"gate_opened_at": None, "started_at": None}, {"boot": 5, "gate": 67}),
    ],
)
def test_where_billed_time_went(case: dict[str, Any], expected: dict[str, float]) -> None:
    """Each way an attempt can go, for a machine that lived 72 minutes: every minute has one cause."""
    found = counted(row(attempt(**case), ended=72, by=EndedBy.US))
    assert minutes(found) == expected
    assert found.billed_seconds == 72 * 60
    assert found.spend_usd == Decimal("1.44")


def test_a_waived_charge_is_no_spend() -> None:
    """An instance that EC2 took back within its first hour did useful work for nothing: the saving is the whole baseline."""
    of = attempt(stopped_at=30, ended_at=30, reason=EndReason.RECLAIMED, checkpoint_at=30, saved=True)
    found = counted(row(of, ended=32, by=EndedBy.RECLAIM))
    assert found.spend_usd == found.waste_usd == found.useful_usd == 0
    assert found.credited_usd == Decimal("0.64")
    assert found.saving_usd == found.baseline_usd == Decimal(2)
    assert minutes(found) == {"boot": 8, "gate": 2, "useful": 20, "drain": 2}


@pytest.mark.parametrize("by", [EndedBy.NEVER_RAN])
def test_what_never_ran_is_nothing(by: EndedBy) -> None:
    """A refused try, and one that died while pending, have no time and no cost, whatever was recorded of them."""
    of = attempt(ready_at=None, gate_opened_at=None, started_at=None)
    refused = row(of, launched_at=None, intervals=(), ended_by=by)
    died = row(of, ended=3, by=by)
    found = counted(refused, died)
    assert (found.spend_usd, found.billed_seconds, found.instances, found.baseline_usd) == (Decimal(0), Decimal(0), 0, Decimal(0))
    assert found.saving_pct is None


def test_a_minimum_charge_is_waste_of_its_own() -> None:
    """Fifteen seconds are billed as sixty: the other forty-five were nobody's work."""
    of = attempt(ready_at=None, gate_opened_at=None, started_at=None, ended_at=0.25, reason=EndReason.NOT_NEEDED)
    assert minutes(counted(row(of, ended=0.25, by=EndedBy.US))) == {"boot": 0.25, "other": 0.75}


def test_a_machine_whose_try_was_given_up_did_no_work() -> None:
    """Two machines of one attempt: the one that a newer try replaced is counted apart, not as useful time once more."""
    of = attempt(stopped_at=70, ended_at=70, reason=EndReason.EXITED, exit_code=0)
    replaced = row(of, ended=30, by=EndedBy.US, superseded=True, instance_id="i-0")
    found = counted(row(of, ended=72, by=EndedBy.US), replaced)
    assert minutes(found) == {"useful": 60, "boot": 8, "gate": 2, "drain": 2, "other": 30}
    assert found.baseline_usd == 6


def test_a_gang_counts_each_machine() -> None:
    """Two machines that work for an hour did two useful hours, each at the baseline of one."""
    of = attempt(stopped_at=70, ended_at=70, reason=EndReason.EXITED, exit_code=0)
    found = counted(row(of, ended=72, by=EndedBy.US), row(of, ended=72, by=EndedBy.US, instance_id="i-2"))
    assert (found.useful_hours, found.baseline_usd, found.instances, found.attempts, found.jobs) == (Decimal(2), Decimal(12), 2, 1, 1)


def test_a_fast_market_counts_its_own_time() -> None:
    """Where a market is replayed sixty times faster, time, spend and baseline are all sixty times those of the clock."""
    of = attempt(stopped_at=70, ended_at=70, reason=EndReason.EXITED, exit_code=0)
    local = OfferKey("local", "us-1", "us-1a", "gpu.8", Market.SPOT)
    found = counted(row(of, ended=72, by=EndedBy.US, offer=local))
    assert (found.useful_hours, found.baseline_usd, found.spend_usd) == (Decimal(60), Decimal(360), Decimal("86.4"))
    assert found.saving_pct == 76


def test_an_unknown_baseline_makes_an_unknown_saving() -> None:
    """Where no on-demand price was known when the work began nothing is made up, and how much that concerns is said."""
    of = attempt(stopped_at=70, ended_at=70, reason=EndReason.EXITED, exit_code=0)
    blind = replace(of, id="job-2", number=2, baseline_usd_per_hour=None)
    found = counted(row(of, ended=72, by=EndedBy.US), row(blind, ended=72, by=EndedBy.US, instance_id="i-2"))
    assert (found.baseline_usd, found.saving_usd, found.saving_pct, found.unpriced_seconds) == (None, None, None, Decimal(3600))
    assert found.spend_usd == Decimal("2.88")


def test_an_attempt_without_work_needs_no_baseline() -> None:
    """One that never worked has a baseline of nothing, known or not: it does not hide the savings of the others."""
    of = attempt(ready_at=None, gate_opened_at=None, started_at=None, ended_at=60, reason=EndReason.BOOT_TIMEOUT, baseline_usd_per_hour=None)
    found = counted(row(of, ended=60, by=EndedBy.US))
    assert (found.baseline_usd, found.saving_usd) == (Decimal(0), Decimal("-1.20"))


def test_a_loss_is_shown_as_one() -> None:
    """Spot that cost more than on-demand is a negative saving."""
    of = attempt(stopped_at=70, ended_at=70, reason=EndReason.EXITED, exit_code=0)
    found = counted(row(of, ended=72, by=EndedBy.US, usd="12"))
    assert (found.saving_usd, found.saving_pct) == (Decimal("-8.4"), Decimal(-140))


def test_a_span_of_time_takes_its_part() -> None:
    """Time, spend and baseline are of the span; whether a charge was waived or a minimum due is decided by the whole life."""
    of = attempt(stopped_at=70, ended_at=70, reason=EndReason.EXITED, exit_code=0)
    whole = row(of, ended=72, by=EndedBy.US)
    first, second = counted(whole, until=at(40)), counted(whole, since=at(40))
    assert minutes(first) == {"boot": 8, "gate": 2, "useful": 30}
    assert minutes(second) == {"useful": 30, "drain": 2}
    assert first.spend_usd + second.spend_usd == counted(whole).spend_usd
    young = row(attempt(ended_at=30, reason=EndReason.RECLAIMED), ended=32, by=EndedBy.RECLAIM)
    assert counted(young, since=at(20)).spend_usd == 0
    short = row(of, ended=0.25, by=EndedBy.US)
    assert [minutes(counted(short, until=at(0.1))).get("other"), minutes(counted(short, since=at(0.1))).get("other")] == [0.75, None]


def test_what_has_not_happened_is_not_counted() -> None:
    """A span that ends in the future ends now."""
    found = report([row(attempt())], BILLING, GroupBy.JOB, at(30), until=at(500))
    assert found.until == at(30)
    assert found.total.billed_seconds == 30 * 60


@pytest.mark.parametrize(
    ("by", "titles"),
    [
        (GroupBy.JOB, ["eval", "train"]),
        (GroupBy.ATTEMPT, ["eval/1", "train/1", "train/2"]),
        (GroupBy.POLICY, ["a100", "h100"]),
        (GroupBy.PROVIDER, ["aws", "gcp"]),
        (GroupBy.REGION, ["eu-1", "us-1"]),
        (GroupBy.MARKET, ["on-demand", "spot"]),
        (GroupBy.OWNER, ["alice", "bob"]),
        (GroupBy.DAY, ["2026-05-01", "2026-05-02"]),
    ],
)
def test_groups(by: GroupBy, titles: list[str]) -> None:
    """Each way to group: a row for each, and rows that add up to the total."""
    of = attempt(stopped_at=70, ended_at=70, reason=EndReason.EXITED, exit_code=0)
    second = replace(of, id="job-2", number=2)
    other = replace(of, id="other-1", job_id="other")
    gcp = OfferKey("gcp", "eu-1", "eu-1a", "gpu.8", Market.ON_DEMAND)
    rows = [
        row(of, ended=72, by=EndedBy.US),
        row(second, ended=24 * 60, by=EndedBy.US, instance_id="i-2"),
        row(other, ended=72, by=EndedBy.US, instance_id="i-3", job_id="other", job_name="eval", owner="bob", policy="a100", offer=gcp),
    ]
    found = report(rows, BILLING, by, NOW)
    assert [r.title for r in found.rows] == titles
    assert sum(r.billed_seconds for r in found.rows) == found.total.billed_seconds
    assert sum(r.spend_usd for r in found.rows) == found.total.spend_usd
    assert (found.total.jobs, found.total.attempts, found.total.instances) == (2, 3, 3)


def test_midnight_divides_a_day() -> None:
    """An instance that ran through midnight counts on both sides of it, work with work and waste with waste."""
    of = attempt(stopped_at=13 * 60, ended_at=13 * 60, reason=EndReason.EXITED, exit_code=0)
    first, second = report([row(of, ended=14 * 60, by=EndedBy.US)], BILLING, GroupBy.DAY, NOW).rows
    assert minutes(first) == {"boot": 8, "gate": 2, "useful": 12 * 60 - 10}
    assert minutes(second) == {"useful": 60, "drain": 60}


def test_two_jobs_of_one_name_are_two_rows() -> None:
    """Jobs are told apart by id."""
    of = attempt(stopped_at=70, ended_at=70, reason=EndReason.EXITED, exit_code=0)
    again = row(replace(of, id="b-1", job_id="b"), ended=72, by=EndedBy.US, job_id="b", instance_id="i-2")
    found = report([row(of, ended=72, by=EndedBy.US), again], BILLING, GroupBy.JOB, NOW)
    assert [(r.key, r.title) for r in found.rows] == [("b", "train"), ("job", "train")]


def test_a_provider_whose_billing_is_unknown_is_left_out_and_said() -> None:
    """A plug-in that is not installed any more: its instances are in no figure, and their number is given."""
    ovh = OfferKey("ovh", "fr-1", "fr-1a", "gpu.8", Market.SPOT)
    found = report([row(attempt(), offer=ovh), row(attempt())], BILLING, GroupBy.JOB, at(30))
    assert dict(found.left_out) == {"ovh": 1}
    assert found.total.instances == 1


def test_nothing_is_a_report_too() -> None:
    """No rows: a total of zeros and no saving in per cent."""
    found: Report = report([], BILLING, GroupBy.JOB, NOW)
    assert found.rows == ()
    assert (found.total.spend_usd, found.total.saving_usd, found.total.saving_pct) == (Decimal(0), Decimal(0), None)
    assert [line.cause for line in found.total.waste] == list(Cause)
