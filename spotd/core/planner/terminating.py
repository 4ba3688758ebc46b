"""Ending instances: those nobody wants, those that are lost or overdue, and strays. Asked again until the provider says they are gone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from spotd.core.attempt import AttemptState
from spotd.core.backoff import doubled
from spotd.core.billing import reclaim_would_be_free
from spotd.core.events import AbsenceProved, AlarmKind, StrayTerminateRequested, TerminateRequested
from spotd.core.instance import Instance, InstanceState
from spotd.core.notice import NoticeKind
from spotd.core.plan import Terminate
from spotd.core.planner.launching import PROOF
from spotd.core.planner.wanting import wanted_instances

if TYPE_CHECKING:
    from spotd.core.plan import Snapshot
    from spotd.core.planner.findings import Findings

#: Absent from complete listings *and* silent for this long: worth asking the provider to end it, which proves what became of it.
LOST_AFTER = timedelta(minutes=10)
#: A workload that was ordered to stop and has not reported by then is ended with its instance.
DRAIN_GRACE = timedelta(seconds=60)
#: A reclaim that does not come: the provider said it would take the instance, so give it time before doing it ourselves.
RECLAIM_GRACE = timedelta(minutes=10)
#: A machine is a stray only if it has been seen this long without a record (known-faults A.63: sweeps killed machines just created).
STRAY_AGE = timedelta(minutes=10)
_FIRST_WAIT = timedelta(seconds=5)
_LONGEST_WAIT = timedelta(minutes=5)
_ACKNOWLEDGED_WAIT = timedelta(minutes=1)
_MANY_CALLS = 5


def terminate(snapshot: Snapshot, findings: Findings) -> None:
    """One step for every instance that lives."""
    wanted = wanted_instances(snapshot.world)
    for instance in snapshot.world.instances.values():
        if not instance.live or instance.state is InstanceState.REQUESTED or instance.id in snapshot.in_flight:
            continue
        if instance.terminate_requested_at is not None or instance.state is InstanceState.TERMINATING:
            _again(snapshot, instance, findings)
            continue
        because = _overdue(snapshot, instance, findings) if instance.id in wanted else _unwanted(snapshot, instance, findings)
        if because is not None:
            _ask(snapshot, instance, because, findings)


def _ask(snapshot: Snapshot, instance: Instance, because: str, findings: Findings) -> None:
    if instance.provider_id is None:
        return
    offer = instance.request.offer
    effect = Terminate(offer.provider, offer.region, instance.provider_id, instance.id)
    findings.decide(TerminateRequested(snapshot.now, instance.id, because), effect=effect)


def _again(snapshot: Snapshot, instance: Instance, findings: Findings) -> None:
    if instance.terminate_acknowledged_at is not None and instance.absent_since is not None:
        # Accepted, and not listed any more: nothing is left to ask for, only to be sure of.
        if instance.absences >= PROOF:
            findings.decide(AbsenceProved(snapshot.now, instance.id))
        return
    if instance.terminate_calls >= _MANY_CALLS and instance.terminate_acknowledged_at is None:
        message = f"{instance.provider_id} could not be ended in {instance.terminate_calls} calls and may cost money: {instance.error}"
        findings.alarm(snapshot, AlarmKind.TERMINATE_FAILING, instance.id, message)
    calls = instance.terminate_calls
    first = _FIRST_WAIT if instance.terminate_acknowledged_at is None else _ACKNOWLEDGED_WAIT
    wait = doubled(first, calls - 1, _LONGEST_WAIT)
    # One that the provider is ending by itself was never asked for by us: ask once it should have been gone.
    since = instance.terminate_called_at or _ending_since(instance)
    if findings.passed(since, wait if calls else RECLAIM_GRACE):
        _ask(snapshot, instance, instance.terminate_because or "the provider has not ended it by itself", findings)


def _ending_since(instance: Instance) -> datetime:
    seen = instance.ending_seen_at or instance.requested_at
    notice = instance.notice
    return seen if notice is None else max(seen, notice.deadline or notice.seen_at)


def _overdue(snapshot: Snapshot, instance: Instance, findings: Findings) -> str | None:
    """An instance that is wanted, and must be ended all the same to find out or to go on."""
    attempt = snapshot.world.attempts[instance.attempt_id]
    if attempt.state is AttemptState.DRAINING and attempt.deadline is not None:
        grace = RECLAIM_GRACE if attempt.drain is None else DRAIN_GRACE
        if findings.passed(attempt.deadline, grace):
            return "its workload did not report that it stopped, long after the deadline"
    # One listing of its first minutes may lack it for no reason but lag; when all since then failed, nothing has shown that it is gone.
    if instance.absences >= PROOF and instance.absent_since is not None and findings.passed(instance.absent_since, LOST_AFTER):
        if snapshot.silent_for(instance.id) >= LOST_AFTER:
            return "lost: absent from complete listings and silent; asking to end it proves what became of it"
        findings.look_at(snapshot.now - snapshot.silent_for(instance.id) + LOST_AFTER)
    return None


def _unwanted(snapshot: Snapshot, instance: Instance, findings: Findings) -> str | None:
    attempt = snapshot.world.attempts.get(instance.attempt_id)
    reason = (
        "its attempt is not recorded"
        if attempt is None
        else f"its attempt ended ({attempt.reason})"
        if attempt.ended
        else "another try took its place"
    )
    stopped = attempt is not None and (attempt.stopped_at is not None or not attempt.may_have_run)
    if stopped and _leave_to_provider(snapshot, instance, findings):
        return None
    return reason


def _leave_to_provider(snapshot: Snapshot, instance: Instance, findings: Findings) -> bool:
    """A young AWS instance under a reclaim notice costs nothing if EC2 takes it, and something if we end it (facts/reclaim.md §1.11)."""
    notice = instance.notice
    if notice is not None and notice.kind is NoticeKind.SHUTDOWN and notice.deadline is not None:
        # It goes down by itself: asking for the same would hide who began it.
        return not findings.passed(notice.deadline, DRAIN_GRACE)
    if notice is None or notice.kind is not NoticeKind.RECLAIM or notice.deadline is None:
        return False
    facts = snapshot.providers.get(instance.request.offer.provider)
    if facts is None or findings.passed(notice.deadline, DRAIN_GRACE):
        return False
    market = instance.request.offer.market
    # No listing may have said yet that it runs: it does so since its launch was asked for, at the longest.
    since = instance.launched_at or instance.requested_at
    return reclaim_would_be_free(facts.billing_rule, facts.billing_speed, market, since, notice.deadline)


def end_strays(snapshot: Snapshot, findings: Findings) -> None:
    """Machines with our tag and no record: an age guard, then the same persistence."""
    for stray in snapshot.world.strays.values():
        if stray.provider_id in snapshot.in_flight:
            continue
        since = max(stray.first_seen_at, stray.launched_at or stray.first_seen_at)
        if stray.terminate_called_at is not None:
            due = findings.passed(stray.terminate_called_at, _ACKNOWLEDGED_WAIT)
        else:
            due = findings.passed(since, STRAY_AGE)
        if due:
            message = f"{stray.provider_id} in {stray.region} carries our tag and no record accounts for it; it is ended"
            findings.alarm(snapshot, AlarmKind.STRAY, stray.provider_id, message)
            requested = StrayTerminateRequested(snapshot.now, stray.provider, stray.region, stray.provider_id)
            findings.decide(requested, effect=Terminate(stray.provider, stray.region, stray.provider_id, None))
