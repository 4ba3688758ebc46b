"""Bootstrap, heartbeat and logs against a daemon on loopback, in this process."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spotd.node.bootstrap import BootstrapRefused, bootstrap
from spotd.node.journal import Journal
from spotd.node.link import Answer, DrainOrder, Link
from spotd.node.logstream import LogStream
from spotd.node.spec import BadSpec, Config, Spec
from spotd.node.web import Web, WebError
from tests.unit.node.fakes import FakeDaemon, certificate, serving
from tests.unit.node.stepped import SteppedClock


@pytest.fixture(name="daemon")
def _daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with serving(tmp_path) as daemon:
        yield daemon


def _web(daemon: FakeDaemon) -> Web:
    return Web(daemon.address, certificate()[0])


def _bootstrap(daemon: FakeDaemon, directory: Path, **config: str) -> tuple[str, Spec] | None:
    parsed = Config.parse(daemon.config(**config))
    return bootstrap(_web(daemon), parsed, str(directory), "boot-1", SteppedClock(), threading.Event())


def test_a_lost_answer_is_asked_for_again_with_the_same_nonce(daemon: FakeDaemon, tmp_path: Path) -> None:
    """The nonce is on disk before it is sent, the session before it is used; a restarted agent asks nobody."""
    daemon.lose = 2
    first = _bootstrap(daemon, tmp_path)
    daemon.down = True

    assert first is not None
    assert first == _bootstrap(daemon, tmp_path)
    assert (tmp_path / "session.json").stat().st_mode & 0o077 == 0


def test_a_daemon_that_is_away_is_waited_for(daemon: FakeDaemon, tmp_path: Path) -> None:
    """Hours of 503 pass with back-off; then it works."""
    clock = SteppedClock()
    daemon.down = True
    step = clock.step

    def come_back(seconds: float) -> None:
        step(seconds)
        daemon.down = clock.now < 1600

    clock.step = come_back  # type: ignore[method-assign]
    found = bootstrap(_web(daemon), Config.parse(daemon.config()), str(tmp_path), "boot-1", clock, threading.Event())

    assert found is not None
    assert found[0] == "session-secret"


def test_somebody_else_was_first(daemon: FakeDaemon, tmp_path: Path) -> None:
    """Another nonce was used with our credential: final."""
    daemon.nonce = "f" * 32
    with pytest.raises(BootstrapRefused):
        _bootstrap(daemon, tmp_path)


@pytest.mark.parametrize("key", ["job", "run", "attempt", "env", "resume", "poll_s"])
def test_a_specification_that_makes_no_sense_names_its_key(daemon: FakeDaemon, tmp_path: Path, key: str) -> None:
    """The sentence says where."""
    daemon.spec[key] = -1
    with pytest.raises(BadSpec, match=key):
        _bootstrap(daemon, tmp_path)


def test_credentials_are_not_shown() -> None:
    """A configuration can be printed."""
    config = Config("https://h:1", "pem", "i", "bootstrap-secret")

    assert "secret" not in repr(config)
    assert dataclasses.asdict(config)["bootstrap_credential"] == "bootstrap-secret"


def test_only_https_is_spoken(daemon: FakeDaemon, tmp_path: Path) -> None:
    """Neither the daemon nor a store is talked to in the clear."""
    with pytest.raises(ValueError, match="https"):
        Web("http://127.0.0.1:1", certificate()[0])
    with pytest.raises(WebError):
        _web(daemon).fetch("http://127.0.0.1:1/x", str(tmp_path / "x"))


def _link(daemon: FakeDaemon, directory: Path, heard: list[Answer], progress: dict[str, Any] | None = None) -> tuple[Link, Journal]:
    clock = SteppedClock()
    journal = Journal(str(directory / "state.json"), clock, "boot-1")
    report = {"state": "running", "acknowledged_drain": None, "progress": progress or {}}
    link = Link(_web(daemon), "session-secret", journal, clock, str(directory / "contact"), 1.0, lambda: report, heard.append)
    return link, journal


def test_messages_are_said_until_they_are_acknowledged(daemon: FakeDaemon, tmp_path: Path) -> None:
    """An answer that was lost is followed by the same message with the same number; after the acknowledgement there is silence."""
    link, journal = _link(daemon, tmp_path, [])
    journal.say("started", {})
    daemon.lose = 1
    assert not link.sync()
    assert link.sync()
    assert link.sync()

    assert [len(sync["messages"]) for sync in daemon.syncs] == [1, 1, 0]
    assert len(daemon.messages) == 1


def test_the_output_goes_before_the_news_of_the_end(daemon: FakeDaemon, tmp_path: Path) -> None:
    """Whoever hears that a job ended may end its instance at once: by then its last line is there, also when both had to wait for a daemon."""
    clock = SteppedClock()
    journal = Journal(str(tmp_path / "state.json"), clock, "boot-1")
    (tmp_path / "log").write_bytes(b"Traceback: why\n")
    logs = LogStream(_web(daemon), "session-secret", str(tmp_path / "log"), clock)
    heard: list[bytes] = []
    report: dict[str, Any] = {"state": "exited", "acknowledged_drain": None, "progress": {}}

    def hear(_: Answer) -> None:
        heard.append(bytes(daemon.logs))

    link = Link(_web(daemon), "session-secret", journal, clock, str(tmp_path / "contact"), 1.0, lambda: report, hear)
    link.last_words = lambda: logs.flush(1.0)
    journal.say("started", {})
    assert link.sync()
    journal.say("exited", {"code": 1})
    daemon.down = True
    assert not link.sync()
    daemon.down = False
    assert link.sync()
    assert heard == [b"", b"Traceback: why\n"]


def test_progress_is_always_json(daemon: FakeDaemon, tmp_path: Path) -> None:
    """A diverged loss is sent as unknown, not as something no parser takes."""
    link, _ = _link(daemon, tmp_path, [], {"step": 3, "loss": float("nan")})

    assert link.sync()
    assert daemon.syncs[-1]["progress"] == {"step": 3, "loss": None}


def test_the_lease_counts_from_the_asking(daemon: FakeDaemon, tmp_path: Path) -> None:
    """Contact is as old as the request that was answered, is kept for a restarted agent, and is not renewed by failures."""
    link, _ = _link(daemon, tmp_path, [])
    link.sync()
    contact = link.contact_at
    daemon.down = True
    link.sync()

    assert link.contact_at == contact
    assert _link(daemon, tmp_path, [])[0].contact_at == contact


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        ({}, Answer()),
        ({"gate": "ajar", "drain": [], "power_off": 1}, Answer()),
        ({"gate": "open", "stop": "ended", "power_off": True}, Answer(gate_open=True, stop="ended", power_off=True)),
        ({"drain": {"id": "d", "kind": "move", "seconds": 9}}, Answer(drain=DrainOrder("d", "move", 9.0))),
        ({"drain": {"id": "d", "kind": "move"}}, Answer()),
        ({"resume": [{"checkpoint": 1}]}, Answer()),
    ],
)
def test_what_is_not_understood_is_not_obeyed(raw: dict[str, Any], answer: Answer) -> None:
    """An answer with unknown or broken parts is read as far as it makes sense."""
    assert Answer.parse(raw) == answer


def test_logs_follow_the_daemons_offset(daemon: FakeDaemon, tmp_path: Path) -> None:
    """After a restart the first guess is corrected by 409, after a lost answer too; nothing is missing or there twice."""
    path = tmp_path / "log"
    path.write_bytes(b"first\n")
    stream = LogStream(_web(daemon), "session-secret", str(path), SteppedClock())
    stream.flush(5)
    path.write_bytes(b"first\nsecond\n")
    daemon.lose = 1
    stream.flush(5)
    stream.flush(5)
    path.write_bytes(b"first\nsecond\n" + b"x" * 600_000)
    LogStream(_web(daemon), "session-secret", str(path), SteppedClock()).flush(5)

    assert bytes(daemon.logs) == path.read_bytes()
