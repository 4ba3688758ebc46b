"""What ops should hear about although the loop goes on by itself: permissions, quotas, warnings that did not end in a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotd.core.attempt import EndReason
from spotd.core.errors import ErrorKind
from spotd.core.events import AlarmKind

if TYPE_CHECKING:
    from spotd.core.instance import Instance
    from spotd.core.plan import Case, Snapshot
    from spotd.core.planner.findings import Findings


def tell(snapshot: Snapshot, cases: list[Case], findings: Findings) -> None:
    """Look at the newest attempts of every job; what was said is not said again for hours."""
    for case in cases:
        for attempt in case.attempts[-2:]:
            for instance in case.current(attempt):
                _refusal(snapshot, instance, findings)
            if attempt.reason is EndReason.RECLAIMED and attempt.may_have_run and not attempt.saved:
                why = "ended without a checkpoint" if attempt.saved is False else "was reclaimed without a report of its agent"
                behind = (
                    "it had committed none" if attempt.checkpoint is None else f"its last is {attempt.checkpoint}, step {attempt.checkpoint_step}"
                )
                message = f"attempt {attempt.number} of job {case.job.spec.name} {why}; {behind}. {attempt.detail}"
                findings.alarm(snapshot, AlarmKind.CHECKPOINT_NOT_SAVED, attempt.id, message.strip())


def _refusal(snapshot: Snapshot, instance: Instance, findings: Findings) -> None:
    offer = instance.request.offer
    where = f"{offer.provider}/{offer.region}"
    match instance.refusal:
        case ErrorKind.NOT_AUTHORIZED:
            message = f"{offer.provider} refuses to launch for want of a permission; nothing is launched until it is granted: {instance.error}"
            findings.alarm(snapshot, AlarmKind.NOT_AUTHORIZED, offer.provider, message)
        case ErrorKind.QUOTA_EXCEEDED:
            message = f"the quota for {offer.market} capacity in {where} is used up; other regions are tried meanwhile: {instance.error}"
            findings.alarm(snapshot, AlarmKind.QUOTA, f"{where}/{offer.market}", message)
        case ErrorKind.MISCONFIGURED:
            message = f"nothing can be launched in {where} as it is configured; other regions are tried meanwhile: {instance.error}"
            findings.alarm(snapshot, AlarmKind.MISCONFIGURED, where, message)
        case _:
            return
