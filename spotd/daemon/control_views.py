"""Core's values as the JSON that the control API answers: amounts as decimal text (never floats), times in UTC, lengths in seconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from spotd.core.attempt import AttemptState
from spotd.core.billing import charge
from spotd.core.instance import InstanceState
from spotd.core.money import ZERO_USD, rounded_usd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spotd.core.attempt import Attempt, Checkpoint
    from spotd.core.instance import Instance, Interval
    from spotd.core.job import Job
    from spotd.core.offer import Offer, OfferKey
    from spotd.core.plan import Hold, ProviderFacts, Snapshot
    from spotd.core.policy import Policy

View = dict[str, Any]


def time_view(value: datetime | None) -> str | None:
    """An instant, to the millisecond."""
    return None if value is None else value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def usd_view(value: Decimal | None) -> str | None:
    """An amount in dollars."""
    return None if value is None else format(rounded_usd(value), "f")


def seconds_view(value: timedelta | None) -> float | None:
    """A length of time."""
    return None if value is None else value.total_seconds()


def status_of(job: Job, attempts: Iterable[Attempt]) -> str:
    """The one word shown for a job: derived from its attempts, never stored."""
    if job.outcome is not None:
        return job.outcome.value
    if job.cancel_requested_at is not None:
        return "cancelling"
    states = {attempt.state for attempt in attempts if not attempt.ended}
    for state, word in _WORDS:
        if state in states:
            return word
    return "waiting"


#: What is closest to useful work comes first: a job whose replacement boots while it runs is running.
_WORDS = (
    (AttemptState.RUNNING, "running"),
    (AttemptState.DRAINING, "draining"),
    (AttemptState.READY, "ready"),
    (AttemptState.BOOTING, "booting"),
    (AttemptState.PLACED, "placing"),
)
#: Every word that `status_of` can say, for filters.
STATUSES = ("waiting", "placing", "booting", "ready", "running", "draining", "cancelling", "succeeded", "failed", "cancelled")


def offer_view(key: OfferKey) -> View:
    """What an offer is."""
    return {"provider": key.provider, "region": key.region, "zone": key.zone, "instance_type": key.instance_type, "market": key.market.value}


def priced_view(offer: Offer, now: datetime) -> View:
    """An offer with its price, that price's age and source, and what the provider says of its reclaim rate."""
    prior = offer.prior_hazard_per_hour
    return {
        **offer_view(offer.key),
        "price_usd_per_hour": usd_view(offer.price_usd_per_hour),
        "seen_at": time_view(offer.seen_at),
        "age_s": round(offer.age(now).total_seconds(), 3),
        "source": offer.source or None,
        "prior_hazard_per_hour": None if prior is None else round(prior, 6),
    }


def hold_view(hold: Hold | None) -> View | None:
    """Why nothing is done about a job now."""
    return None if hold is None else {"why": hold.why.value, "detail": hold.detail, "until": time_view(hold.until)}


def job_view(job: Job, attempts: Sequence[Attempt], instances: Iterable[Instance], hold: Hold | None) -> View:
    """One row of `spotd jobs`."""
    steps = [a.step for a in attempts if a.step is not None]
    saved = [a.checkpoint_step for a in attempts if a.checkpoint_step is not None]
    return {
        "id": job.id,
        "name": job.spec.name,
        "owner": job.owner,
        "policy": job.spec.policy,
        "labels": dict(job.spec.labels),
        "status": status_of(job, attempts),
        "outcome": job.outcome.value if job.outcome else None,
        "detail": job.outcome_detail,
        "submitted_at": time_view(job.submitted_at),
        "finished_at": time_view(job.finished_at),
        "cancel_requested_at": time_view(job.cancel_requested_at),
        "attempts": job.attempts,
        "preemptions": sum(1 for a in attempts if a.preempted_at is not None),
        "errors": job.errors,
        "step": max(steps, default=None),
        "checkpoint_step": max(saved, default=None),
        "where": _where(attempts, instances),
        "hold": hold_view(hold) if job.outcome is None else None,
    }


def _where(attempts: Sequence[Attempt], instances: Iterable[Instance]) -> View | None:
    """The offer of the newest attempt that is not over and has a live instance."""
    active = {a.id: a.number for a in attempts if not a.ended}
    live = [i for i in instances if i.attempt_id in active and i.live]
    if not live:
        return None
    newest = max(live, key=lambda i: (active[i.attempt_id], i.try_number))
    return {**offer_view(newest.request.offer), "price_usd_per_hour": usd_view(newest.price_usd_per_hour)}


def spec_view(job: Job) -> View:
    """What was submitted."""
    spec = job.spec
    return {
        "name": spec.name,
        "policy": spec.policy,
        "run": spec.run,
        "setup": spec.setup,
        "labels": dict(spec.labels),
        "env": dict(spec.env),
        "workdir_sha256": spec.workdir_sha256,
        "estimated_runtime_s": seconds_view(spec.estimated_runtime),
        "disk_gb": spec.disk_gb,
        "checkpoint_dir": spec.checkpoint_dir,
        "retries": {"on_error": spec.retries.on_error, "retry_on_exit_codes": list(spec.retries.retry_on_exit_codes)},
    }


def attempt_view(attempt: Attempt) -> View:
    """One attempt with all that is known of it."""
    return {
        "id": attempt.id,
        "number": attempt.number,
        "purpose": attempt.purpose.value,
        "state": attempt.state.value,
        "market": attempt.market.value if attempt.market else None,
        "reason": attempt.reason.value if attempt.reason else None,
        "detail": attempt.detail,
        "tries": attempt.tries,
        "exit_code": attempt.exit_code,
        "placed_at": time_view(attempt.placed_at),
        "ready_at": time_view(attempt.ready_at),
        "started_at": time_view(attempt.started_at),
        "preempted_at": time_view(attempt.preempted_at),
        "deadline": time_view(attempt.deadline),
        "stopped_at": time_view(attempt.stopped_at),
        "ended_at": time_view(attempt.ended_at),
        "saved": attempt.saved,
        "seconds_used": attempt.seconds_used,
        "seconds_given": attempt.seconds_given,
        "hook_exit": attempt.hook_exit,
        "boot_s": attempt.boot_s,
        "restore_s": attempt.restore_s,
        "setup_s": attempt.setup_s,
        "resumed_from": attempt.resumed_from,
        "resumed_step": attempt.resumed_step,
        "step": attempt.step,
        "loss": attempt.loss,
        "gpu_util": attempt.gpu_util,
        "progress_at": time_view(attempt.progress_at),
        "checkpoint": attempt.checkpoint,
        "checkpoint_step": attempt.checkpoint_step,
        "checkpoint_at": time_view(attempt.checkpoint_at),
        "baseline_usd_per_hour": usd_view(attempt.baseline_usd_per_hour),
    }


def instance_view(instance: Instance, attempt: int | None, spend: Decimal | None) -> View:
    """One try, and the machine it became, if it did. Hashes of credentials are nobody's business."""
    notice = instance.notice
    return {
        "id": instance.id,
        "attempt": attempt,
        "rank": instance.rank,
        "try": instance.try_number,
        "offer": offer_view(instance.request.offer),
        "price_usd_per_hour": usd_view(instance.price_usd_per_hour),
        "because": instance.because,
        "state": instance.state.value,
        "provider_id": instance.provider_id,
        "requested_at": time_view(instance.requested_at),
        "launched_at": time_view(instance.launched_at),
        "details": dict(instance.details),
        "refusal": instance.refusal.value if instance.refusal else None,
        "error": instance.error,
        "notice": None if notice is None else {"kind": notice.kind.value, "source": notice.source.value, "deadline": time_view(notice.deadline)},
        "terminate_because": instance.terminate_because,
        "ended_at": time_view(instance.ended_at),
        "ended_by": instance.ended_by.value if instance.ended_by else None,
        "spend_usd": usd_view(spend),
    }


def checkpoint_view(checkpoint: Checkpoint) -> View:
    """One committed checkpoint."""
    return {
        "id": checkpoint.id,
        "attempt": checkpoint.attempt,
        "step": checkpoint.step,
        "files": checkpoint.files,
        "size_bytes": checkpoint.size_bytes,
        "committed_at": time_view(checkpoint.committed_at),
        "save_s": checkpoint.save_s,
        "upload_s": checkpoint.upload_s,
        "trigger": checkpoint.trigger,
    }


def policy_view(policy: Policy) -> View:
    """A policy with every default filled in."""
    handlers = policy.spot_handlers
    return {
        "name": policy.name,
        "candidates": [{"provider": c.provider, "instance_types": list(c.instance_types), "regions": list(c.regions)} for c in policy.candidates],
        "spot_handlers": {
            "pre_reclaim_hook": handlers.pre_reclaim_hook,
            "max_preemptions": handlers.max_preemptions,
            "preemption_window_s": seconds_view(handlers.preemption_window),
            "fallback_node": handlers.fallback_node,
            "region_failover": list(handlers.region_failover),
        },
        "return_to_spot_after_s": seconds_view(policy.return_to_spot_after),
        "max_hourly_price_usd": usd_view(policy.max_hourly_price_usd),
        "max_price_age_s": seconds_view(policy.max_price_age),
        "max_wait_s": seconds_view(policy.max_wait),
        "instance_profile": policy.instance_profile,
        "max_run_duration_s": seconds_view(policy.max_run_duration),
        "idle_timeout_s": seconds_view(policy.idle_timeout),
        "replace_when_unreachable_s": seconds_view(policy.replace_when_unreachable),
    }


def speeds(providers: Mapping[str, ProviderFacts]) -> dict[str, int]:
    """Providers whose market and bill run faster than the clock: every answer about money says so."""
    return {name: facts.billing_speed for name, facts in sorted(providers.items()) if facts.billing_speed != 1}


def spend_of(instance: Instance, intervals: Sequence[Interval], snapshot: Snapshot) -> Decimal | None:
    """What an instance has cost so far. None when nobody knows by which rule: its provider is not configured any more."""
    if instance.state is InstanceState.REQUESTED or not intervals:
        return ZERO_USD
    facts = snapshot.providers.get(instance.request.offer.provider)
    if facts is None:
        return None
    counted = charge(
        facts.billing_rule,
        facts.billing_speed,
        instance.request.offer.market,
        sorted(intervals, key=lambda interval: interval.number),
        instance.launched_at,
        instance.ended_at,
        instance.ended_by,
        snapshot.now,
    )
    return counted.usd
