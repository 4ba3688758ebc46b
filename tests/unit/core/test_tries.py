"""Tries whose outcome stayed unknown: what they may do to their attempt, and what a refusal proves. Each was found by the simulation."""

from __future__ import annotations

from datetime import timedelta

from spotd.core.attempt import AttemptState
from spotd.core.directive import directive
from spotd.core.errors import ErrorKind, Scope
from spotd.core.events import (
    AgentBootstrapped,
    AgentReady,
    CancelRequested,
    LaunchNotFound,
    LaunchRefused,
    LaunchSucceeded,
    LaunchUnknown,
    Listed,
    NoticeSeen,
    WorkloadStarted,
)
from spotd.core.instance import EndedBy, Instance, InstanceState, ObservedInstance, ObservedState
from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd.core.plan import Effect, Launch, Resolve, Terminate
from tests.unit.core.stage import Stage


def _pop(stage: Stage, kind: type[Effect]) -> Launch | Resolve:
    effect = next(e for e in stage.effects if isinstance(e, kind))
    stage.effects.remove(effect)
    assert isinstance(effect, Launch | Resolve)
    return effect


def _unknown(stage: Stage) -> str:
    """The launch call that is out fails in a way that proves nothing."""
    effect = _pop(stage, Launch)
    token = effect.request.token
    stage.step(lambda at: LaunchUnknown(at, token, "timed out"), done=[effect])
    return token


def _instance(stage: Stage, token: str) -> Instance:
    return stage.engine.world.instances[token]


def _two_tries(stage: Stage) -> tuple[str, str]:
    """An attempt whose first call nobody answered for so long that a second try was made, which runs."""
    stage.submit()
    old = _unknown(stage)
    stage.step(after=200)
    effect = _pop(stage, Launch)
    new = effect.request.token
    assert new != old
    stage.step(lambda at: LaunchSucceeded(at, new, "i-new", at), done=[effect])
    stage.step(lambda at: AgentReady(at, new, None, None, 1.0, 0.0, 0.0))
    stage.step(lambda at: WorkloadStarted(at, new))
    stage.step(lambda at: LaunchSucceeded(at, old, "i-old", at))
    return old, new


def test_the_end_of_a_superseded_try_does_not_end_its_attempt() -> None:
    """Seed 71: the first try's machine, ended because another took its place, took the running attempt with it as `lost`."""
    stage = Stage()
    old, new = _two_tries(stage)
    region, zone = _instance(stage, old).request.offer.region, _instance(stage, old).request.offer.zone
    gone = ObservedInstance("i-old", old, region, zone, ObservedState.GONE, stage.now, stage.now, EndedBy.US, "Client.UserInitiatedShutdown")
    stage.step(lambda at: Listed(at, at, "cloud", region, (gone,)), after=60)
    assert _instance(stage, old).state is InstanceState.GONE
    assert stage.engine.world.attempts[_instance(stage, new).attempt_id].state is AttemptState.RUNNING


def test_a_superseded_try_is_told_to_stop_and_never_runs_the_workload() -> None:
    """The gate is the attempt's, and only its newest try may go through it: an older machine that boots late would be a second workload."""
    stage = Stage()
    old, new = _two_tries(stage)
    stage.step(lambda at: AgentReady(at, old, None, None, 1.0, 0.0, 0.0))
    assert directive(stage.engine.world, new, stage.now).gate_open
    told = directive(stage.engine.world, old, stage.now)
    assert (told.gate_open, told.stop) == (False, "superseded")


def test_a_reclaim_of_a_superseded_try_is_not_a_preemption() -> None:
    """A preemption is an attempt hit by a reclaim; the attempt does not run there."""
    stage = Stage()
    old, new = _two_tries(stage)
    stage.step(lambda at: NoticeSeen(at, old, Notice(NoticeKind.RECLAIM, NoticeSource.IMDS, at, at + timedelta(minutes=2))))
    attempt = stage.engine.world.attempts[_instance(stage, new).attempt_id]
    assert (attempt.preempted_at, attempt.state) == (None, AttemptState.RUNNING)


def test_a_refusal_of_a_repeated_call_does_not_settle_the_call_before_it() -> None:
    """Seeds 53, 57, 94: the call before had launched a machine, the repeat met a limit, and the machine was stored as gone while it lived."""
    stage = Stage()
    stage.submit()
    token = _unknown(stage)
    stage.step(after=5)
    asked = _pop(stage, Resolve)
    stage.step(lambda at: LaunchNotFound(at, token), done=[asked])
    stage.step(after=5)
    again = _pop(stage, Launch)
    assert again.request.token == token
    refused = ErrorKind.NO_CAPACITY, Scope.OFFER
    stage.step(lambda at: LaunchRefused(at, token, *refused, "InsufficientInstanceCapacity", "none"), done=[again])
    assert _instance(stage, token).state is InstanceState.REQUESTED, "what the first call did is still not known"
    following = _pop(stage, Launch)
    assert following.request.token != token, "the job goes on with its next try"
    stage.step(lambda at: LaunchSucceeded(at, token, "i-late", at))
    assert _instance(stage, token).terminate_because == "another try took its place"


def test_an_empty_pool_after_a_repeated_call_is_settled_by_listings() -> None:
    """Nobody repeats a refused call; two complete listings, late enough, prove that the first one launched nothing either."""
    stage = Stage()
    stage.submit()
    token = _unknown(stage)
    stage.step(after=5)
    asked = _pop(stage, Resolve)
    stage.step(lambda at: LaunchNotFound(at, token), done=[asked])
    stage.step(after=5)
    again = _pop(stage, Launch)
    stage.step(lambda at: LaunchRefused(at, token, ErrorKind.NO_CAPACITY, Scope.OFFER, "", "none"), done=[again])
    region = _instance(stage, token).request.offer.region
    for _ in range(3):
        stage.step(lambda at: Listed(at, at, "cloud", region, ()), after=400)
        for effect in [e for e in stage.effects if isinstance(e, Resolve) and e.request.token == token]:
            stage.effects.remove(effect)
            stage.step(lambda at: LaunchNotFound(at, token), done=[effect])
    assert _instance(stage, token).state is InstanceState.GONE
    assert _instance(stage, token).ended_by is EndedBy.NEVER_RAN


def test_a_clock_set_forward_between_two_daemons_does_not_prove_an_absence() -> None:
    """Simulation seed 103787: a launch that was carried out late was taken for one that never was. Ages count from the start of who measures."""
    stage = Stage()
    stage.submit()
    token = _unknown(stage)
    region = _instance(stage, token).request.offer.region
    restarted = stage.now + timedelta(minutes=11)
    for at, counted in ((1, 0), (9, 0), (10, 1), (11, 2)):
        when = restarted + timedelta(minutes=at)
        stage.step(lambda _, when=when: Listed(when, when, "cloud", region, (), restarted))  # type: ignore[misc]
        assert _instance(stage, token).absences == counted


def test_an_agent_that_called_once_and_was_never_seen_is_settled_when_nothing_is_found_of_it() -> None:
    """Simulation seed 1233: its machine was reclaimed before a listing showed it, and spotd went on asking for it for ever."""
    stage = Stage()
    stage.submit()
    token = _unknown(stage)
    region = _instance(stage, token).request.offer.region
    stage.step(lambda at: AgentBootstrapped(at, token, "n", "s"))
    stage.engine.heard(token, stage.now)
    stage.step(lambda at: CancelRequested(at, "job-1", "alice"))
    spoke = stage.now
    while token in stage.engine.world.instances:
        stage.step(lambda at: Listed(at, at, "cloud", region, ()), after=60)
        for effect in [e for e in stage.effects if isinstance(e, Resolve)]:
            stage.effects.remove(effect)
            stage.step(lambda at: LaunchNotFound(at, token), done=[effect])
        assert stage.now - spoke < timedelta(minutes=30)
    assert stage.now - spoke > timedelta(minutes=10), "while it may still be alive nothing is concluded"


def test_one_listing_that_lacked_a_young_machine_does_not_make_it_lost() -> None:
    """Simulation seed 21745: the first listing lagged, all later ones failed, the agent was cut off, and a healthy job was ended for it."""
    stage = Stage()
    stage.submit()
    effect = _pop(stage, Launch)
    token, region = effect.request.token, effect.request.offer.region
    stage.step(lambda at: LaunchSucceeded(at, token, "i-1", at), done=[effect])
    stage.step(lambda at: Listed(at, at, "cloud", region, ()))
    stage.step(lambda at: AgentReady(at, token, None, None, 1.0, 0.0, 0.0))
    stage.step(lambda at: WorkloadStarted(at, token))
    stage.step(after=3600)
    assert _instance(stage, token).terminate_requested_at is None
    for _ in range(2):
        stage.step(lambda at: Listed(at, at, "cloud", region, ()), after=30)
    assert _instance(stage, token).terminate_because.startswith("lost")


def test_a_stopped_machine_that_nobody_knows_is_ended() -> None:
    """It executes nothing and is on its way nowhere: its disk would be paid for until somebody looked (DESIGN §4, rule 4)."""
    stage = Stage()
    row = ObservedInstance("i-stray", "no-such-token", "east", "easta", ObservedState.ENDING, stage.now)
    for _ in range(3):
        stage.step(lambda at: Listed(at, at, "cloud", "east", (row,)), after=400)
    assert [effect.provider_id for effect in stage.effects if isinstance(effect, Terminate)] == ["i-stray"]


def test_what_has_called_is_never_taken_for_what_never_ran() -> None:
    """A provider's word for a failed start is sometimes that of a failure; a machine whose agent has called is charged for."""
    stage = Stage()
    stage.submit()
    effect = _pop(stage, Launch)
    token, offer = effect.request.token, effect.request.offer
    stage.step(lambda at: LaunchSucceeded(at, token, "i-1", at), done=[effect])
    stage.step(lambda at: AgentBootstrapped(at, token, "n", "s"))
    row = ObservedInstance("i-1", token, offer.region, offer.zone, ObservedState.GONE, None, stage.now, EndedBy.NEVER_RAN, "Server.InternalError")
    stage.step(lambda at: Listed(at, at, "cloud", offer.region, (row,)))
    assert stage.ledger.instances[token].ended_by is EndedBy.UNKNOWN


def test_an_end_by_hand_that_is_first_seen_under_way_is_external() -> None:
    """Simulation seed 480: we asked at once for the end of what somebody else was ending, and then took its end for our own doing."""
    stage = Stage()
    stage.submit()
    effect = _pop(stage, Launch)
    token = effect.request.token
    stage.step(lambda at: LaunchSucceeded(at, token, "i-1", at), done=[effect])
    stage.step(lambda at: AgentReady(at, token, None, None, 1.0, 0.0, 0.0))
    offer = effect.request.offer
    for state, by in ((ObservedState.ENDING, None), (ObservedState.GONE, EndedBy.US)):
        row = ObservedInstance("i-1", token, offer.region, offer.zone, state, stage.now, stage.now if by else None, by, "")
        stage.step(lambda at, row=row: Listed(at, at, "cloud", offer.region, (row,)), after=1200)  # type: ignore[misc]
    assert _instance(stage, token).ended_by is EndedBy.EXTERNAL


def test_a_machine_that_was_just_found_is_not_lost() -> None:
    """Simulation seed 5197: listings had lacked it while nobody knew of it, so it was ended as lost in the moment in which it was found."""
    stage = Stage()
    stage.submit()
    token = _unknown(stage)
    region = _instance(stage, token).request.offer.region
    for _ in range(3):
        stage.step(lambda at: Listed(at, at, "cloud", region, ()), after=400)
    stage.step(lambda at: LaunchSucceeded(at, token, "i-1", at))
    found = _instance(stage, token)
    assert (found.absences, found.absent_since) == (0, None)
    assert found.terminate_because in {"", "another try took its place"}
