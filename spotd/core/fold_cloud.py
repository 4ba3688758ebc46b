"""How the provider's words change the world: launches, listings, terminations, prices."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from spotd.core.attempt import Attempt, AttemptState, EndReason
from spotd.core.cooldown import after_failure, key_for
from spotd.core.errors import ErrorKind, Scope
from spotd.core.events import LaunchNotFound
from spotd.core.instance import EndedBy, Instance, InstanceState, Interval, ObservedInstance, ObservedState
from spotd.core.lifecycle import SIGHTING, AttemptTrigger, InstanceTrigger
from spotd.core.notice import NoticeKind, NoticeSource
from spotd.core.offer import Market
from spotd.core.survival import Lifetime
from spotd.core.world import Stray

if TYPE_CHECKING:
    from spotd.core.draft import Draft
    from spotd.core.events import (
        AbsenceProved,
        LaunchPending,
        LaunchRefused,
        LaunchRepeated,
        LaunchRequested,
        LaunchSucceeded,
        LaunchUnknown,
        Listed,
        PriceMoved,
        TerminateAcknowledged,
        TerminateFailed,
        TerminateRequested,
    )

#: A listing proves an absence only this long after the last launch call: new machines may take that long to show (DESIGN §4 rule 2).
ABSENCE_AGE = timedelta(minutes=10)
#: A provider whose permission is missing is asked again after this, in case ops mended it.
_NOT_AUTHORIZED_PAUSE = timedelta(minutes=10)


_WARNED = {NoticeKind.RECLAIM: EndedBy.RECLAIM, NoticeKind.MAINTENANCE: EndedBy.MAINTENANCE}
_SHUT_DOWN_BY = {
    EndedBy.RECLAIM: EndReason.RECLAIMED,
    EndedBy.EXTERNAL: EndReason.EXTERNAL,
    EndedBy.MAINTENANCE: EndReason.MAINTENANCE,
}


def launch_requested(draft: Draft, event: LaunchRequested) -> None:
    """The intent exists: one more try of its attempt."""
    draft.put_instance(replace(event.instance, launch_called_at=event.at))
    attempt = draft.attempts[event.instance.attempt_id]
    draft.put_attempt(replace(attempt, tries=max(attempt.tries, event.instance.try_number)))


def launch_repeated(draft: Draft, event: LaunchRepeated) -> None:
    """The identical call again."""
    instance = draft.instances[event.instance_id]
    draft.put_instance(replace(instance, launch_calls=instance.launch_calls + 1, launch_called_at=event.at, absences=0))


def launch_succeeded(draft: Draft, event: LaunchSucceeded) -> None:
    """The machine exists, whatever the attempt wants by now."""
    instance = draft.instances.get(event.instance_id)
    if instance is None or not instance.live:
        return
    instance = draft.advance_instance(instance, InstanceTrigger.LAUNCHED)
    launched_at = instance.launched_at or event.launched_at
    details = event.details or instance.details
    instance = replace(instance, provider_id=event.provider_id, refusal=None, error="", launched_at=launched_at, details=details)
    if instance.terminate_acknowledged_at is None:
        # It is there: what listings lacked before proves nothing about it.
        instance = replace(instance, absences=0, absent_since=None)
    draft.put_instance(instance)
    _exists(draft, instance, event.at)


def _exists(draft: Draft, instance: Instance, at: datetime) -> None:
    """A machine was found to exist: its attempt boots, its job waits no longer, its billing began."""
    attempt = draft.attempt_of(instance)
    if attempt is not None and attempt.state is AttemptState.PLACED:
        attempt = draft.advance_attempt(attempt, AttemptTrigger.LAUNCHED)
        draft.put_attempt(replace(attempt, market=instance.request.offer.market, launched_at=at))
        job = draft.jobs.get(attempt.job_id)
        if job is not None and job.waiting_since is not None:
            draft.put_job(replace(job, waiting_since=None))
    if instance.launched_at is not None and instance.id not in draft.intervals:
        draft.put_interval(Interval(instance.id, 1, instance.price_usd_per_hour, instance.launched_at))


def launch_refused(draft: Draft, event: LaunchRefused) -> None:
    """Nothing was launched by this call: cool the scope it is true of. Which offer comes next is the planner's choice."""
    instance = draft.instances.get(event.instance_id)
    if instance is None or instance.state is not InstanceState.REQUESTED:
        # A listing proved that it exists after all; the machine is there whatever this answer says.
        return
    passing = event.kind in {ErrorKind.THROTTLED, ErrorKind.NOT_AUTHORIZED}
    error = f"{event.code}: {event.message}" if event.code else event.message
    if instance.launch_calls > 1:
        # It says nothing about the call before, whose outcome is unknown and which may have launched a machine, or may do so yet.
        refusal = instance.refusal if passing else event.kind
        draft.put_instance(replace(instance, refusal=refusal, error=error, asked_at=event.at, asks=instance.asks + 1))
    else:
        instance = draft.advance_instance(instance, InstanceTrigger.REFUSED)
        draft.put_instance(replace(instance, refusal=event.kind, error=error, ended_at=event.at, ended_by=EndedBy.NEVER_RAN, end_code=event.code))
    offer = instance.request.offer
    if passing:
        pause = _NOT_AUTHORIZED_PAUSE if event.retry_after_s is None else timedelta(seconds=event.retry_after_s)
        draft.suspended[offer.provider] = max(event.at + pause, draft.suspended.get(offer.provider, event.at))
    elif event.kind is not ErrorKind.INVALID_REQUEST:
        key = key_for(offer, event.scope)
        draft.put_cooldown(after_failure(draft.cooldowns.get(key), key, event.kind, event.at))


def launch_unknown(draft: Draft, event: LaunchUnknown) -> None:
    """Nothing is known: keep asking."""
    instance = draft.instances.get(event.instance_id)
    if instance is not None and instance.state is InstanceState.REQUESTED:
        draft.put_instance(replace(instance, error=event.message, asked_at=event.at, asks=instance.asks + 1))


def launch_asked(draft: Draft, event: LaunchPending | LaunchNotFound) -> None:
    """The provider answered and the outcome is still open."""
    instance = draft.instances.get(event.instance_id)
    if instance is not None and instance.state is InstanceState.REQUESTED:
        found_nothing = event.at if isinstance(event, LaunchNotFound) else None
        draft.put_instance(replace(instance, asked_at=event.at, asks=instance.asks + 1, not_found_at=found_nothing))


def listed(draft: Draft, event: Listed) -> None:
    """A complete listing: what it shows, what it lacks, and what it shows that nobody asked for."""
    by_provider_id = {i.provider_id: i for i in draft.instances.values() if i.provider_id is not None and i.request.offer.provider == event.provider}
    seen: set[str] = set()
    seen_strays: set[str] = set()
    for row in event.instances:
        instance = draft.instances.get(row.token) if row.token is not None else by_provider_id.get(row.provider_id)
        if instance is not None and not _is_double(instance, row):
            seen.add(instance.id)
            _sight(draft, instance, row, event)
        # One that is on its way down counts as well: a stopped machine stays, and its disk is paid for.
        if row.state is not ObservedState.GONE and (instance is None or not draft.instances[instance.id].live or _is_double(instance, row)):
            seen_strays.add(row.provider_id)
            key = (event.provider, row.provider_id)
            stray = draft.strays.get(key)
            draft.strays[key] = stray or Stray(event.provider, event.region, row.provider_id, event.at, row.launched_at)
    for key, stray in list(draft.strays.items()):
        if (stray.provider, stray.region) == (event.provider, event.region) and stray.provider_id not in seen_strays:
            del draft.strays[key]
    for instance in list(draft.instances.values()):
        offer = instance.request.offer
        if instance.live and (offer.provider, offer.region) == (event.provider, event.region) and instance.id not in seen:
            _miss(draft, instance, event)


def _is_double(instance: Instance, row: ObservedInstance) -> bool:
    """Whether a machine carries an instance's token and is not that machine: a second launch that must not be adopted."""
    return instance.provider_id is not None and instance.provider_id != row.provider_id


def _sight(draft: Draft, instance: Instance, row: ObservedInstance, event: Listed) -> None:
    was = instance
    instance = draft.advance_instance(instance, SIGHTING[row.state])
    instance = replace(
        instance,
        provider_id=row.provider_id,
        refusal=None,
        launched_at=instance.launched_at or row.launched_at,
        absences=0,
        absent_since=None,
    )
    if row.state is ObservedState.ENDING and instance.ending_seen_at is None and instance.terminate_requested_at is None:
        instance = replace(instance, ending_seen_at=event.at)
    if instance != was:
        draft.put_instance(instance)
    if was.live:
        _exists(draft, instance, event.at)
    if was.live and not instance.live:
        _gone(draft, instance, row.ended_at or event.at, _who_ended(instance, row), row.end_code, event.at)


def _who_ended(instance: Instance, row: ObservedInstance) -> EndedBy:
    """The provider's word, corrected by our own journal: "the user did it" is us only if we asked (facts/reclaim.md §1.9)."""
    match row.ended_by:
        case EndedBy.US | EndedBy.EXTERNAL:
            return EndedBy.US if instance.ended_by_us else EndedBy.EXTERNAL
        case None | EndedBy.UNKNOWN:
            if instance.ended_by_us:
                return EndedBy.US
            # The lock that the request carried may strike before what was announced for later.
            expired = row.ended_at is not None and row.ended_at >= instance.request.expires_at
            return EndedBy.UNKNOWN if expired else _as_warned(instance)
        case EndedBy.NEVER_RAN if instance.nonce_sha256 is not None:
            # Its agent has called, so it ran, whatever the provider's reason is taken for: it is not free.
            return EndedBy.UNKNOWN
        case word:
            return word


def _as_warned(instance: Instance) -> EndedBy:
    """Who ended it, by the warning alone."""
    return EndedBy.UNKNOWN if instance.notice is None else _WARNED.get(instance.notice.kind, EndedBy.UNKNOWN)


def _miss(draft: Draft, instance: Instance, event: Listed) -> None:
    called = instance.launch_called_at or instance.requested_at
    if event.asked_at < called:
        return
    # The host's clock may have been set forward while no daemon ran: an age that reaches back beyond our start is no age.
    proof_from = (called if event.since is None else max(called, event.since)) + ABSENCE_AGE
    if instance.terminate_acknowledged_at is not None:
        proof_from = max(proof_from, instance.terminate_acknowledged_at)
    counted = event.asked_at >= proof_from
    draft.put_instance(replace(instance, absences=instance.absences + 1 if counted else 0, absent_since=instance.absent_since or event.at))


def absence_proved(draft: Draft, event: AbsenceProved) -> None:
    """It executes nothing any more, or never did."""
    instance = draft.instances[event.instance_id]
    never_ran = instance.provider_id is None
    instance = draft.advance_instance(instance, InstanceTrigger.PROVED_ABSENT)
    ended = instance.terminate_acknowledged_at or event.at
    if never_ran:
        by = EndedBy.NEVER_RAN
    elif _as_warned(instance) is not EndedBy.UNKNOWN:
        by = _as_warned(instance)
    elif (
        instance.absent_since is not None
        and instance.terminate_requested_at is not None
        and (instance.absent_since < instance.terminate_requested_at)
    ):
        # It had vanished before we asked: our terminate only confirmed that.
        by, ended = EndedBy.UNKNOWN, instance.absent_since
    else:
        by = EndedBy.US
    draft.put_instance(instance)
    _gone(draft, instance, ended, by, "absent", event.at)


def _gone(draft: Draft, instance: Instance, ended_at: datetime, by: EndedBy, code: str, at: datetime) -> None:
    """Close the books of an instance: interval, lifetime, cooldown, and a preemption nobody warned of."""
    if instance.launched_at is not None:
        ended_at = max(ended_at, instance.launched_at)
    draft.put_instance(replace(instance, ended_at=ended_at, ended_by=by, end_code=code))
    interval = draft.intervals.get(instance.id)
    if interval is not None:
        draft.put_interval(replace(interval, ended_at=max(ended_at, interval.started_at)))
    offer = instance.request.offer
    if instance.launched_at is not None:
        past = draft.lifetimes.get(offer) or Lifetime(offer, 0.0, 0.0, at)
        hours = (ended_at - instance.launched_at) / timedelta(hours=1)
        # A reclaim that we answered by ending it ourselves was one all the same.
        reclaimed = by is EndedBy.RECLAIM or (instance.notice is not None and instance.notice.kind is NoticeKind.RECLAIM)
        draft.put_lifetime(past.plus(hours, 1 if reclaimed else 0, at))
    _who_shut_it_down(draft, instance, by, at)
    if by is EndedBy.RECLAIM and _as_warned(instance) is not EndedBy.RECLAIM:
        count_preemption(draft, instance, at)
    elif by is EndedBy.NEVER_RAN and instance.provider_id is not None:
        # It was accepted and died while pending: a capacity signal that no error carried (facts/reclaim.md §1.9).
        key = key_for(offer, Scope.OFFER)
        draft.put_cooldown(after_failure(draft.cooldowns.get(key), key, ErrorKind.NO_CAPACITY, at))


def _who_shut_it_down(draft: Draft, instance: Instance, by: EndedBy, at: datetime) -> None:
    """An attempt that drained because its machine went down gets its reason when the provider says who did that (facts/reclaim.md §1.9)."""
    attempt = draft.attempt_of(instance)
    if attempt is None or by is EndedBy.GUEST:
        return
    hit = by is EndedBy.RECLAIM and instance.request.offer.market is Market.SPOT
    if attempt.reason is not EndReason.GUEST_SHUTDOWN:
        if hit and attempt.ended and attempt.preempted_at is None and _stopped_by_shutdown(instance, attempt):
            # Its job was over, or wanted no more of it, before anybody knew; it was hit by a reclaim all the same.
            draft.put_attempt(replace(attempt, preempted_at=at))
        return
    reason = _SHUT_DOWN_BY.get(by, EndReason.LOST)
    draft.put_attempt(replace(attempt, reason=reason, preempted_at=at if hit else attempt.preempted_at))


def _stopped_by_shutdown(instance: Instance, attempt: Attempt) -> bool:
    """Whether its machine's shutdown came first, and nobody had ordered it to stop."""
    shutdown = instance.notice is not None and instance.notice.kind is NoticeKind.SHUTDOWN and instance.notice.source is not NoticeSource.AGENT
    return shutdown and attempt.drain is None and attempt.draining_since is not None


def count_preemption(draft: Draft, instance: Instance, at: datetime) -> None:
    """A reclaim hit this instance: cool its pool, and count it against its attempt if that is still going and on spot."""
    offer = instance.request.offer
    if offer.market is not Market.SPOT:
        return
    key = key_for(offer, Scope.ZONE)
    draft.put_cooldown(after_failure(draft.cooldowns.get(key), key, None, at))
    attempt = draft.attempt_of(instance)
    if attempt is not None and not attempt.ended and attempt.preempted_at is None:
        draft.put_attempt(replace(attempt, preempted_at=at))


def price_moved(draft: Draft, event: PriceMoved) -> None:
    """A new interval begins where the last one ends."""
    interval = draft.intervals.get(event.instance_id)
    if interval is None or interval.price_usd_per_hour == event.price_usd_per_hour:
        return
    at = max(event.at, interval.started_at)
    draft.put_interval(replace(interval, ended_at=at))
    draft.put_interval(Interval(event.instance_id, interval.number + 1, event.price_usd_per_hour, at))


def terminate_requested(draft: Draft, event: TerminateRequested) -> None:
    """The intent of a terminate call; the first one is what the classification of its end goes by."""
    instance = draft.instances[event.instance_id]
    instance = draft.advance_instance(instance, InstanceTrigger.TERMINATE_REQUESTED)
    draft.put_instance(
        replace(
            instance,
            terminate_requested_at=instance.terminate_requested_at or event.at,
            terminate_because=instance.terminate_because or event.because,
            terminate_calls=instance.terminate_calls + 1,
            terminate_called_at=event.at,
        )
    )


def terminate_acknowledged(draft: Draft, event: TerminateAcknowledged) -> None:
    """Accepted. Absences count anew from here."""
    instance = draft.instances.get(event.instance_id)
    if instance is not None and instance.live and instance.terminate_acknowledged_at is None:
        draft.put_instance(replace(instance, terminate_acknowledged_at=event.at, absences=0, error=""))


def terminate_failed(draft: Draft, event: TerminateFailed) -> None:
    """It will be asked again: a terminate is never given up (known-faults A.54)."""
    instance = draft.instances.get(event.instance_id)
    if instance is not None and instance.live:
        draft.put_instance(replace(instance, error=event.message))
