"""The savings report from the database: facts read by `reader`, counted by `core.savings`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotd.core.savings import Billing, GroupBy, Report, report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from spotd.daemon.reader import Reader
    from spotd.ports import Capabilities


def billing_of(capabilities: Mapping[str, Capabilities]) -> dict[str, Billing]:
    """How each provider bills, by its name."""
    return {name: Billing(theirs.billing_rule, theirs.billing_speed) for name, theirs in capabilities.items()}


def savings_report(
    reader: Reader,
    billing: Mapping[str, Billing],
    now: datetime,
    *,
    by: GroupBy = GroupBy.JOB,
    since: datetime | None = None,
    until: datetime | None = None,
    job_id: str | None = None,
) -> Report:
    """What was spent and saved from `since` to `until`. Instances of providers that are missing in `billing` are counted in `left_out`."""
    return report(reader.ledger(since, until, job_id), billing, by, now, since, until)
