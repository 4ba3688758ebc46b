"""What every clock promises: the daemon's, and the one that tests step."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta, timezone
from time import monotonic

import pytest

from spotd.daemon.clock import SystemClock
from spotd.ports import Clock
from spotd.testing import FakeClock


@pytest.fixture(params=[SystemClock, FakeClock], ids=["system", "fake"])
def clock(request: pytest.FixtureRequest) -> Clock:
    """Each of them."""
    made: Clock = request.param()
    return made


def test_now_is_aware_and_in_utc(clock: Clock) -> None:
    """Port: "wall time: aware, UTC"."""
    assert clock.now().utcoffset() == timedelta(0)


def test_monotonic_never_goes_back(clock: Clock) -> None:
    """Port: "seconds that only go forward"."""
    readings = [clock.monotonic() for _ in range(100)]
    assert readings == sorted(readings)


def test_a_wait_for_what_has_happened_is_over_at_once(clock: Clock) -> None:
    """Port: "wait until the event is set", however long the timeout; also without one."""
    event = threading.Event()
    event.set()
    assert clock.wait(event, 3600.0)
    assert clock.wait(event, None)


def test_a_wait_of_no_time_only_looks(clock: Clock) -> None:
    """Port: "or the timeout is over; whether it is set"."""
    assert not clock.wait(threading.Event(), 0.0)


def test_a_wait_ends_when_another_thread_sets_the_event(clock: Clock) -> None:
    """Whoever waits for an hour is woken within a moment of real time, and told why."""
    event = threading.Event()
    threading.Timer(0.02, event.set).start()
    began = monotonic()
    assert clock.wait(event, 3600.0)
    assert monotonic() - began < 5


def test_stepping_moves_both_times() -> None:
    """A step is time that passes; a jump is somebody who sets the wall clock, and no time."""
    clock = FakeClock(datetime(2026, 3, 1, tzinfo=UTC))
    clock.step(90.5)
    assert (clock.now(), clock.monotonic()) == (datetime(2026, 3, 1, 0, 1, 30, 500_000, tzinfo=UTC), 90.5)
    clock.jump(-3600)
    assert (clock.now(), clock.monotonic()) == (datetime(2026, 2, 28, 23, 1, 30, 500_000, tzinfo=UTC), 90.5)


def test_a_wait_ends_when_the_clock_is_stepped_past_it() -> None:
    """Not before, and without any real time to speak of."""
    clock, answers, over = FakeClock(), list[bool](), threading.Event()

    def wait() -> None:
        answers.append(clock.wait(threading.Event(), 60.0))
        over.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    clock.step(30)
    assert not over.wait(0.05)
    # The waiter may have begun after the first step: a minute from its own begin is over after one more.
    clock.step(60)
    assert over.wait(5)
    waiter.join()
    assert answers == [False]


def test_time_is_never_ambiguous() -> None:
    """A start without a time zone is refused, one in another zone is kept as the same instant, and no step goes back."""
    with pytest.raises(ValueError, match="time zone"):
        FakeClock(datetime(2026, 1, 1))  # noqa: DTZ001 - that is what is refused
    there = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=9)))
    assert FakeClock(there).now() == there
    assert FakeClock(there).now().utcoffset() == timedelta(0)
    with pytest.raises(ValueError, match="jump"):
        FakeClock().step(-1)
