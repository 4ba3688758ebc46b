"""What a warning makes us do, and when."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from spotd.core.attempt import Attempt, AttemptState, DrainKind, EndReason, Purpose
from spotd.core.directive import directive
from spotd.core.events import AgentReady, AttemptEnded, Event, LaunchSucceeded, Listed, NoticeSeen, WorkloadDrained, WorkloadStarted
from spotd.core.ids import attempt_id
from spotd.core.instance import EndedBy, ObservedInstance, ObservedState
from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd.core.plan import Launch
from tests.unit.core.stage import Stage, default_prices


def _running(stage: Stage) -> str:
    effect = next(e for e in stage.effects if isinstance(e, Launch))
    stage.effects.remove(effect)
    token = effect.request.token
    stage.step(lambda at: LaunchSucceeded(at, token, f"i-{token[:8]}", at), done=[effect])
    stage.step(lambda at: AgentReady(at, token, None, None, 1.0, 0.0, 0.0))
    stage.step(lambda at: WorkloadStarted(at, token))
    return token


def _told(token: str, kind: NoticeKind, left: timedelta) -> Callable[[datetime], Event]:
    return lambda at: NoticeSeen(at, token, Notice(kind, NoticeSource.PROVIDER, at, at + left))


def _attempts(stage: Stage) -> list[Attempt]:
    return sorted(stage.engine.world.attempts.values(), key=lambda a: a.number)


def test_a_reclaim_that_only_the_provider_told_us_of_is_passed_on_to_the_agent() -> None:
    """Simulation seed 741: the agent's metadata server said nothing; the daemon knew, launched a replacement, and never asked the job to save."""
    stage = Stage()
    stage.submit()
    token = _running(stage)
    stage.step(_told(token, NoticeKind.RECLAIM, timedelta(seconds=120)))
    order = directive(stage.engine.world, token, stage.now)
    assert order.drain is not None
    assert (order.drain.kind, order.drain_seconds) == (DrainKind.RECLAIM, 120.0)


def test_maintenance_days_ahead_is_planned_for_and_stops_nothing() -> None:
    """A warning of next week must not put the job into a drain, with replacements that come and go at the gate until then."""
    stage = Stage()
    stage.submit()
    token = _running(stage)
    stage.step(_told(token, NoticeKind.MAINTENANCE, timedelta(days=3)))
    assert [(a.number, a.state) for a in _attempts(stage)] == [(1, AttemptState.RUNNING)]
    assert directive(stage.engine.world, token, stage.now).drain is None


def test_before_maintenance_the_job_moves_at_its_own_pace() -> None:
    """An hour before, a successor is brought up; when it waits at the gate, the job is asked to save and stop."""
    stage = Stage()
    stage.submit()
    token = _running(stage)
    stage.step(_told(token, NoticeKind.MAINTENANCE, timedelta(days=3)))
    stage.now += timedelta(days=2, hours=23, minutes=1)
    stage.price(default_prices())
    stage.step()
    assert [(a.number, a.purpose) for a in _attempts(stage)] == [(1, Purpose.START), (2, Purpose.MOVE)]
    successor = next(e for e in stage.effects if isinstance(e, Launch)).request.token
    stage.step(lambda at: LaunchSucceeded(at, successor, "i-2", at))
    stage.step(lambda at: AgentReady(at, successor, None, None, 1.0, 0.0, 0.0))
    stage.step(after=500)
    order = directive(stage.engine.world, token, stage.now).drain
    assert order is not None
    assert order.kind is DrainKind.MAINTENANCE


@pytest.mark.parametrize(
    ("by", "reason", "counted"),
    [
        (EndedBy.RECLAIM, EndReason.RECLAIMED, True),
        (EndedBy.EXTERNAL, EndReason.EXTERNAL, False),
        (EndedBy.US, EndReason.EXTERNAL, False),
        (EndedBy.GUEST, EndReason.GUEST_SHUTDOWN, False),
    ],
)
def test_who_shut_a_machine_down_is_for_the_provider_to_say(by: EndedBy, reason: EndReason, counted: bool) -> None:
    """A reclaim without a notice is a SIGTERM to the agent. It was taken for the job's own fault, used up `retries.on_error` and failed jobs."""
    stage = Stage()
    stage.submit()
    token = _running(stage)
    shut = Notice(NoticeKind.SHUTDOWN, NoticeSource.SIGNAL, stage.now, stage.now + timedelta(seconds=25))
    stage.step(lambda at: NoticeSeen(at, token, shut))
    stage.step(lambda at: WorkloadDrained(at, token, True, 5, None, 4.0, 25.0, None, ""))  # noqa: FBT003 - saved
    assert stage.engine.world.jobs["job-1"].outcome is None, "not settled before it is known whose doing it was"
    offer = stage.engine.world.instances[token].request.offer
    provider_id = f"i-{token[:8]}"
    row = ObservedInstance(provider_id, token, offer.region, offer.zone, ObservedState.GONE, stage.now, stage.now, by, "code")
    stage.step(lambda at: Listed(at, at, "cloud", offer.region, (row,)))
    first = stage.ledger.attempts[1]
    assert (first.reason, first.preempted_at is not None) == (reason, counted)


def test_a_lease_of_the_agents_own_is_not_the_jobs_fault() -> None:
    """An agent that stops because nobody answered it, or because its lifetime is over, has moved out of the way."""
    stage = Stage()
    stage.submit()
    token = _running(stage)
    lease = Notice(NoticeKind.SHUTDOWN, NoticeSource.AGENT, stage.now, stage.now + timedelta(seconds=120))
    stage.step(lambda at: NoticeSeen(at, token, lease))
    stage.step(lambda at: WorkloadDrained(at, token, True, 5, None, 4.0, 120.0, None, ""))  # noqa: FBT003 - saved
    assert next(a for a in _attempts(stage) if a.number == 1).reason is EndReason.MOVED
    assert stage.engine.world.jobs["job-1"].errors == 0


def test_a_machine_that_is_shut_down_before_its_workload_ran_is_blamed_on_whoever_did_it() -> None:
    """Simulation seed 330 under many lost replies: a reclaim without a notice during the boot was put down to maintenance, and not counted."""
    stage = Stage()
    stage.submit()
    effect = next(e for e in stage.effects if isinstance(e, Launch))
    token = effect.request.token
    stage.step(lambda at: LaunchSucceeded(at, token, "i-1", at), done=[effect])
    stage.step(lambda at: NoticeSeen(at, token, Notice(NoticeKind.SHUTDOWN, NoticeSource.SIGNAL, at, at + timedelta(seconds=25))))
    offer = effect.request.offer
    row = ObservedInstance("i-1", token, offer.region, offer.zone, ObservedState.GONE, stage.now, stage.now, EndedBy.RECLAIM, "code")
    stage.step(lambda at: Listed(at, at, "cloud", offer.region, (row,)))
    assert (stage.ledger.attempts[1].reason, stage.ledger.attempts[1].preempted_at is not None) == (EndReason.RECLAIMED, True)


def test_a_reclaim_counts_for_an_attempt_that_was_not_needed_any_more() -> None:
    """Simulation seed 6373: shut down without a notice, its job failed by its replacement before the provider said that it had been a reclaim."""
    stage = Stage()
    stage.submit()
    token = _running(stage)
    stage.step(lambda at: NoticeSeen(at, token, Notice(NoticeKind.SHUTDOWN, NoticeSource.SIGNAL, at, at + timedelta(seconds=25))))
    stage.step(lambda at: AttemptEnded(at, attempt_id("job-1", 1), EndReason.NOT_NEEDED, "the job is over"))
    offer = stage.engine.world.instances[token].request.offer
    row = ObservedInstance(f"i-{token[:8]}", token, offer.region, offer.zone, ObservedState.GONE, stage.now, stage.now, EndedBy.RECLAIM, "code")
    stage.step(lambda at: Listed(at, at, "cloud", offer.region, (row,)))
    first = stage.ledger.attempts[1]
    assert (first.reason, first.preempted_at is not None) == (EndReason.NOT_NEEDED, True)


@pytest.mark.parametrize(("left", "by"), [(timedelta(0), EndedBy.UNKNOWN), (timedelta(seconds=1), EndedBy.MAINTENANCE)])
def test_a_limit_that_strikes_before_announced_maintenance_is_not_that(left: timedelta, by: EndedBy) -> None:
    """Simulation seed 27444: ended by the limit it was launched with, three seconds before the maintenance it was warned of."""
    stage = Stage()
    stage.submit()
    token = _running(stage)
    instance = stage.engine.world.instances[token]
    ended = instance.request.expires_at - left
    stage.step(lambda at: NoticeSeen(at, token, Notice(NoticeKind.MAINTENANCE, NoticeSource.IMDS, at, ended + timedelta(seconds=3))))
    offer = instance.request.offer
    row = ObservedInstance(f"i-{token[:8]}", token, offer.region, offer.zone, ObservedState.GONE, stage.now, ended, EndedBy.UNKNOWN, "Limit")
    stage.step(lambda at: Listed(at, at, "cloud", offer.region, (row,)))
    assert stage.ledger.instances[token].ended_by is by
