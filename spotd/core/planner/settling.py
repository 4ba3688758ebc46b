"""What the end of an attempt means for its job: done, run again, or failed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from spotd.core.attempt import Attempt, EndReason
from spotd.core.backoff import doubled
from spotd.core.events import AlarmKind, AttemptEnded, JobFinished, JobRetried
from spotd.core.job import Outcome

if TYPE_CHECKING:
    from spotd.core.plan import Case, Snapshot
    from spotd.core.planner.findings import Findings

#: Back-off before a job that failed by itself is run again: doubles with each error.
_FIRST_BACK_OFF = timedelta(seconds=10)
_LONGEST_BACK_OFF = timedelta(hours=1)
#: Somebody ended the instance by hand, and may do so again: do not relaunch blindly (facts/reclaim.md §1.9).
_EXTERNAL_BACK_OFF = timedelta(minutes=5)
#: Ends that the job itself is answerable for, and that `retries` is about.
_OWN_FAULT = {EndReason.EXITED, EndReason.FAILED_TO_START, EndReason.GUEST_SHUTDOWN}
_RESTORE = "restore:"
_SETUP = "setup:"


def settle(snapshot: Snapshot, case: Case, findings: Findings) -> None:
    """Decide upon every ending that has not been decided upon."""
    job = case.job
    if job.cancel_requested_at is not None:
        return
    if case.invalid_try is not None:
        offer = case.invalid_try.request.offer
        _finish(snapshot, case, findings, Outcome.FAILED, f"{offer.provider} refuses the request as wrong: {case.invalid_try.error}")
        return
    for attempt in case.attempts:
        if attempt.number <= job.settled or not attempt.ended or attempt.reason is None:
            continue
        if not case.blamed(attempt):
            continue
        if attempt.reason is EndReason.EXITED and attempt.exit_code == 0:
            _finish(snapshot, case, findings, Outcome.SUCCEEDED, f"exit code 0 in attempt {attempt.number}")
            return
        if attempt.reason in _OWN_FAULT:
            _own_fault(snapshot, case, attempt, findings)
            return
        if attempt.reason is EndReason.EXTERNAL:
            _external(snapshot, case, attempt, findings)
            return


def _own_fault(snapshot: Snapshot, case: Case, attempt: Attempt, findings: Findings) -> None:
    job = case.job
    retries = job.spec.retries
    what = f"attempt {attempt.number} {_what(attempt)}"
    if attempt.detail.startswith(_RESTORE):
        # Earlier attempts had checkpoints and none verifies: beginning again from zero is a person's decision, never ours.
        findings.alarm(snapshot, AlarmKind.RESTORE_REFUSED, job.id, f"job {job.spec.name}: {attempt.detail}")
        _finish(
            snapshot,
            case,
            findings,
            Outcome.FAILED,
            f"no checkpoint of {job.spec.name} verifies; not restarted from zero: {attempt.detail}",
        )
    elif attempt.exit_code is not None and attempt.exit_code in retries.retry_on_exit_codes:
        wait = _back_off(attempt.number - 1)
        _retry(snapshot, case, attempt, findings, counted=False, wait=wait, because=f"{what}, which is always retried")
    elif attempt.reason is EndReason.FAILED_TO_START and not attempt.detail.startswith(_SETUP):
        wait = _back_off(attempt.number)
        _retry(snapshot, case, attempt, findings, counted=False, wait=wait, because=f"{what}; not the job's fault")
    elif job.errors < retries.on_error:
        because = f"{what}; error {job.errors + 1} of {retries.on_error} that are retried"
        _retry(snapshot, case, attempt, findings, counted=True, wait=_back_off(job.errors), because=because)
    else:
        _finish(snapshot, case, findings, Outcome.FAILED, f"{what}; {job.errors} errors were retried (retries.on_error: {retries.on_error})")


def _what(attempt: Attempt) -> str:
    if attempt.reason is EndReason.EXITED:
        return f"ended with exit code {attempt.exit_code}" + (f" ({attempt.detail})" if attempt.detail else "")
    if attempt.reason is EndReason.GUEST_SHUTDOWN:
        return "ended because its instance was shut down from inside without a report"
    return f"could not start: {attempt.detail}"


def _back_off(errors: int) -> timedelta:
    return doubled(_FIRST_BACK_OFF, errors, _LONGEST_BACK_OFF)


def _external(snapshot: Snapshot, case: Case, attempt: Attempt, findings: Findings) -> None:
    what = "; ".join(part for part in (f"the instance of attempt {attempt.number} was ended by somebody else", attempt.detail) if part)
    message = f"job {case.job.spec.name}: {what}; it is placed again in {_EXTERNAL_BACK_OFF}"
    findings.alarm(snapshot, AlarmKind.EXTERNAL_END, attempt.id, message)
    _retry(snapshot, case, attempt, findings, counted=False, wait=_EXTERNAL_BACK_OFF, because=what)


def _retry(snapshot: Snapshot, case: Case, attempt: Attempt, findings: Findings, *, counted: bool, wait: timedelta, because: str) -> None:
    findings.decide(JobRetried(snapshot.now, case.job.id, attempt.number, counted, snapshot.now + wait, because))


def _finish(snapshot: Snapshot, case: Case, findings: Findings, outcome: Outcome, detail: str) -> None:
    for attempt in case.active:
        findings.decide(AttemptEnded(snapshot.now, attempt.id, EndReason.NOT_NEEDED, "the job is over"))
    findings.decide(JobFinished(snapshot.now, case.job.id, outcome, detail))
