"""The agents' API keeps docs/agent-protocol.md: what is refused changes nothing, what is acknowledged is recorded, nothing is recorded twice."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spotd.core import events as e
from spotd.core.attempt import EndReason
from spotd.core.instance import InstanceState
from spotd.core.job import Outcome
from tests.contract import agent_world as w
from tests.contract.agent_world import ATTEMPT, INSTANCE, JOB, START, Daemon, a_sync, said


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon with one job on one instance that has not called yet."""
    with Daemon(tmp_path) as daemon:
        yield daemon


# Bootstrap ------------------------------------------------------------------------------------------------------------------


def test_bootstrap_gives_session_and_specification(daemon: Daemon) -> None:
    """The first call gives all an agent needs to run the job; only hashes of its secrets are recorded."""
    answer = daemon.bootstrap()
    assert answer.status == 200
    assert answer.json["spec"] == {
        "job": {"id": JOB, "name": "llama-ft"},
        "attempt": 1,
        "rank": 0,
        "num_nodes": 1,
        "master_addr": None,
        "setup": None,
        "run": "python train.py",
        "hook": "python save.py",
        "env": {},
        "workdir": None,
        "checkpoint_dir": "ckpt",
        "resume": [],
        "resume_required": False,
        "insecure_store": None,
        "watch": "imds",
        "poll_s": 2.0,
        "heartbeat_s": 10.0,
        "notice_s": 120.0,
        "drain_reserve_s": 5.0,
        "idle_timeout_s": 900.0,
        "max_lifetime_s": 7 * 86400.0 + 600.0,
        "stop_when_unreachable_s": 1440.0,
    }
    assert [type(event) for event in daemon.recorder.events] == [e.AgentBootstrapped]
    recorded = repr(daemon.recorder.events)
    assert answer.json["session"] not in recorded
    assert w.NONCE not in recorded
    assert daemon.credentials.bootstrap(INSTANCE) not in recorded
    assert daemon.recorder.calls == [INSTANCE]


def test_lost_bootstrap_answer_is_given_again(daemon: Daemon) -> None:
    """The same nonce gets the same answer, and nothing is recorded a second time."""
    first, second = daemon.bootstrap(), daemon.bootstrap()
    assert first.content == second.content
    assert daemon.recorder.commits == 1


def test_copied_bootstrap_credential_is_worth_nothing(daemon: Daemon) -> None:
    """After the first exchange another nonce gets 409; the session of the first stays good."""
    session = daemon.session()
    before = daemon.recorder.world
    assert daemon.bootstrap(nonce="f" * 32).status == 409
    assert daemon.recorder.world is before
    assert daemon.request("POST", "/v1/agent/sync", json=a_sync(), headers=session).status == 200


def test_of_two_callers_at_once_one_gets_the_session(daemon: Daemon) -> None:
    """Two agents that race with one credential: one session is made, the other hears 409."""
    body = {"instance": INSTANCE, "credential": daemon.credentials.bootstrap(INSTANCE), "boot_id": "b", "agent": "0" * 64}
    calls = [("POST", "/v1/agent/bootstrap", {"json": {**body, "nonce": digit * 32}}) for digit in "abcd"]
    assert sorted(answer.status for answer in daemon.together(*calls)) == [200, 409, 409, 409]
    assert daemon.recorder.commits == 1


@pytest.mark.parametrize(
    "changes",
    [{"credential": "0" * 64}, {"credential": ""}, {"credential": "ä"}, {"credential": "\ud800"}, {"instance": "another"}, {"instance": ""}],
)
def test_wrong_bootstrap_credential_is_refused(daemon: Daemon, changes: dict[str, str]) -> None:
    """A credential of another instance, or none at all, gets 401."""
    answer = daemon.bootstrap(**changes)
    assert (answer.status, answer.json["error"]["code"]) == (401, "unauthorized")
    assert daemon.recorder.commits == 0
    assert daemon.recorder.calls == []


def test_credential_of_an_unknown_instance_is_refused(daemon: Daemon) -> None:
    """A credential that this key made for an instance nobody knows (any more) gets 401."""
    assert daemon.bootstrap("forgotten").status == 401


def test_ended_instances_cannot_begin(daemon: Daemon) -> None:
    """An instance that is gone, or whose attempt or job is over, gets 401 also with the right credential."""
    world = daemon.recorder.world
    daemon.change_instance(state=InstanceState.GONE)
    assert daemon.bootstrap().status == 401
    daemon.recorder.world = world
    daemon.recorder.record([e.AttemptEnded(START, ATTEMPT, EndReason.BOOT_TIMEOUT, "")])
    assert daemon.bootstrap().status == 401
    daemon.recorder.world = world
    daemon.recorder.record([e.JobFinished(START, JOB, Outcome.CANCELLED, "")])
    assert daemon.bootstrap().status == 401


def test_bootstrap_waits_for_its_policy(daemon: Daemon) -> None:
    """While the job's policy is not loaded the answer is 503, and the nonce is not used up."""
    daemon.policies.clear()
    assert daemon.bootstrap().status == 503
    assert daemon.recorder.commits == 0
    daemon.policies["cheap"] = w.POLICY
    assert daemon.bootstrap(nonce="f" * 32).status == 200


def test_specification_names_the_newest_checkpoints(daemon: Daemon) -> None:
    """A later attempt is given the five newest checkpoints, newest first over attempts, and must not begin from zero."""
    events: list[e.Event] = [e.CheckpointCommitted(START, INSTANCE, w.a_checkpoint(n)) for n in (1, 2, 10, 3, 4)]
    daemon.recorder.record([*events, e.CheckpointCommitted(START, INSTANCE, w.a_checkpoint(1, attempt=2))])
    daemon.commit_manifest("00002-000001", b"manifest")
    spec = daemon.bootstrap().json["spec"]
    names = [entry["checkpoint"] for entry in spec["resume"]]
    assert names == ["00002-000001", "00001-000010", "00001-000004", "00001-000003", "00001-000002"]
    assert spec["resume_required"] is True
    assert daemon.request("GET", spec["resume"][0]["manifest_url"]).content == b"manifest"


def test_working_directory_is_served(tmp_path: Path) -> None:
    """The archive of the working directory can be fetched by the address in the specification, and by no other."""
    recorder = w.MemoryRecorder(w.a_world(w.a_job(workdir_sha256="a" * 64, setup="make", env={"A": "b"})))
    with Daemon(tmp_path, recorder) as daemon:
        daemon.workdirs.put("a" * 64, b"archive")
        spec = daemon.bootstrap().json["spec"]
        assert (spec["setup"], spec["env"], spec["workdir"]["sha256"]) == ("make", {"A": "b"}, "a" * 64)
        assert daemon.request("GET", spec["workdir"]["url"]).content == b"archive"
        assert daemon.request("GET", f"/o/workdirs/{'a' * 64}").status == 401


# Sessions -------------------------------------------------------------------------------------------------------------------

CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/v1/agent/sync", {"json": a_sync()}),
    ("POST", "/v1/agent/logs?offset=0", {"data": b"x"}),
    ("POST", "/v1/agent/sign", {"json": {"checkpoint": "00001-000001", "objects": [0]}}),
]


@pytest.mark.parametrize(("method", "path", "options"), CALLS)
@pytest.mark.parametrize("header", [None, "Bearer ", "Bearer wrong", "Basic abc", "Bearer ä", "BOOTSTRAP"])
def test_without_a_session_nothing_is_said(daemon: Daemon, method: str, path: str, options: dict[str, Any], header: str | None) -> None:
    """Every call needs the session; the bootstrap credential is none."""
    daemon.bootstrap()
    before = daemon.recorder.world
    header = f"Bearer {daemon.credentials.bootstrap(INSTANCE)}" if header == "BOOTSTRAP" else header
    headers = {} if header is None else {"Authorization": header}
    assert daemon.request(method, path, headers=headers, **options).status == 401
    assert daemon.recorder.world is before
    assert daemon.recorder.calls == [INSTANCE]
    assert not (daemon.directory / "logs").exists()


@pytest.mark.parametrize(("method", "path", "options"), CALLS)
def test_every_call_is_a_sign_of_life(daemon: Daemon, method: str, path: str, options: dict[str, Any]) -> None:
    """Whatever an agent calls for, the daemon has heard of it, also when it refuses the rest."""
    session = daemon.session()
    daemon.recorder.calls.clear()
    daemon.request(method, path, headers=session, **options)
    assert daemon.recorder.calls == [INSTANCE]


def test_session_outlives_the_daemon(tmp_path: Path) -> None:
    """A new daemon over the same records knows the session and the numbers already heard."""
    with Daemon(tmp_path) as first:
        session = first.session()
        assert first.sync(said(w.READY, 1)).json["acknowledged"] == 1
    with Daemon(tmp_path, first.recorder) as second:
        body = a_sync(said(w.READY, 1), said(w.FAILED, 2))
        answer = second.request("POST", "/v1/agent/sync", json=body, headers=session)
        assert answer.json["acknowledged"] == 2
    assert [type(event) for event in first.recorder.journal] == [e.AgentBootstrapped, e.AgentReady, e.StartFailed]


# Logs -----------------------------------------------------------------------------------------------------------------------


def test_logs_are_appended_by_offset(daemon: Daemon) -> None:
    """Output arrives whole and once: a piece at another offset than the file's end is answered with the length there is."""
    session = daemon.session()

    def send(offset: object, piece: bytes) -> w.Answer:
        return daemon.request("POST", f"/v1/agent/logs?offset={offset}", data=piece, headers=session)

    assert send(0, b"step 1\n").status == 204
    assert send(7, b"step 2\n").status == 204
    again = send(7, b"step 2\n")
    assert (again.status, again.json["offset"]) == (409, 14)
    assert send(20, b"x").json["offset"] == 14
    path = daemon.directory / "logs" / JOB / "00001-000.log"
    assert path.read_bytes() == b"step 1\nstep 2\n"
    assert path.stat().st_mode & 0o777 == 0o600
    for offset in ("-1", "x", "", "1" * 16, "0&offset=0", "٣"):
        assert send(offset, b"x").status == 422
    assert path.read_bytes() == b"step 1\nstep 2\n"


def test_two_copies_of_a_piece_at_once_are_one(daemon: Daemon) -> None:
    """A piece sent twice at the same moment is appended once."""
    session = daemon.session()
    call = ("POST", "/v1/agent/logs?offset=0", {"data": b"piece", "headers": session})
    assert sorted(answer.status for answer in daemon.together(call, call, call)) == [204, 409, 409]


def test_log_that_cannot_be_written_is_sent_again(daemon: Daemon) -> None:
    """A disk that refuses is 503 to the agent, not the end of its log."""
    session = daemon.session()
    (daemon.directory / "logs").write_text("a file where the directory should be")
    assert daemon.request("POST", "/v1/agent/logs?offset=0", data=b"x", headers=session).status == 503


# Limits and refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/agent/bootstrap", "/v1/agent/sync", "/v1/agent/sign", "/v1/agent/logs?offset=0"])
@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_over_the_limit_are_refused(daemon: Daemon, path: str, *, chunked: bool) -> None:
    """413 for a body over 1 MiB (logs: 256 KiB), announced or not."""
    session = daemon.session()
    before = daemon.recorder.world
    body = b"x" * ((256 << 10 if "logs" in path else 1 << 20) + 1)

    async def pieces() -> Any:
        yield body

    answer = daemon.request("POST", path, data=pieces() if chunked else io.BytesIO(body), headers=session)
    assert (answer.status, answer.json["error"]["code"]) == (413, "too_large")
    assert daemon.recorder.world is before


MALFORMED: list[Any] = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"state": NaN}',
    b"[" * 100_000,
    b"1" * 5000,
    {},
    a_sync(state="sleeping"),
    a_sync(messages=None),
    a_sync(messages={}),
    a_sync(progress=None),
    a_sync(progress={"step": 1.5}),
    a_sync(progress={"step": True}),
    a_sync(progress={"step": 2**63}),
    a_sync(progress={"loss": "low"}),
    a_sync(next_sequence=0),
    a_sync(next_sequence=1_000_000),
    a_sync(next_sequence="1"),
    a_sync(objects_per_checkpoint=0),
    a_sync(objects_per_checkpoint=12_501),
    a_sync({"type": "ready"}),
    a_sync(said({"type": "unknown"}, 1)),
    a_sync(said({}, 1)),
    a_sync(said({"type": None}, 1)),
    a_sync(said({"type": "\ud800"}, 1)),
    a_sync(said({"type": ["ready"]}, 1)),
    a_sync(said(w.STARTED, 0)),
    a_sync(said(w.STARTED, 2**63)),
    a_sync(said(w.STARTED, 1, -1.0)),
    a_sync(said(w.STARTED, 1, 1e300)),
    a_sync(said({**w.NOTICE, "kind": "alien"}, 1)),
    a_sync(said({**w.NOTICE, "seconds_left": -1}, 1)),
    a_sync(said({**w.DRAINED, "saved": 1}, 1)),
    a_sync(said({**w.DRAINED, "detail": "x" * 2001}, 1)),
    a_sync(said({**w.FAILED, "phase": "lunch"}, 1)),
    a_sync(said({**w.EXITED, "signal": 0}, 1)),
    a_sync(said({**w.CHECKPOINT, "manifest_sha256": "A" * 64}, 1)),
    a_sync(said(w.READY, 1), said({"type": "unknown"}, 2)),
]


@pytest.mark.parametrize("body", MALFORMED, ids=map(str, range(len(MALFORMED))))
def test_malformed_sync_changes_nothing(daemon: Daemon, body: Any) -> None:
    """Whatever is not what the page says is refused whole, with 422 and a place, and nothing of it is quoted."""
    session = daemon.session()
    before = daemon.recorder.world
    sent = {"data": body} if isinstance(body, bytes) else {"json": body}
    answer = daemon.request("POST", "/v1/agent/sync", headers=session, **sent)
    assert (answer.status, answer.json["error"]["code"]) == (422, "malformed")
    assert daemon.recorder.world is before


def test_malformed_bootstrap_does_not_quote_the_credential(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    """No credential that was sent shows up in an answer or in a log."""
    caplog.set_level("DEBUG")
    secret = daemon.credentials.bootstrap(INSTANCE)
    answer = daemon.bootstrap(nonce=secret)
    assert answer.status == 422
    daemon.recorder.broken = RuntimeError("boom")
    assert daemon.bootstrap().status == 503
    daemon.recorder.broken = None
    session = daemon.session()
    daemon.request("POST", "/v1/agent/sync", data=b"{", headers=session)
    url = daemon.sync().json["uploads"][0]["objects"][0]
    daemon.request("GET", url)
    said_aloud = answer.content.decode() + caplog.text
    assert secret not in said_aloud
    assert session["Authorization"].split()[1] not in said_aloud
    assert url.split("signature=")[1] not in said_aloud


def test_requests_cannot_write_lines_into_the_log(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    """A line break in an address stays one line in the daemon's log."""
    caplog.set_level("INFO", "spotd")
    assert daemon.request("GET", "/x%0aspotd: all is well").status == 404
    assert [record.getMessage().count("\n") for record in caplog.records if record.name.startswith("spotd")] == [0]


def test_agent_that_is_not_understood_is_for_ops_to_see(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    """What an agent says in vain it says for ever: the daemon warns, with the place that is wrong."""
    daemon.sync(said({"type": "unknown"}, 1))
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["agents' API: POST /v1/agent/sync: 422 messages.0: union_tag_invalid"]


def test_failure_of_ours_is_an_answer(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    """A bug in the daemon is a 500 of the usual shape to the agent, and in the log the lines where it was, without its text."""
    text = "what was in the body"

    def fail(instance_id: str) -> None:
        raise ValueError(text)

    daemon.recorder.heard = fail  # type: ignore[method-assign] # the bug
    answer = daemon.bootstrap()
    assert (answer.status, answer.json["error"]["code"]) == (500, "internal")
    assert "ValueError" in caplog.text
    assert text not in caplog.text + answer.content.decode()


def test_fields_of_a_newer_agent_are_ignored(daemon: Daemon) -> None:
    """A field the page does not name yet is no reason not to hear an agent."""
    progress = {"step": 1, "loss": None, "checkpoint_step": None, "metadata_unknown": 3}
    assert daemon.sync(said({**w.READY, "new": [1]}, 1), progress=progress, newer=True).json["acknowledged"] == 1


def test_compressed_bodies_are_refused(daemon: Daemon) -> None:
    """A small body must not grow in the daemon's memory."""
    headers = {**daemon.session(), "Content-Encoding": "gzip"}
    assert daemon.request("POST", "/v1/agent/sync", data=b"\x1f\x8b", headers=headers, skip_auto_headers=[]).status == 422


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/v1/agent/sync", 405), ("POST", "/agent.pyz", 405), ("DELETE", "/o/a", 405), ("GET", "/v1/jobs", 404)],
)
def test_unknown_addresses_are_errors_of_the_same_shape(daemon: Daemon, method: str, path: str, status: int) -> None:
    """Whatever is asked for, an error is JSON with a code and a sentence."""
    answer = daemon.request(method, path)
    assert answer.status == status
    assert set(answer.json["error"]) == {"code", "message"}


def test_the_agent_is_public(daemon: Daemon) -> None:
    """Everybody may fetch the agent: its sha256 is in the boot script, and it holds no secret."""
    assert daemon.request("GET", "/agent.pyz").content == b"the agent"
    assert daemon.request("HEAD", "/agent.pyz").headers["Content-Length"] == "9"
