"""One step of the loop: the story of a job, and the safety rules where they can be seen in a single step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial

import pytest

from spotd.core.attempt import Attempt, AttemptState, Checkpoint, DrainKind, EndReason, Purpose
from spotd.core.errors import ErrorKind, Scope
from spotd.core.events import (
    AgentReady,
    AlarmKind,
    AlarmRaised,
    CancelRequested,
    CheckpointCommitted,
    Event,
    JobFinished,
    LaunchNotFound,
    LaunchRefused,
    LaunchRequested,
    LaunchSucceeded,
    LaunchUnknown,
    Listed,
    NoticeCancelled,
    NoticeSeen,
    StartFailed,
    TerminateAcknowledged,
    TerminateFailed,
    WorkloadDrained,
    WorkloadExited,
    WorkloadStarted,
)
from spotd.core.fold import fold
from spotd.core.instance import EndedBy, InstanceState, ObservedInstance, ObservedState
from spotd.core.job import Outcome, Retries
from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd.core.offer import Market
from spotd.core.plan import HoldReason, Launch, Resolve, Terminate
from spotd.core.policy import SpotHandlers
from spotd.core.tries import is_current
from tests.unit.core.stage import Stage, default_prices, job, offer_key, policy

Make = Callable[[datetime], Event]


def _launched(stage: Stage) -> str:
    """Answer the pending launch effect with success; the instance's id."""
    effect = next(e for e in stage.effects if isinstance(e, Launch))
    stage.effects.remove(effect)
    token = effect.request.token
    stage.step(lambda at: LaunchSucceeded(at, token, f"i-{token[:8]}", at), done=[effect])
    return token


def _running(stage: Stage) -> str:
    """Bring the pending launch to a running workload; the instance's id."""
    token = _launched(stage)
    stage.step(lambda at: AgentReady(at, token, None, None, 1.0, 0.0, 0.0))
    stage.step(lambda at: WorkloadStarted(at, token))
    return token


def _notice(token: str, seconds: float = 120) -> Make:
    def make(at: datetime) -> Event:
        return NoticeSeen(at, token, Notice(NoticeKind.RECLAIM, NoticeSource.IMDS, at, at + timedelta(seconds=seconds)))

    return make


def _drained(token: str) -> Make:
    def make(at: datetime) -> Event:
        return WorkloadDrained(
            at, token, saved=True, step=5, checkpoint="00001-000001", seconds_used=4.0, seconds_given=120.0, hook_exit=None, detail=""
        )

    return make


def _exited(token: str, code: int, at: datetime) -> Event:
    return WorkloadExited(at, token, code, done=False, step=9)


def _listed(region: str, *rows: ObservedInstance) -> Make:
    def make(at: datetime) -> Event:
        return Listed(at, at, "cloud", region, rows)

    return make


def _row(token: str, state: ObservedState, ended_by: EndedBy | None = None, region: str = "east") -> ObservedInstance:
    return ObservedInstance(f"i-{token[:8]}", token, region, region + "a", state, None, None, ended_by)


def _attempt(stage: Stage, number: int) -> Attempt:
    return next(a for a in stage.engine.world.attempts.values() if a.number == number)


def test_the_intent_is_committed_before_the_effect_is_handed_out() -> None:
    """A step whose commit fails hands out nothing and changes nothing: no launch call without its stored intent (rule 1)."""
    stage = Stage()
    stage.ledger.broken = True

    with pytest.raises(OSError, match="disk full"):
        stage.submit()

    assert stage.effects == []
    assert stage.engine.world.jobs == {}


def test_a_replacement_boots_during_the_notice_and_waits_at_the_gate() -> None:
    """The replacement is launched at the notice; its workload starts only when the old one reported that it stopped (rule 2)."""
    stage = Stage()
    stage.submit()
    first = _running(stage)

    stage.step(_notice(first))
    second = _launched(stage)
    stage.step(lambda at: AgentReady(at, second, None, None, 1.0, 0.0, 0.0))
    waiting = _attempt(stage, 2).state
    recorded = stage.step(_drained(first))

    assert waiting is AttemptState.READY
    assert recorded[:2] == ["WorkloadDrained", "GateOpened"]
    assert _attempt(stage, 2).state is AttemptState.RUNNING
    assert _attempt(stage, 1).reason is EndReason.RECLAIMED


def test_the_replacement_goes_elsewhere() -> None:
    """After a reclaim the next place is another region, and the reclaimed zone cools down."""
    stage = Stage()
    stage.submit()
    first = _running(stage)

    stage.step(_notice(first))

    effect = stage.take()
    assert isinstance(effect, Launch)
    assert effect.request.offer == offer_key("west")
    assert [c.key.zone for c in stage.engine.world.cooldowns.values()] == ["easta"]


def test_silence_and_a_missing_row_open_no_gate() -> None:
    """An instance that vanished from listings without proof still fences its job (rule 2): suspicion only."""
    stage = Stage()
    stage.submit()
    first = _running(stage)
    stage.step(_notice(first, seconds=10))
    second = _launched(stage)
    stage.step(lambda at: AgentReady(at, second, None, None, 1.0, 0.0, 0.0))

    for _ in range(5):
        stage.step(_listed("east"), after=20)

    assert _attempt(stage, 2).state is AttemptState.READY
    assert stage.engine.holds["job-1"].why in {HoldReason.DRAINING, HoldReason.FENCE}


def test_the_providers_word_that_it_is_terminated_opens_the_gate() -> None:
    """When the provider says terminated, nothing executes there any more, whatever the agent did not say."""
    stage = Stage()
    stage.submit()
    first = _running(stage)
    stage.step(_notice(first, seconds=10))
    second = _launched(stage)
    stage.step(lambda at: AgentReady(at, second, None, None, 1.0, 0.0, 0.0))

    ending = stage.step(_listed("east", _row(first, ObservedState.ENDING)), after=10)
    gone = stage.step(_listed("east", _row(first, ObservedState.GONE, EndedBy.RECLAIM)), after=10)

    assert "GateOpened" not in ending
    assert gone[:3] == ["Listed", "AttemptEnded", "GateOpened"]


def test_an_acknowledged_terminate_and_two_late_listings_prove_that_it_is_gone() -> None:
    """Absence counts only after the acknowledgement and ten minutes after the launch, and twice (rule 2)."""
    stage = Stage()
    stage.submit()
    first = _running(stage)
    stage.step(lambda at: CancelRequested(at, "job-1", "alice"))
    stage.step(
        lambda at: WorkloadDrained(at, first, saved=True, step=5, checkpoint=None, seconds_used=1.0, seconds_given=30.0, hook_exit=None, detail="")
    )
    effect = stage.take()
    assert isinstance(effect, Terminate)
    stage.step(lambda at: TerminateAcknowledged(at, first), done=[effect])

    early = [stage.step(_listed("east"), after=30) for _ in range(5)]
    stage.step(after=600)
    once = stage.step(_listed("east"), after=5)
    twice = stage.step(_listed("east"), after=5)

    assert all("AbsenceProved" not in seen for seen in early)
    assert "AbsenceProved" not in once
    assert "AbsenceProved" in twice


def test_an_unknown_launch_is_looked_up_and_then_repeated_with_the_same_request() -> None:
    """After a lost answer the outcome is asked; when nothing is found the identical request is made again (rule 1)."""
    stage = Stage()
    stage.submit()
    first = stage.take()
    assert isinstance(first, Launch)
    token = first.request.token
    stage.step(lambda at: LaunchUnknown(at, token, "timed out"), done=[first])
    stage.step(after=3)
    question = stage.take()
    stage.step(lambda at: LaunchNotFound(at, token), done=[question])
    stage.step(after=10)
    again = stage.take()

    assert isinstance(question, Resolve)
    assert isinstance(again, Launch)
    assert again.request == first.request


def test_a_killed_daemon_asks_before_it_launches() -> None:
    """An intent without an answer, found at a restart, is asked for and not launched again blindly (rule 1, rule 3)."""
    stage = Stage()
    stage.submit()
    stage.take()
    survivor = Stage()
    survivor.engine._world = stage.engine.world  # what a restart would load

    survivor.step()

    assert isinstance(survivor.take(), Resolve)


def test_a_refused_try_goes_on_elsewhere_in_the_same_attempt() -> None:
    """No capacity cools the offer and the next one is tried; the attempt's number does not rise."""
    stage = Stage()
    stage.submit()
    first = stage.take()
    assert isinstance(first, Launch)

    stage.step(
        lambda at: LaunchRefused(at, first.request.token, ErrorKind.NO_CAPACITY, Scope.ZONE, "InsufficientInstanceCapacity", "none left"),
        done=[first],
    )

    second = stage.take()
    assert isinstance(second, Launch)
    assert (second.request.offer, second.request.attempt) == (offer_key("west"), 1)
    assert second.request.token != first.request.token


def test_a_missing_permission_is_not_disguised_as_no_capacity() -> None:
    """NotAuthorized suspends the provider and says so; no other zone is tried meanwhile."""
    stage = Stage()
    stage.submit()
    first = stage.take()
    assert isinstance(first, Launch)

    stage.step(
        lambda at: LaunchRefused(at, first.request.token, ErrorKind.NOT_AUTHORIZED, Scope.PROVIDER, "UnauthorizedOperation", "ec2:RunInstances"),
        done=[first],
    )

    assert stage.effects == []
    assert [(e.alarm, "ec2:RunInstances" in e.message) for e in stage.ledger.events if isinstance(e, AlarmRaised)] == [
        (AlarmKind.NOT_AUTHORIZED, True)
    ]
    assert stage.engine.holds["job-1"].why is HoldReason.PROVIDER_SUSPENDED
    assert stage.engine.world.cooldowns == {}


def test_an_invalid_request_fails_the_job_with_the_sentence() -> None:
    """What will never work is not retried: the job ends and its user reads why."""
    stage = Stage()
    stage.submit()
    first = stage.take()
    assert isinstance(first, Launch)

    recorded = stage.step(
        lambda at: LaunchRefused(at, first.request.token, ErrorKind.INVALID_REQUEST, Scope.OFFER, "InvalidAMIID.NotFound", "no such image"),
        done=[first],
    )

    finished = [e for e in stage.ledger.events if isinstance(e, JobFinished)]
    assert "JobFinished" in recorded
    assert [(e.outcome, "no such image" in e.detail) for e in finished] == [(Outcome.FAILED, True)]


def test_on_demand_at_max_preemptions_and_back_to_spot() -> None:
    """At max_preemptions the job goes on demand; after return_to_spot it goes back at a checkpoint boundary, and the count begins anew."""
    stage = Stage(policy(spot_handlers=SpotHandlers(max_preemptions=1), return_to_spot_after=timedelta(minutes=30)))
    stage.submit()
    first = _running(stage)
    stage.step(_notice(first))
    stage.step(_drained(first))
    second = _running(stage)
    fallback = _attempt(stage, 2).market
    saved = Checkpoint("00002-000001", "job-1", 2, 1, 10, 1, 10, "ab", stage.now)
    stage.step(lambda at: CheckpointCommitted(at, second, saved))
    stage.effects.clear()
    stage.price(default_prices())

    stage.step(after=1800)
    third = _launched(stage)
    stage.step(lambda at: AgentReady(at, third, None, None, 1.0, 0.0, 0.0))
    before = _attempt(stage, 2).state
    later = Checkpoint("00002-000002", "job-1", 2, 2, 20, 1, 10, "cd", stage.now + timedelta(seconds=1))
    recorded = stage.step(lambda at: CheckpointCommitted(at, second, later))

    assert fallback is Market.ON_DEMAND
    assert (_attempt(stage, 3).purpose, before) == (Purpose.RETURN, AttemptState.RUNNING)
    assert recorded == ["CheckpointCommitted", "DrainOrdered"]
    order = _attempt(stage, 2).drain
    assert order is not None
    assert order.kind is DrainKind.RETURN
    assert stage.engine.world.jobs["job-1"].spot_since == stage.now


def test_a_cancelled_reclaim_is_not_a_preemption() -> None:
    """The count is undone when the notice is withdrawn; the workload was stopped all the same."""
    stage = Stage()
    stage.submit()
    first = _running(stage)
    stage.step(_notice(first))
    counted = _attempt(stage, 1).preempted_at
    stage.step(lambda at: NoticeCancelled(at, first, NoticeKind.RECLAIM))

    assert counted is not None
    assert _attempt(stage, 1).preempted_at is None


def test_a_reclaim_that_saved_nothing_is_an_alarm() -> None:
    """Ops hear of a notice that did not end in a committed checkpoint, once."""
    stage = Stage()
    stage.submit()
    first = _running(stage)
    stage.step(_notice(first))
    stage.step(
        lambda at: WorkloadDrained(
            at, first, saved=False, step=5, checkpoint=None, seconds_used=120.0, seconds_given=120.0, hook_exit=9, detail="the hook was killed"
        )
    )
    stage.step()

    alarms = [e for e in stage.ledger.events if isinstance(e, AlarmRaised)]
    assert [a.alarm for a in alarms] == [AlarmKind.CHECKPOINT_NOT_SAVED]
    assert "the hook was killed" in alarms[0].message


def test_a_users_cancel_is_not_a_preemption() -> None:
    """A cancelled job is drained, ended and terminated; nothing is counted and nothing is launched."""
    stage = Stage()
    stage.submit()
    first = _running(stage)
    stage.step(lambda at: CancelRequested(at, "job-1", "alice"))
    recorded = stage.step(
        lambda at: WorkloadDrained(at, first, saved=True, step=5, checkpoint=None, seconds_used=1.0, seconds_given=30.0, hook_exit=None, detail="")
    )

    assert recorded == ["WorkloadDrained", "JobFinished", "TerminateRequested"]
    assert _attempt(stage, 1).preempted_at is None
    assert _attempt(stage, 1).reason is EndReason.CANCELLED


def test_cancel_while_launching_leaves_no_instance() -> None:
    """A launch that succeeds after the cancel is adopted only to be ended (known-faults B.3b #4410)."""
    stage = Stage()
    stage.submit()
    first = stage.take()
    assert isinstance(first, Launch)
    stage.step(lambda at: CancelRequested(at, "job-1", "alice"))
    stage.step(lambda at: LaunchSucceeded(at, first.request.token, "i-late", at), done=[first])

    effect = stage.take()
    assert isinstance(effect, Terminate)
    assert effect.provider_id == "i-late"


def test_terminate_is_never_given_up() -> None:
    """A failing terminate is asked again with growing waits for as long as it takes (known-faults A.54)."""
    stage = Stage()
    stage.submit()
    first = _running(stage)
    stage.step(lambda at: WorkloadExited(at, first, 0, done=True, step=9))
    calls = 0
    for _ in range(40):
        while stage.effects:
            effect = stage.take()
            assert isinstance(effect, Terminate)
            calls += 1
            stage.step(lambda at: TerminateFailed(at, first, "503"), done=[effect])
        stage.step(after=300)

    assert calls > 35
    assert stage.engine.world.instances[first].state is InstanceState.TERMINATING


def test_errors_of_the_job_are_retried_as_often_as_it_says() -> None:
    """retries.on_error counts exits; listed codes do not use it up; then the job fails with the reason."""
    stage = Stage()
    stage.submit(job(retries=Retries(on_error=1, retry_on_exit_codes=(33,))))
    for code in (33, 1, 1):
        token = _running(stage)
        stage.step(partial(_exited, token, code))
        stage.effects.clear()
        stage.step(after=60)

    finished = [e for e in stage.ledger.events if isinstance(e, JobFinished)]
    assert [e.outcome for e in finished] == [Outcome.FAILED]
    assert "exit code 1" in finished[0].detail


def test_no_checkpoint_verifies_is_an_alarm_never_a_restart_from_zero() -> None:
    """A refused restore fails the job and tells ops; nothing begins again from zero."""
    stage = Stage()
    stage.submit(job(retries=Retries(on_error=5)))
    token = _launched(stage)

    recorded = stage.step(lambda at: StartFailed(at, token, "restore", None, "00001-000003 is broken"))

    assert "AlarmRaised" in recorded
    assert "JobFinished" in recorded
    assert all(not isinstance(e, Launch) for e in stage.effects)


def test_max_wait_opens_on_demand() -> None:
    """A job that waited max_wait on spot alone is placed on demand; before that it holds with the reason."""
    prices = {k: v for k, v in default_prices().items() if k.market is Market.ON_DEMAND}
    stage = Stage(policy(max_wait=timedelta(hours=2)), prices)
    stage.submit()
    held = stage.engine.holds["job-1"]

    stage.step(after=7199)
    still = list(stage.effects)
    stage.step(after=2)

    effect = stage.take()
    assert held.why is HoldReason.NO_OFFER
    assert still == []
    assert isinstance(effect, Launch)
    assert effect.request.offer.market is Market.ON_DEMAND


def test_a_boot_that_never_calls_home_is_ended_and_tried_elsewhere() -> None:
    """boot_timeout ends the attempt and its instance; the offer cools down (known-faults A.61)."""
    stage = Stage()
    stage.submit()
    _launched(stage)

    recorded = stage.step(after=601)

    assert recorded == ["AttemptEnded", "AttemptPlaced", "LaunchRequested", "TerminateRequested"]
    assert _attempt(stage, 1).reason is EndReason.BOOT_TIMEOUT
    launch = next(e for e in stage.effects if isinstance(e, Launch))
    assert launch.request.offer == offer_key("west")


def test_a_stray_is_ended_only_after_the_age_guard() -> None:
    """A machine with our tag and no record is left alone while it may be newborn, then ended (rule 4, known-faults A.63)."""
    stage = Stage()
    stray = ObservedInstance("i-stray", "unknown-token", "east", "easta", ObservedState.RUNNING, None)
    stage.step(_listed("east", stray))
    stage.step(_listed("east", stray), after=300)
    young = list(stage.effects)
    stage.step(_listed("east", stray), after=301)

    assert young == []
    effect = stage.take()
    assert isinstance(effect, Terminate)
    assert (effect.provider_id, effect.instance_id) == ("i-stray", None)


def test_an_instance_that_no_listing_showed_running_is_left_to_the_provider_as_well() -> None:
    """Its launch was answered while it was pending: it cannot be older than the request, so the reclaim is free."""
    stage = Stage()
    stage.submit()
    effect = stage.take()
    assert isinstance(effect, Launch)
    token = effect.request.token
    stage.step(lambda at: LaunchSucceeded(at, token, "i-1", None), done=[effect])
    stage.step(lambda at: AgentReady(at, token, None, None, 1.0, 0.0, 0.0))
    stage.step(lambda at: WorkloadStarted(at, token))
    assert stage.engine.world.instances[token].launched_at is None
    stage.step(_notice(token))
    assert "TerminateRequested" not in stage.step(_drained(token))
    assert "TerminateRequested" in stage.step(after=181)


def test_a_young_instance_under_notice_is_left_to_the_provider() -> None:
    """On AWS a reclaim within the first hour is free, a terminate is not: after the save the provider may take it (facts/reclaim.md §1.11)."""
    stage = Stage()
    stage.submit()
    first = _running(stage)
    stage.step(_notice(first))
    stage.effects.clear()
    recorded = stage.step(_drained(first))
    overdue = stage.step(after=181)

    assert "TerminateRequested" not in recorded
    assert "TerminateRequested" in overdue


def test_a_price_that_was_told_in_the_moment_of_the_request_is_taken() -> None:
    """Simulation seed 33086: a sweep overtook a launch within the same instant, and the old price was kept until the next sweep."""
    stage = Stage()
    stage.submit()
    stage.price(default_prices() | {offer_key("east"): "0.75"})
    first = _running(stage)
    assert stage.engine.world.intervals[first].price_usd_per_hour == Decimal("0.75")


def test_the_ledger_follows_the_price() -> None:
    """When the price of a live spot instance moves, one interval ends and the next begins at the new price."""
    stage = Stage()
    stage.submit()
    first = _running(stage)
    stage.now += timedelta(minutes=5)
    stage.price(default_prices() | {offer_key("east"): "1.25"})
    recorded = stage.step()
    again = stage.step()

    assert recorded == ["PriceMoved"]
    assert again == []
    assert stage.engine.world.intervals[first].price_usd_per_hour == Decimal("1.25")
    assert stage.engine.world.intervals[first].number == 2


def test_a_job_that_finishes_while_a_successor_waits_at_the_gate_is_recorded() -> None:
    """Simulation seed 42: the same plan ended the successor and opened its gate, so the exit could never be committed."""
    stage = Stage(policy(spot_handlers=SpotHandlers(max_preemptions=0)))
    stage.submit()
    token = _running(stage)
    stage.step(lambda at: CheckpointCommitted(at, token, Checkpoint("00001-000001", "job-1", 1, 1, 5, 1, 1, "s", at)))
    stage.step(after=3700)
    successor = _launched(stage)
    recorded = stage.step(lambda at: AgentReady(at, successor, "00001-000001", 5, 1.0, 0.0, 0.0), lambda at: _exited(token, 0, at), after=60)
    assert "JobFinished" in recorded
    assert "GateOpened" not in recorded


def test_a_price_seen_before_the_machine_ran_is_the_price_of_its_first_interval() -> None:
    """Simulation seed 2: the ledger kept the price of the decision until the next sweep, though a later one was known when the machine ran."""
    stage = Stage()
    stage.submit()
    stage.now += timedelta(seconds=30)
    stage.price(default_prices() | {offer_key("east"): "1.50"})
    token = _launched(stage)
    interval = stage.engine.world.intervals[token]
    assert (interval.price_usd_per_hour, interval.started_at) == (Decimal("1.50"), stage.engine.world.instances[token].launched_at)


def test_a_submit_that_is_recorded_twice_is_one_job() -> None:
    """A job that already has attempts is not reset by a second record of its submit."""
    stage = Stage()
    stage.submit()
    stage.submit()

    assert stage.engine.world.jobs["job-1"].attempts == 1
    assert len(stage.engine.world.attempts) == 1


def test_the_ranks_of_a_gang_are_one_try() -> None:
    """Machines of one try all speak for their attempt, whatever their rank; those of an earlier try do not."""
    stage = Stage()
    stage.submit()
    effect = stage.take()
    assert isinstance(effect, Launch)
    first = stage.engine.world.instances[effect.request.token]
    second = replace(first, id="rank-1", rank=1)
    later = replace(first, id="again", try_number=2)
    gang, _ = fold(stage.engine.world, [LaunchRequested(stage.now, second)])
    again, _ = fold(gang, [LaunchRequested(stage.now, later)])

    assert [is_current(gang.attempts[first.attempt_id], i) for i in (first, second)] == [True, True]
    assert [is_current(again.attempts[first.attempt_id], i) for i in (first, second, later)] == [False, False, True]


def test_a_region_that_is_wrongly_configured_fails_no_job() -> None:
    """Ops hear of it once, the region is left alone for a while, and the job goes elsewhere."""
    stage = Stage()
    stage.submit()
    effect = stage.take()
    assert isinstance(effect, Launch)
    region, token = effect.request.offer.region, effect.request.token
    refused = (ErrorKind.MISCONFIGURED, Scope.REGION, "InvalidSubnetID.NotFound", "the subnet ID 'subnet-1' does not exist")
    recorded = stage.step(lambda at: LaunchRefused(at, token, *refused), done=[effect])
    following = stage.take()
    assert isinstance(following, Launch)
    assert following.request.offer.region != region
    alarms = [event for event in stage.ledger.events if isinstance(event, AlarmRaised)]
    assert [alarm.alarm for alarm in alarms] == [AlarmKind.MISCONFIGURED], recorded
    assert "subnet-1" in alarms[0].message
