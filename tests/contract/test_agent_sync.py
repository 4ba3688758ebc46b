"""What agents say at each heartbeat, what becomes of it, and what they are told: docs/agent-protocol.md, Sync."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spotd.core import events as e
from spotd.core.attempt import Checkpoint, EndReason
from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd.daemon.agent_api import AgentServices
from spotd.ports import ObjectInfo
from tests.contract import agent_world as w
from tests.contract.agent_world import ATTEMPT, INSTANCE, JOB, START, Daemon, a_sync, said


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon with one job on one instance that has not called yet."""
    with Daemon(tmp_path) as daemon:
        yield daemon


def an_exited(code: int, *, done: bool, detail: str = "") -> e.Event:
    """The event of `EXITED`."""
    return e.WorkloadExited(START, INSTANCE, code, done, step=30, detail=detail)


def a_drained(at: datetime) -> e.Event:
    """The event of `DRAINED`."""
    return e.WorkloadDrained(
        at,
        INSTANCE,
        saved=True,
        step=20,
        checkpoint=None,
        seconds_used=41.0,
        seconds_given=120.0,
        hook_exit=0,
        detail="the job ended by itself",
    )


# Messages -------------------------------------------------------------------------------------------------------------------


def test_messages_become_events_in_order(daemon: Daemon) -> None:
    """Each message is one event at the daemon's time less its age, all in one commit with the number they reach to."""
    daemon.session()
    daemon.commit_manifest("00001-000001")
    daemon.recorder.commits = 0
    answer = daemon.sync(
        said({**w.READY, "skipped_checkpoints": ["a: wrong"]}, 1, 50.0),
        said({**w.STARTED, "restored_checkpoint": "00001-000001", "restored_step": 3}, 2, 40.0),
        said(w.CHECKPOINT, 3, 30.0),
        said(w.NOTICE, 4, 20.0),
        said(w.DRAINED, 5, 10.0),
        state="drained",
        progress={"step": 20, "loss": 0.5, "checkpoint_step": 10, "gpu_util": 91.0},
    )
    assert answer.json["acknowledged"] == 5

    def ago(seconds: float) -> Any:
        return START - timedelta(seconds=seconds)

    checkpoint = Checkpoint("00001-000001", JOB, 1, 1, 10, 1, 5, w.CHECKPOINT["manifest_sha256"], ago(30), 1.0, 2.0, "announced")
    notice = Notice(NoticeKind.RECLAIM, NoticeSource.IMDS, ago(20), ago(20) + timedelta(seconds=100))
    assert daemon.recorder.events[1:] == [
        e.AgentReady(ago(50), INSTANCE, None, None, 9.0, 1.0, 2.0, "a: wrong"),
        e.WorkloadStarted(ago(40), INSTANCE, "00001-000001", 3),
        e.CheckpointCommitted(ago(30), INSTANCE, checkpoint),
        e.NoticeSeen(ago(20), INSTANCE, notice),
        a_drained(ago(10)),
        e.ProgressReported(START, INSTANCE, 20, 0.5, 91.0),
        e.AgentSpoke(START, INSTANCE, 5),
    ]
    assert daemon.recorder.commits == 1


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (w.EXITED, an_exited(0, done=True)),
        ({**w.EXITED, "code": None, "signal": 9, "done": False}, an_exited(137, done=False)),
        ({**w.EXITED, "code": None}, an_exited(255, done=True, detail="nobody saw how it ended")),
        (w.FAILED, e.StartFailed(START, INSTANCE, "setup", 1, "setup exited with 1")),
        ({**w.FAILED, "code": None, "detail": "\x1b[31mred\ud800"}, e.StartFailed(START, INSTANCE, "setup", None, "�[31mred�")),
        (
            {**w.NOTICE, "kind": "rebalance", "seconds_left": None},
            e.NoticeSeen(START, INSTANCE, Notice(NoticeKind.REBALANCE, NoticeSource.IMDS, START, None)),
        ),
        (
            {**w.NOTICE, "kind": "shutdown", "source": "agent", "seconds_left": 0},
            e.NoticeSeen(START, INSTANCE, Notice(NoticeKind.SHUTDOWN, NoticeSource.AGENT, START, START)),
        ),
        ({"type": "notice_cancelled", "notice_id": "n", "kind": "maintenance"}, e.NoticeCancelled(START, INSTANCE, NoticeKind.MAINTENANCE)),
    ],
)
def test_one_message_is_one_event(daemon: Daemon, message: dict[str, Any], event: e.Event) -> None:
    """Every kind of message means what the page says, a signal being an exit code as a shell gives it."""
    assert daemon.sync(said(message, 1)).json["acknowledged"] == 1
    assert daemon.recorder.events[1:] == [event, e.AgentSpoke(START, INSTANCE, 1)]


def test_withdrawal_without_a_kind_means_the_notice_in_force(daemon: Daemon) -> None:
    """An agent that does not name the kind withdraws what it announced, in this request or an earlier one; else nothing."""
    withdrawn = {"type": "notice_cancelled", "notice_id": "n"}
    assert daemon.sync(said(withdrawn, 1)).json["acknowledged"] == 1
    assert daemon.sync(said(w.NOTICE, 2), said(withdrawn, 3)).json["acknowledged"] == 3
    assert daemon.sync(said(w.NOTICE, 4)).json["acknowledged"] == 4
    assert daemon.sync(said(withdrawn, 5)).json["acknowledged"] == 5
    kinds = [type(event) for event in daemon.recorder.journal[1:]]
    assert kinds == [e.NoticeSeen, e.NoticeCancelled, e.NoticeSeen, e.NoticeCancelled]
    assert daemon.recorder.instance.notice is None


@pytest.mark.parametrize("age_s", [299.0, 301.0, 3e9])
def test_no_event_is_older_than_its_instance(daemon: Daemon, age_s: float) -> None:
    """However old an agent thinks a message is, it happened after the instance was asked for."""
    daemon.sync(said(w.STARTED, 1, age_s))
    assert daemon.recorder.events[1].at == max(START - timedelta(seconds=min(age_s, 1e6)), START - timedelta(minutes=5))


def test_what_is_said_again_is_recorded_once(daemon: Daemon) -> None:
    """An agent whose answer was lost says everything again, with what is new; only that is recorded."""
    first = said(w.READY, 1), said(w.NOTICE, 2)
    for _ in range(3):
        assert daemon.sync(*first).json["acknowledged"] == 2
    assert daemon.sync(*first, said(w.DRAINED, 3), state="drained").json["acknowledged"] == 3
    assert daemon.sync().json["acknowledged"] == 3
    kinds = [type(event) for event in daemon.recorder.journal]
    assert kinds == [e.AgentBootstrapped, e.AgentReady, e.NoticeSeen, e.WorkloadDrained]


def test_sayings_that_overlap_are_recorded_once(daemon: Daemon) -> None:
    """An agent that gave up waiting and asks again while the first request is still being recorded is not heard twice."""
    session = daemon.session()
    entered, calls = threading.Event(), 0

    def slow() -> None:
        nonlocal calls
        calls += 1
        entered.wait(0.2)  # longer than it takes the others to come

    daemon.recorder.meanwhile = slow
    body = a_sync(said(w.READY, 1), said(w.NOTICE, 2))
    answers = daemon.together(*[("POST", "/v1/agent/sync", {"json": body, "headers": session})] * 4)
    assert [answer.json["acknowledged"] for answer in answers] == [2, 2, 2, 2]
    assert calls == 1
    assert len(daemon.recorder.journal) == 3


def test_late_messages_of_an_overtaken_request_change_nothing(daemon: Daemon) -> None:
    """A request that the network held back arrives after its successor: all it says is old."""
    daemon.sync(said(w.READY, 1), said(w.FAILED, 2))
    before = daemon.recorder.world
    assert daemon.sync(said(w.READY, 1)).json["acknowledged"] == 2
    assert daemon.recorder.world is before


@pytest.mark.parametrize("numbers", [(2, 1), (1, 1), (1, 3, 2)])
def test_numbers_that_do_not_rise_are_refused(daemon: Daemon, numbers: tuple[int, ...]) -> None:
    """Messages out of order are no message at all: 422, nothing recorded."""
    daemon.session()
    before = daemon.recorder.world
    assert daemon.sync(*(said(w.STARTED, n) for n in numbers)).status == 422
    assert daemon.recorder.world is before


def test_nothing_is_acknowledged_before_it_is_recorded(daemon: Daemon) -> None:
    """While the database refuses, agents hear 503 and nothing changes; later the same words are heard."""
    daemon.session()
    before = daemon.recorder.world
    daemon.recorder.broken = OSError("disk full")
    answer = daemon.sync(said(w.READY, 1))
    assert (answer.status, answer.json["error"]["code"]) == (503, "unavailable")
    assert daemon.recorder.world is before
    daemon.recorder.broken = None
    assert daemon.sync(said(w.READY, 1)).json["acknowledged"] == 1


def test_progress_is_written_only_when_it_moves(daemon: Daemon) -> None:
    """A heartbeat without news writes nothing to the disk."""
    progress = {"step": 5, "loss": 1.0, "checkpoint_step": None}
    daemon.sync(progress=progress)
    before = daemon.recorder.commits
    daemon.sync(progress=progress)
    daemon.sync(progress={"step": None, "loss": None, "checkpoint_step": None})
    assert daemon.recorder.commits == before
    daemon.sync(progress={**progress, "step": 6})
    assert daemon.recorder.world.attempts[ATTEMPT].step == 6


# Checkpoints ----------------------------------------------------------------------------------------------------------------


def test_checkpoint_without_manifest_is_not_acknowledged(daemon: Daemon) -> None:
    """A checkpoint exists when its manifest does. Until then it and what follows is said again; what came before is recorded."""
    messages = said(w.NOTICE, 1), said(w.CHECKPOINT, 2), said(w.DRAINED, 3)
    answer = daemon.sync(*messages, state="drained")
    assert (answer.status, answer.json["acknowledged"]) == (200, 1)
    assert daemon.recorder.world.checkpoints == {}
    daemon.commit_manifest("00001-000001")
    assert daemon.sync(*messages, state="drained").json["acknowledged"] == 3
    assert [c.id for c in daemon.recorder.world.checkpoints[JOB]] == ["00001-000001"]
    assert [type(event) for event in daemon.recorder.journal[1:]] == [e.NoticeSeen, e.CheckpointCommitted, e.WorkloadDrained]


def test_another_manifest_is_not_this_checkpoint(daemon: Daemon) -> None:
    """A manifest with another sha256 than announced does not make the checkpoint exist."""
    daemon.commit_manifest("00001-000001", b'{"other": 1}')
    assert daemon.sync(said(w.CHECKPOINT, 1)).json["acknowledged"] == 0


def test_removed_checkpoint_does_not_silence_its_agent(daemon: Daemon) -> None:
    """A manifest that is not there a minute after it was announced was removed: the checkpoint is not recorded, the rest is heard."""
    assert daemon.sync(said(w.CHECKPOINT, 1, 61.0), said(w.EXITED, 2), state="exited").json["acknowledged"] == 2
    assert daemon.recorder.world.checkpoints == {}
    assert daemon.recorder.world.attempts[ATTEMPT].reason is EndReason.EXITED


def test_store_that_does_not_answer_proves_nothing(tmp_path: Path) -> None:
    """While the store fails, a checkpoint is neither recorded nor given up, however old; directives still come."""

    class Failing:
        def __init__(self, services: AgentServices) -> None:
            self.sign = services.store.sign
            self.list = services.store.list

        def head(self, key: str) -> ObjectInfo:
            raise TimeoutError(key)

    with Daemon(tmp_path, tune=lambda s: replace(s, store=Failing(s))) as daemon:  # type: ignore[arg-type] # all it is asked
        answer = daemon.sync(said(w.READY, 1), said(w.CHECKPOINT, 2, 3600.0))
        assert (answer.status, answer.json["acknowledged"], answer.json["gate"]) == (200, 1, "closed")


@pytest.mark.parametrize("changes", [{"checkpoint": "00002-000001"}, {"sequence": 2}, {"checkpoint": "../../x"}])
def test_agent_speaks_for_its_own_checkpoints_only(daemon: Daemon, changes: dict[str, Any]) -> None:
    """A checkpoint of another attempt, or of no possible name, is refused."""
    daemon.session()
    before = daemon.recorder.world
    assert daemon.sync(said({**w.CHECKPOINT, **changes}, 1)).status == 422
    assert daemon.recorder.world is before


def test_addresses_for_the_next_two_checkpoints(daemon: Daemon) -> None:
    """Each heartbeat gives signed addresses to write the next two checkpoints, their manifests create-only."""
    uploads = daemon.sync(next_sequence=8, objects_per_checkpoint=3).json["uploads"]
    assert [(u["checkpoint"], u["sequence"], len(u["objects"])) for u in uploads] == [("00001-000008", 8, 3), ("00001-000009", 9, 3)]
    assert daemon.request("PUT", uploads[0]["objects"][2], data=b"weights").status == 200
    assert daemon.store.get(f"jobs/{JOB}/checkpoints/00001-000008/0002") == b"weights"
    create = {"If-None-Match": "*"}
    assert daemon.request("PUT", uploads[0]["manifest"], data=b"{}", headers=create).status == 200
    assert daemon.request("PUT", uploads[0]["manifest"], data=b"[]", headers=create).status == 412
    assert daemon.store.get(f"jobs/{JOB}/checkpoints/00001-000008/manifest.json") == b"{}"


def test_addresses_are_renewed_before_they_end(daemon: Daemon) -> None:
    """Addresses are signed again every five minutes, so that those an agent holds are good for a day to come."""
    first = daemon.sync().json["uploads"]
    daemon.clock.step(299)
    assert daemon.sync().json["uploads"] == first
    daemon.clock.step(2)
    assert daemon.sync().json["uploads"] != first
    daemon.clock.step(24 * 3600 - 302)
    assert daemon.request("PUT", first[0]["objects"][0], data=b"x").status == 200
    daemon.clock.step(2)
    assert daemon.request("PUT", first[0]["objects"][0], data=b"x").status == 401


def test_ended_attempts_get_no_addresses(daemon: Daemon) -> None:
    """Who must stop, or has ended, is given nowhere to write."""
    assert daemon.sync(state="exited").json["uploads"] == []
    daemon.recorder.record([e.AttemptEnded(START, ATTEMPT, EndReason.LOST, "")])
    assert daemon.sync(state="running").json["uploads"] == []


def test_sign_gives_addresses_of_committed_checkpoints(daemon: Daemon) -> None:
    """Objects of the job's committed checkpoints can be read by signed addresses; those of no checkpoint cannot."""
    session = daemon.session()
    daemon.recorder.record([e.CheckpointCommitted(START, INSTANCE, w.a_checkpoint(1))])
    daemon.store.put(f"jobs/{JOB}/checkpoints/00001-000001/0001", b"weights")
    answer = daemon.request("POST", "/v1/agent/sign", json={"checkpoint": "00001-000001", "objects": [0, 1]}, headers=session)
    assert set(answer.json["objects"]) == {"0", "1"}
    assert daemon.request("GET", answer.json["objects"]["1"]).content == b"weights"
    assert daemon.request("GET", answer.json["objects"]["0"]).status == 404
    for body, status in [
        ({"checkpoint": "00001-000002", "objects": [0]}, 404),
        ({"checkpoint": "../../../x", "objects": [0]}, 422),
        ({"checkpoint": "00001-000001", "objects": [-1]}, 422),
        ({"checkpoint": "00001-000001", "objects": ["../manifest.json"]}, 422),
    ]:
        assert daemon.request("POST", "/v1/agent/sign", json=body, headers=session).status == status
