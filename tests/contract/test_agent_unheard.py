"""Checkpoints that are in the store although nobody told the daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from spotd.core import events as e
from spotd.core.attempt import Checkpoint
from tests.contract import agent_world as w
from tests.contract.agent_world import JOB, Daemon


@pytest.fixture(name="daemon")
def _daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("daemon")) as daemon:
        yield daemon


def _manifest(checkpoint: str, **changes: object) -> bytes:
    body = {"format": 1, "job": JOB, "checkpoint": checkpoint, "step": 700, "name": None, "files": [{"path": "a", "size": 3}]}
    return json.dumps(body | changes).encode()


def test_an_attempt_resumes_from_a_checkpoint_that_was_never_told(daemon: Daemon) -> None:
    """Its agent was gone before it could say so; the manifest is there, so the next attempt gets it first, and the journal has it once."""
    daemon.commit_manifest("00001-000009", _manifest("00001-000009"))

    spec = daemon.bootstrap().json["spec"]
    daemon.bootstrap()

    assert spec["resume"][0]["checkpoint"] == "00001-000009"
    assert spec["resume_required"] is True
    found = [x.checkpoint for x in daemon.recorder.events if isinstance(x, e.CheckpointCommitted)]
    assert [(c.id, c.step, c.files, c.size_bytes, c.trigger) for c in found] == [("00001-000009", 700, 1, 3, "found")]
    assert isinstance(found[0], Checkpoint)


def test_what_a_waiting_attempt_is_told_at_the_gate_is_what_exists(daemon: Daemon) -> None:
    """The old attempt commits while the new one waits and dies untold: the answer that opens the gate names it."""
    daemon.bootstrap()
    daemon.sync(w.said(w.READY, 1), state="ready")
    daemon.open_gate()
    daemon.commit_manifest("00001-000010", _manifest("00001-000010"))

    answer = daemon.sync(state="ready").json

    assert answer["gate"] == "open"
    assert answer["resume"][0]["checkpoint"] == "00001-000010"


@pytest.mark.parametrize("content", [b"{}", b"no json", _manifest("00001-000011", job="another"), _manifest("00001-000012")])
def test_what_is_no_manifest_of_this_checkpoint_is_left_alone(daemon: Daemon, content: bytes) -> None:
    """Garbage in the place of a manifest is neither resumed from nor in the way."""
    daemon.commit_manifest("00001-000011", content)

    answer = daemon.bootstrap()

    assert answer.status == 200
    assert all(r["checkpoint"] != "00001-000011" for r in answer.json["spec"]["resume"])


def test_a_store_that_does_not_answer_delays_and_decides_nothing(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the store nobody knows what exists, so the agent asks again instead of beginning with what we remember."""

    def down(_prefix: str) -> list[str]:
        raise OSError("the store is away")

    monkeypatch.setattr(daemon.store, "list", down)

    assert daemon.bootstrap().status == 503
    assert daemon.recorder.events == []
