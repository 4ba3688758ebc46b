"""The savings report from the database: facts read by `reader`, counted by `core.savings`, shown as plain JSON values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spotd.core.money import rounded_usd
from spotd.core.savings import Billing, GroupBy, Report, Savings, report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from decimal import Decimal

    from spotd.daemon.reader import Reader


def savings(
    reader: Reader,
    rules: Mapping[str, tuple[str, int]],
    *,
    now: datetime,
    since: datetime | None = None,
    until: datetime | None = None,
    by: str = GroupBy.JOB.value,
    job_id: str | None = None,
) -> Report:
    """What was spent and saved from `since` to `until`, of one job or of all.

    `rules` has each provider's billing rule and speed (`Capabilities`); instances of providers that are missing there are counted in `left_out`.
    Raises ValueError with a sentence when `by` is no grouping.
    """
    try:
        group_by = GroupBy(by)
    except ValueError:
        raise ValueError(f"there is no report by {by!r}; known: {', '.join(GroupBy)}") from None
    billing = {provider: Billing(rule, speed) for provider, (rule, speed) in rules.items()}
    return report(reader.ledger(since, until, job_id), billing, group_by, now, since, until)


def savings_report(
    reader: Reader,
    rules: Mapping[str, tuple[str, int]],
    *,
    now: datetime,
    since: datetime | None = None,
    until: datetime | None = None,
    by: str = GroupBy.JOB.value,
    job_id: str | None = None,
) -> dict[str, Any]:
    """The same as plain JSON values."""
    return report_view(savings(reader, rules, now=now, since=since, until=until, by=by, job_id=job_id))


def report_view(found: Report) -> dict[str, Any]:
    """A report as JSON: amounts as digits, rounded to millionths of a dollar; times in hours, to the microsecond."""
    return {
        "rows": [savings_view(row) for row in found.rows],
        "total": savings_view(found.total),
        "left_out": dict(found.left_out),
    }


def savings_view(row: Savings) -> dict[str, Any]:
    """One row. What is not known is null."""
    return {
        "key": row.key,
        "title": row.title,
        "jobs": row.jobs,
        "attempts": row.attempts,
        "instances": row.instances,
        "spend_usd": _usd(row.spend_usd),
        "baseline_usd": _usd(row.baseline_usd),
        "saving_usd": _usd(row.saving_usd),
        "saving_pct": None if row.saving_pct is None else round(float(row.saving_pct), 2),
        "credited_usd": _usd(row.credited_usd),
        "billed_hours": _hours(row.billed_seconds),
        "useful_hours": _hours(row.useful_seconds),
        "useful_usd": _usd(row.useful_usd),
        "unpriced_hours": _hours(row.unpriced_seconds),
        "waste_usd": _usd(row.waste_usd),
        "waste": {line.cause.value: {"hours": _hours(line.seconds), "usd": _usd(line.usd)} for line in row.waste},
    }


def _usd(amount: Decimal | None) -> str | None:
    return None if amount is None else format(rounded_usd(amount), "f")


def _hours(seconds: Decimal) -> float:
    return round(float(seconds) / 3600, 9)
