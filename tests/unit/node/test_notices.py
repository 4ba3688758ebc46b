"""Many sightings, one notice."""

from __future__ import annotations

from typing import Any

from spotd.node.notices import NoticeBook, Observation, Sighting


def _seen(*sightings: Sighting, complete: bool = True) -> Observation:
    return Observation(sightings, complete)


def _reclaim(deadline_at: float, identity: str = "a") -> Sighting:
    return Sighting("reclaim", "imds", "terminate", deadline_at, identity, stops=True)


def _maintenance(deadline_at: float, code: str = "instance-stop", *, stops: bool = True) -> Sighting:
    return Sighting("maintenance", "imds", code, deadline_at, "event-1", stops=stops)


def _book(kept: dict[str, Any] | None = None) -> NoticeBook:
    return NoticeBook("i-1", 120.0, kept)


def test_the_earliest_deadline_of_one_reclaim_wins() -> None:
    """Times that slide at every look (facts/reclaim.md §5, 11) are one notice; an earlier one is news under the same id."""
    book = _book()
    (first,) = book.fold(_seen(_reclaim(220.0)), 100.0).said
    assert book.fold(_seen(_reclaim(230.0, "b")), 110.0).said == ()
    assert book.fold(_seen(_reclaim(219.0, "c")), 111.0).said == ()
    (second,) = book.fold(_seen(_reclaim(200.0, "d")), 112.0).said

    assert (second.id, second.deadline_at) == (first.id, 200.0)
    assert book.stopping(112.0) == second


def test_a_restarted_agent_does_not_say_it_again() -> None:
    """The book that was kept knows the notice."""
    book = _book()
    book.fold(_seen(_reclaim(220.0)), 100.0)

    again = _book(book.to_json())

    assert again.fold(_seen(_reclaim(220.0)), 130.0).said == ()
    assert again.stopping(130.0) is not None


def test_a_warning_that_vanished_is_off_only_five_minutes_after_its_deadline() -> None:
    """Before that, and while the service does not answer every question, it stays in force; later a new one is a new notice."""
    book = _book()
    (notice,) = book.fold(_seen(_reclaim(200.0)), 100.0).said
    assert book.fold(_seen(), 499.0).cancelled == ()
    assert book.fold(_seen(complete=False), 600.0).cancelled == ()
    assert book.fold(_seen(), 600.0).cancelled == (notice,)
    assert book.stopping(600.0) is None
    (other,) = book.fold(_seen(_reclaim(800.0, "later")), 700.0).said

    assert other.id != notice.id


def test_a_rebalance_hint_comes_once() -> None:
    """It stops nothing, stays set, and is never taken back."""
    book = _book()
    hint = Sighting("rebalance", "imds", "rebalance", None, "rebalance", stops=False)
    assert len(book.fold(_seen(hint), 0.0).said) == 1
    assert book.fold(_seen(), 99999.0).cancelled == ()
    assert book.fold(_seen(hint), 100000.0).said == ()

    assert book.stopping(100000.0) is None


def test_maintenance_days_ahead_is_said_now_and_stops_later() -> None:
    """The daemon hears at once and may move the job; the agent itself stops it when its notice begins."""
    book = _book()
    assert len(book.fold(_seen(_maintenance(90_000.0)), 0.0).said) == 1
    assert book.stopping(89_000.0) is None

    assert book.stopping(89_881.0) is not None


def test_maintenance_that_was_called_off_is_off() -> None:
    """Days ahead its absence is believed at once."""
    book = _book()
    book.fold(_seen(_maintenance(90_000.0)), 0.0)

    assert len(book.fold(_seen(), 100.0).cancelled) == 1


def test_maintenance_that_may_pass_unnoticed_stops_nothing() -> None:
    """`system-maintenance` only warns; another event that stops takes over."""
    book = _book()
    book.fold(_seen(_maintenance(150.0, "system-maintenance", stops=False)), 100.0)
    assert book.stopping(149.0) is None
    (notice,) = book.fold(_seen(_maintenance(180.0)), 101.0).said

    assert notice.stops
    assert book.stopping(149.0) is not None
