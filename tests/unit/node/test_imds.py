"""The metadata service, healthy and otherwise: real HTTP on loopback, the clock stepped where waiting would be the only point."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from spotd.node.clock import SystemClock
from spotd.node.imds import ImdsWatcher, MetadataUnknown
from spotd.node.notices import Observation
from spotd.node.watch import Watch
from tests.unit.node.fakes import FakeImds


@pytest.fixture(name="imds")
def _imds() -> Iterator[FakeImds]:
    with contextlib.closing(FakeImds()) as imds:
        yield imds


def _watcher(imds: FakeImds) -> ImdsWatcher:
    return ImdsWatcher(SystemClock(), 120.0, imds.address)


def _left(observation: Observation) -> float:
    (sighting,) = observation.sightings
    assert sighting.deadline_at is not None
    return sighting.deadline_at - SystemClock().monotonic()


def test_404_everywhere_is_health(imds: FakeImds) -> None:
    """Nothing is announced, every question was answered, and one token served them all."""
    watcher = _watcher(imds)

    assert [watcher.look(), watcher.look()] == [Observation((), complete=True)] * 2
    assert sum(request.startswith("PUT") for request in imds.requests) == 1
    asked = [request.split("/", 3)[-1] for request in imds.requests if request.startswith("GET")][:3]
    assert asked == ["spot/instance-action", "events/recommendations/rebalance", "events/maintenance/scheduled"]


@pytest.mark.parametrize("skew_s", [0.0, 600.0, -600.0])
def test_the_deadline_is_told_by_the_services_own_clock(imds: FakeImds, skew_s: float) -> None:
    """Ten minutes between the two clocks change nothing."""
    imds.skew_s = skew_s
    imds.reclaim(100)

    assert 97 <= _left(_watcher(imds).look()) <= 101


def test_hibernation_has_begun_when_it_is_announced(imds: FakeImds) -> None:
    """Its deadline is now."""
    imds.reclaim(100, "hibernate")

    assert _left(_watcher(imds).look()) <= 0.5


def test_an_unreadable_time_gets_the_usual_notice(imds: FakeImds) -> None:
    """That there is a reclaim counts for more than when."""
    imds.paths["spot/instance-action"] = {"action": "stop", "time": "soon"}

    assert 118 <= _left(_watcher(imds).look()) <= 120


def test_an_expired_token_is_renewed_within_the_same_look(imds: FakeImds) -> None:
    """401 means a new token and once more at once: a notice is never seen a poll late for it (facts/reclaim.md §5, 1)."""
    watcher = _watcher(imds)
    watcher.look()
    imds.tokens = dict.fromkeys(imds.tokens, 0)
    imds.reclaim(100)

    assert watcher.look().sightings[0].kind == "reclaim"


def test_401_for_ever_is_unknown_and_costs_few_requests(imds: FakeImds) -> None:
    """Two tries per look, no loop."""
    imds.token_uses = 0
    with pytest.raises(MetadataUnknown):
        _watcher(imds).look()

    assert len(imds.requests) == 4


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"null", b'{"time": "2030-01-01T00:00:00Z"}'])
def test_a_body_that_is_none_is_unknown(imds: FakeImds, body: bytes) -> None:
    """A captive page is no reclaim, and no health either."""
    imds.paths["spot/instance-action"] = body
    with pytest.raises(MetadataUnknown):
        _watcher(imds).look()


def test_a_fault_behind_the_reclaim_does_not_hide_it(imds: FakeImds) -> None:
    """Rubbish in scheduled maintenance: the reclaim counts, only absence means nothing."""
    imds.reclaim(100)
    imds.paths["events/maintenance/scheduled"] = b"rubbish"
    observation = _watcher(imds).look()

    assert (len(observation.sightings), observation.complete) == (1, False)


def test_maintenance_has_its_own_kind_of_date(imds: FakeImds) -> None:
    """`1 Jan 2030 09:00:43 GMT`, active events only, and a reboot counts as a stop while mere maintenance does not."""
    when = time.strftime("%d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 3600)).lstrip("0")
    base = {"NotBefore": when, "Description": "…", "State": "active"}
    imds.paths["events/maintenance/scheduled"] = [
        {**base, "Code": "instance-stop", "EventId": "e1"},
        {**base, "Code": "system-maintenance", "EventId": "e2"},
        {**base, "Code": "system-reboot", "EventId": "e3", "State": "completed"},
    ]
    first, second = _watcher(imds).look().sightings

    assert (first.kind, first.action, first.stops, second.stops) == ("maintenance", "instance-stop", True, False)
    assert first.deadline_at is not None
    assert 3590 <= first.deadline_at - SystemClock().monotonic() <= 3601


@pytest.mark.parametrize("fault", ["hangs", "drips", "is gone", "is broken"])
def test_a_look_is_bounded_and_the_watch_goes_on(imds: FakeImds, fault: str) -> None:
    """A black hole, a server that sends a byte at a time, nobody, 503: unknown within about three seconds, counted, and survived."""
    seen: list[Observation] = []
    if fault == "hangs":
        imds.hang_s = 2.0
    elif fault == "drips":
        imds.drip = True
    elif fault == "is gone":
        imds.close()
    else:
        imds.status = 503
    watch = Watch(_watcher(imds), 2.0, SystemClock(), seen.append)
    begun = time.monotonic()
    watch.step()

    assert time.monotonic() - begun < 3.5
    assert (watch.unknown, seen) == (1, [])


def test_the_alert_comes_after_three_looks_and_once(imds: FakeImds, capsys: pytest.CaptureFixture[str]) -> None:
    """A hundred failures are one sentence; the first answer sets the count back."""
    imds.status = 500
    seen: list[Observation] = []
    watch = Watch(_watcher(imds), 2.0, SystemClock(), seen.append)
    for _ in range(100):
        watch.step()
    assert capsys.readouterr().err.count("reclaims may go unseen") == 1
    imds.status = None
    watch.step()

    assert (watch.unknown, len(seen)) == (0, 1)
