"""The loop around the engine: nothing is acknowledged before it is committed, nothing that happened is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from spotd.core.errors import NoCapacity, ProviderUnavailable, Scope
from spotd.core.events import CancelRequested, JobSubmitted, LaunchRefused, LaunchSucceeded, LaunchUnknown
from spotd.core.instance import LaunchRequest
from spotd.core.plan import Launch
from spotd.daemon.clock import SystemClock
from spotd.daemon.database import StoreUnavailable
from spotd.daemon.execute import execute
from spotd.daemon.loop import Loop
from spotd.ports import Launched
from tests.unit.core.stage import Ledger, Stage, default_prices, job


class Cloud:
    """A provider that answers launches as it is told."""

    def __init__(self) -> None:
        self.answer: Exception | Launched = Launched("i-1")
        self.calls: list[tuple[LaunchRequest, str]] = []
        self.called = threading.Event()

    def launch(self, request: LaunchRequest, user_data: str) -> Launched:
        """Answer as told."""
        self.calls.append((request, user_data))
        self.called.set()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def _script(request: LaunchRequest) -> str:
    return f"boot {request.token}"


@pytest.fixture(name="cloud")
def _cloud() -> Cloud:
    return Cloud()


@pytest.fixture(name="stage")
def _stage() -> Stage:
    stage = Stage()
    stage.now = SystemClock().now()
    stage.price(default_prices())
    return stage


@pytest.fixture(name="loop")
def _loop(stage: Stage, cloud: Cloud) -> Iterator[Loop]:
    loop = Loop(stage.engine, {"cloud": cloud}, _script, SystemClock())  # type: ignore[dict-item]
    loop.start()
    yield loop
    loop.stop()


def _submitted(identity: str = "job-1") -> JobSubmitted:
    now = SystemClock().now()
    template = job()
    return JobSubmitted(now, template.__class__(identity, template.spec, "alice", now, spot_since=now, waiting_since=now))


def test_what_is_recorded_is_committed_when_record_returns(loop: Loop, stage: Stage, cloud: Cloud) -> None:
    """record() returns after the commit, and the decision that follows is carried out with the script of its own request."""
    loop.record([_submitted()])

    assert "job-1" in loop.world.jobs
    assert [type(e).__name__ for e in stage.ledger.events[:3]] == ["JobSubmitted", "AttemptPlaced", "LaunchRequested"]
    assert cloud.called.wait(5)
    request, script = cloud.calls[0]
    assert script == f"boot {request.token}"


def test_a_failed_commit_is_told_to_whoever_waits_and_changes_nothing(loop: Loop, stage: Stage) -> None:
    """With a full disk the caller gets the error, so an agent is not acknowledged and says it again."""
    stage.ledger.broken = True

    with pytest.raises(OSError, match="disk full"):
        loop.record([_submitted()])

    assert loop.world.jobs == {}


def test_what_nobody_waits_for_is_kept_until_it_can_be_recorded(loop: Loop, stage: Stage) -> None:
    """Outcomes of calls survive a full disk: they are recorded as soon as there is room."""
    recorded = threading.Event()
    stage.ledger.broken = True
    loop.tell([_submitted()])
    with pytest.raises(OSError, match="disk full"):
        loop.record([_submitted("job-2")])
    original = stage.ledger.commit

    def commit(events: list[object], changes: object) -> None:
        original(events, changes)  # type: ignore[arg-type]
        recorded.set()

    stage.ledger.commit = commit  # type: ignore[method-assign,assignment]
    stage.ledger.broken = False
    loop.wake()

    assert recorded.wait(10)
    assert "job-1" in loop.world.jobs


def test_a_store_that_is_away_is_asked_once_for_all(loop: Loop, stage: Stage) -> None:
    """When the database is locked, a batch fails together instead of each submission waiting for the same lock in turn."""
    commits: list[int] = []
    first, release = threading.Event(), threading.Event()

    def commit(events: list[object], changes: object) -> None:
        del changes
        commits.append(len(events))
        first.set()
        release.wait(10)
        raise StoreUnavailable("locked")

    def submit(number: int) -> None:
        with pytest.raises(StoreUnavailable):
            loop.record([_submitted(f"job-{number}")])

    stage.ledger.commit = commit  # type: ignore[method-assign,assignment]
    threads = [threading.Thread(target=submit, args=(number,)) for number in range(20)]
    threads[0].start()
    assert first.wait(10)
    for thread in threads[1:]:
        thread.start()
    while loop._inbox.qsize() < len(threads) - 1:
        threading.Event().wait(0.01)
    release.set()
    for thread in threads:
        thread.join(10)

    assert not any(thread.is_alive() for thread in threads)
    assert len(commits) == 2


def test_record_after_the_end_is_refused_and_does_not_hang(loop: Loop) -> None:
    """A request that comes while the daemon stops is told so, instead of waiting for ever."""
    loop.stop()

    with pytest.raises(RuntimeError, match="spotd is stopping"):
        loop.record([_submitted()])


def test_a_log_that_fails_stops_nothing(loop: Loop, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was committed is carried out, and the next one who records is answered: without its writer the daemon would hang for ever."""

    def fail(_: object) -> None:
        raise ValueError("no such word")

    monkeypatch.setattr("spotd.daemon.loop.log_events", fail)
    loop.record([_submitted()])
    assert cloud.called.wait(5)
    loop.record([_submitted("job-2")])
    assert "job-2" in loop.world.jobs


def test_one_that_never_began_can_be_stopped(stage: Stage, cloud: Cloud) -> None:
    """The daemon could not listen: that is what is to be told, not that a thread cannot be joined."""
    loop = Loop(stage.engine, {"cloud": cloud}, _script, SystemClock())  # type: ignore[dict-item]
    loop.stop()


def test_a_submission_that_cannot_be_folded_fails_alone(loop: Loop) -> None:
    """Nonsense from one caller does not take others' events with it."""
    with pytest.raises(KeyError):
        loop.record([CancelRequested(SystemClock().now(), "nobody", "alice")])
    loop.record([_submitted()])

    assert "job-1" in loop.world.jobs


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Launched("i-1"), LaunchSucceeded),
        (NoCapacity("none", "InsufficientInstanceCapacity", Scope.ZONE), LaunchRefused),
        (ProviderUnavailable("timed out"), LaunchUnknown),
        (RuntimeError("token=SECRET"), LaunchUnknown),
    ],
)
def test_every_launch_becomes_exactly_one_event(cloud: Cloud, answer: Exception | Launched, kind: type) -> None:
    """A refusal is a refusal, everything else is unknown, and the text of a surprise never reaches the journal."""
    stage = Stage()
    stage.submit()
    effect = stage.take()
    assert isinstance(effect, Launch)
    cloud.answer = answer

    event = execute(effect, {"cloud": cloud}, _script, SystemClock())  # type: ignore[dict-item]

    assert type(event) is kind
    assert "SECRET" not in repr(event)


def test_a_provider_that_is_not_configured_any_more_leaves_the_outcome_open() -> None:
    """Removing a provider from the configuration never makes a launch count as refused, and the message says how to go on (known-faults A.55)."""
    stage = Stage()
    stage.submit()

    event = execute(stage.take(), {}, _script, SystemClock())

    assert isinstance(event, LaunchUnknown)
    assert "[providers.cloud]" in event.message


def test_the_clock_does_not_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of the system's clock by an hour moves now() by no more than time really passed and a twentieth of it."""
    wall, boot = [1_000_000.0], [50.0]
    monkeypatch.setattr("spotd.daemon.clock.time.time", lambda: wall[0])
    monkeypatch.setattr("spotd.daemon.clock._boottime", lambda: boot[0])
    clock = SystemClock()
    before = clock.now()
    wall[0] += 3600 + 10
    boot[0] += 10

    after = clock.now()

    assert timedelta(seconds=10) <= after - before <= timedelta(seconds=10.5)


def test_ledger_of_the_stage_keeps_everything() -> None:
    """The stage's store is what the tests above believe it to be."""
    ledger = Ledger()
    ledger.commit([_submitted()], Stage().engine.world)  # type: ignore[arg-type]

    assert len(ledger.events) == 1
