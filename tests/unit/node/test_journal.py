"""Nothing said twice, nothing forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotd.node.journal import Journal
from tests.unit.node.stepped import SteppedClock


def test_messages_survive_with_their_numbers_and_ages(tmp_path: Path) -> None:
    """A restarted agent says the same messages under the same numbers, and knows how long ago they happened."""
    clock = SteppedClock()
    path = str(tmp_path / "state.json")
    first = Journal(path, clock, "boot-1")
    assert first.say("ready", {"boot_s": 1.0}, once="ready", phase="ready")
    clock.step(5)
    again = Journal(path, clock, "boot-1")
    assert not again.say("ready", {"boot_s": 2.0}, once="ready")
    again.say("started", {})

    expected = [{"seq": 1, "type": "ready", "age_s": 5.0, "boot_s": 1.0}, {"seq": 2, "type": "started", "age_s": 0.0}]
    assert expected == again.unacknowledged()
    assert again.get("phase") == "ready"


def test_acknowledged_messages_are_gone_and_numbers_go_on(tmp_path: Path) -> None:
    """Acknowledging may come twice or too late; numbers are never used again."""
    clock = SteppedClock()
    path = str(tmp_path / "state.json")
    journal = Journal(path, clock, "boot-1")
    for _ in range(3):
        journal.say("checkpoint", {})
    journal.acknowledge(2)
    journal.acknowledge(1)
    journal.acknowledge(3)
    again = Journal(path, clock, "boot-1")
    again.say("exited", {})

    assert [message["seq"] for message in again.unacknowledged()] == [4]


def test_times_follow_a_reboot(tmp_path: Path) -> None:
    """Monotonic clocks start anew with each boot: ages and deadlines keep their distance from now."""
    clock = SteppedClock(now=5000.0)
    path = str(tmp_path / "state.json")
    journal = Journal(path, clock, "boot-1")
    journal.say("notice", {}, drain={"deadline_at": 5100.0, "seconds": 7.0}, first_at=4000.0)
    clock.now = 3.0
    clock.wall += 30.0
    again = Journal(path, clock, "boot-2")

    assert again.get("drain") == {"deadline_at": pytest.approx(73.0), "seconds": 7.0}
    assert again.get("first_at") == pytest.approx(-1027.0)
    assert again.unacknowledged()[0]["age_s"] == pytest.approx(30.0)


def test_a_disk_that_takes_nothing_does_not_stop_the_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It goes on in memory, says so once, and writes again when it can."""
    clock = SteppedClock()
    directory = tmp_path / "missing"
    journal = Journal(str(directory / "state.json"), clock, "boot-1")
    journal.say("ready", {})
    journal.put(phase="ready")
    assert capsys.readouterr().err.count("going on in memory") == 1
    journal.say("started", {})
    directory.mkdir()
    clock.step(1.0)
    journal.retry()

    assert [m["seq"] for m in Journal(str(directory / "state.json"), clock, "boot-1").unacknowledged()] == [1, 2]


def test_one_request_holds_a_bounded_batch(tmp_path: Path) -> None:
    """A daemon that was away for a week is told the rest later."""
    journal = Journal(str(tmp_path / "state.json"), SteppedClock(), "boot-1")
    for _ in range(150):
        journal.say("checkpoint", {})

    assert [m["seq"] for m in journal.unacknowledged()] == list(range(1, 101))
