"""The command line against the control API, over the real socket."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spotd.cli import events, follow
from spotd.cli.client import Client
from spotd.cli.main import main
from spotd.cli.refusal import Away
from spotd.core import events as e
from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd.daemon import control_logs, control_market
from spotd.daemon.peer import Peer
from tests.contract.control_world import JOB, Desk

SPEED = "replayed 600 times faster than the clock"


@pytest.fixture(name="desk")
def _desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    for module in (follow, control_logs, control_market):
        monkeypatch.setattr(module, "_LOOK_S", 0.02)
    for module in (follow, events):
        monkeypatch.setattr(module, "_AGAIN_S", 0.02)
    monkeypatch.setattr(control_logs, "_GRACE_S", 0.1)
    with Desk() as desk:
        monkeypatch.setenv("SPOTD_SOCKET", str(desk.socket))
        yield desk


@pytest.fixture(name="project")
def _project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print(1)\n")
    file = tmp_path / "job.yaml"
    file.write_text(JOB + "workdir: .\n")
    return file


Capture = pytest.CaptureFixture[str]


def as_json(capsys: Capture, *words: str, code: int = 0) -> Any:
    """What a verb prints with --json: exactly one document."""
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def text(capsys: Capture, *words: str) -> str:
    """What a verb prints."""
    assert main(list(words)) == 0
    return capsys.readouterr().out


def test_submit_sends_the_workdir_once(desk: Desk, project: Path, capsys: Capture) -> None:
    """The first submit sends the archive, the second only names it; both make a job."""
    assert main(["submit", str(project)]) == 0
    first = capsys.readouterr()
    assert main(["submit", str(project)]) == 0
    second = capsys.readouterr()

    assert first.err.startswith("sending 2 files")
    assert second.err == ""
    assert first.out.startswith("submitted llama-ft as ")
    assert "spotd logs -f" in first.out
    assert len(desk.world.jobs) == 2
    assert len({job.spec.workdir_sha256 for job in desk.world.jobs.values()}) == 1


def test_submit_as_json_is_one_document(desk: Desk, project: Path, capsys: Capture) -> None:
    """Scripts read the id from it."""
    answer = as_json(capsys, "submit", str(project))

    assert answer["job"]["id"] in desk.world.jobs


def test_a_lost_answer_is_asked_for_again_and_makes_one_job(desk: Desk, project: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the daemon dies after it recorded the job, the repeated submit finds that job."""
    post = Client.post
    lost: list[str] = []

    def lossy(self: Client, path: str, body: Any, headers: Any = None) -> Any:
        answer = post(self, path, body, headers)
        if not lost:
            lost.append(answer["job"]["id"])
            raise Away("went away", 2, {"code": "went_away", "message": "went away"})
        return answer

    monkeypatch.setattr(Client, "post", lossy)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    answer = as_json(capsys, "submit", str(project))

    assert [answer["job"]["id"]] == lost == list(desk.world.jobs)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (JOB.replace("demo", "demos"), 'policy: there is no policy "demos" (known: demo)'),
        (JOB + "workdir: nowhere\n", "nowhere is not a directory"),
    ],
    ids=["policy", "workdir"],
)
def test_what_is_wrong_is_exit_code_2(desk: Desk, project: Path, capsys: Capture, content: str, says: str) -> None:
    """One sentence, and no job."""
    project.write_text(content)

    assert main(["submit", str(project)]) == 2
    assert says in capsys.readouterr().err
    assert not desk.world.jobs


def test_an_unknown_job_is_one_sentence_for_every_verb(desk: Desk, capsys: Capture) -> None:
    """Exit code 2 and the next step."""
    for words in (["show"], ["logs"], ["logs", "-f"], ["explain"], ["cancel"], ["events", "--job"]):
        assert main([*words, "no/such\x1bjob"]) == 2
        said = capsys.readouterr().err
        assert said.startswith('spotd: there is no job "no/such?job"')
        assert said.count("\n") == 1


def test_what_is_refused_is_exit_code_1(desk: Desk, capsys: Capture) -> None:
    """Somebody else's job is not cancelled; the sentence says whom to ask."""
    desk.peer = Peer(4242, 4242, "bob")
    desk.submit()
    desk.peer = Peer(4343, 4343, "eve")

    assert main(["cancel", "llama-ft"]) == 1
    assert "belongs to bob, and you are eve (ask bob" in capsys.readouterr().err
    assert as_json(capsys, "cancel", "llama-ft", code=1)["error"]["code"] == "forbidden"


def test_verbs_print_what_they_are_asked_for(desk: Desk, capsys: Capture) -> None:
    """Every verb tells a person what matters, and says that the market runs faster than the clock."""
    assert "No unfinished jobs" in text(capsys, "jobs")
    assert "No offers" in text(capsys, "offers")
    assert "Nothing was billed" in text(capsys, "savings")
    desk.see_offers()
    desk.submit(JOB + "labels: {project: legal}\n")
    instance = desk.run_job()
    desk.pass_time(6)
    now = desk.clock.now()
    desk.record([e.NoticeSeen(now, instance.id, Notice(NoticeKind.RECLAIM, NoticeSource.IMDS, now, now))])
    wanted = {
        ("jobs",): ("llama-ft", "draining", "demo", SPEED),
        ("jobs", "--label", "project=legal"): ("llama-ft",),
        ("show", "llama-ft"): ("python train.py", "00001-000001", "reclaim announced by imds", "$1.0000", "project=legal", SPEED),
        ("explain", "llama-ft"): ("RECLAIMS/H", "PRIOR/H", "0.250", "SOURCE", "1 of 3 preemptions: spot", "comes last", "CHOSEN BECAUSE", SPEED),
        ("offers",): ("us-1a", "on-demand", "$3.0000", "spot price history", "0.250", SPEED),
        ("prices", "--since", "1d"): ("eu-1a", "$1.0000", SPEED),
        ("savings",): ("llama-ft", "SAVING", "total", SPEED),
        ("events",): ("job_submitted", "notice_seen"),
        ("policy", "list"): ("demo", "ok", "local v100 in us-1/eu-1"),
        ("status",): ("1.2.3", "1 draining", "time-out", SPEED),
    }
    for words, parts in wanted.items():
        found = text(capsys, *words)
        for part in parts:
            assert part in found, (words, part, found)
        assert isinstance(as_json(capsys, *words), dict)


def test_a_broken_policy_is_shown_by_policy_list(desk: Desk, capsys: Capture) -> None:
    """State, file, line, key, and that the last good version is in force."""
    (desk.directory / "demo.yaml").write_text("candidats: []\n")
    desk.refresh()
    found = text(capsys, "policy", "list")

    assert "broken" in found
    assert "demo.yaml:1: candidats: is not a key that spotd knows (did you mean candidates?)" in found
    assert "The last good version of demo stays in force." in found


def in_background(desk: Desk, *steps: Callable[[], object]) -> threading.Thread:
    """What the world does while a verb waits: each step as soon as a job is placed."""

    def play() -> None:
        while not desk.world.instances:
            threading.Event().wait(0.01)
        for step in steps:
            step()

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    return thread


def test_run_prints_the_jobs_output_and_ends_as_it_ends(desk: Desk, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Output goes to standard output byte by byte, what spotd says beside it; the exit code is the job's."""
    desk.see_offers()

    def play() -> None:
        instance = desk.run_job()
        desk.write_log(instance.job_id, 1, b"hello \xff\n")
        desk.record([e.WorkloadExited(desk.clock.now(), instance.id, 7, done=False, step=200)])

    world = in_background(desk, play)
    code = main(["run", "--policy", "demo", "--no-workdir", "--env", "A=b c", "--", "sh", "-c", "echo $A; exit 7"])
    world.join(30)
    said = capfdbinary.readouterr()

    assert code == 7
    assert said.out == b"hello \xff\n"
    assert b"Ctrl-C detaches" in said.err
    assert b"failed" in said.err.splitlines()[-1]
    (job,) = desk.reader.jobs()
    assert (job.spec.run, dict(job.spec.env), job.spec.name) == ("sh -c 'echo $A; exit 7'", {"A": "b c"}, "sh")


def test_run_goes_on_across_a_reclaim(desk: Desk, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """The output of the next attempt follows that of the one that was taken away."""
    desk.see_offers()

    def play() -> None:
        now = desk.clock.now()
        first = desk.run_job()
        desk.write_log(first.job_id, 1, b"one\n")
        desk.record([e.NoticeSeen(now, first.id, Notice(NoticeKind.RECLAIM, NoticeSource.IMDS, now, now))])
        desk.record([e.WorkloadDrained(now, first.id, True, 120, "00001-000001", 3.0, 120.0, None, "saved")])  # noqa: FBT003
        second = desk.run_job()
        assert second.request.attempt == 2
        desk.write_log(first.job_id, 2, b"two\n")
        desk.record([e.WorkloadExited(now, second.id, 0, done=True, step=200)])

    world = in_background(desk, play)
    code = main(["run", "--policy", "demo", "--no-workdir", "--", "train"])
    world.join(30)
    said = capfdbinary.readouterr()

    assert (code, said.out) == (0, b"one\ntwo\n")
    assert b"attempt 1 ended: reclaimed, saved at step 100" in said.err
    assert b"succeeded" in said.err.splitlines()[-1]


def test_run_as_json_prints_one_document(desk: Desk, capsys: Capture) -> None:
    """The output goes to standard error then, so that standard output is the job's final state."""
    desk.see_offers()

    def play() -> None:
        instance = desk.run_job()
        desk.record([e.WorkloadExited(desk.clock.now(), instance.id, 0, done=True, step=200)])

    world = in_background(desk, play)
    assert main(["run", "--json", "--policy", "demo", "--no-workdir", "--name", "try-7", "--", "true"]) == 0
    world.join(30)
    final = json.loads(capsys.readouterr().out)

    assert (final["job"]["name"], final["job"]["outcome"]) == ("try-7", "succeeded")


def test_ctrl_c_detaches_and_says_how_to_cancel(desk: Desk, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job goes on; the last line has the commands to watch and to cancel it."""

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    code = main(["run", "--policy", "demo", "--no-workdir", "--", "true"])
    (job,) = desk.world.jobs.values()

    assert code == 130
    assert job.cancel_requested_at is None
    assert f"spotd cancel {job.id[:8]}" in capsys.readouterr().err.splitlines()[-1]


def test_logs_are_passed_on_as_they_are(desk: Desk, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Bytes in, bytes out; with --json the text of one attempt."""
    desk.see_offers()
    job_id = desk.submit()
    assert main(["logs", "llama-ft"]) == 0
    assert b"no output yet" in capfdbinary.readouterr().err
    desk.run_job()
    desk.write_log(job_id, 1, b"\x1b[1mbold\xff\n")

    assert main(["logs", "llama-ft"]) == 0
    assert capfdbinary.readouterr().out == b"\x1b[1mbold\xff\n"
    assert main(["logs", "llama-ft", "--json"]) == 0
    assert json.loads(capfdbinary.readouterr().out) == {"attempt": 1, "text": "\x1b[1mbold\ufffd\n"}
    assert main(["logs", "llama-ft", "--attempt", "9"]) == 2
    assert main(["logs", "-f", "llama-ft", "--attempt", "9"]) == 2


def test_following_survives_a_restart_of_the_daemon(desk: Desk, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """While the daemon is away nothing is lost and nothing printed twice; that it is away is said once."""
    desk.see_offers()
    job_id = desk.submit()
    instance = desk.run_job()
    desk.write_log(job_id, 1, b"one\n")
    codes: list[int] = []
    follower = threading.Thread(target=lambda: codes.append(main(["logs", "-f", "llama-ft"])))
    follower.start()
    while b"one" not in (found := capfdbinary.readouterr().out):
        assert found == b""
        threading.Event().wait(0.01)
    desk.restart_server(between=lambda: threading.Event().wait(0.2))
    desk.write_log(job_id, 1, b"two\n")
    desk.record([e.WorkloadExited(desk.clock.now(), instance.id, 0, done=True, step=200)])
    follower.join(30)
    said = capfdbinary.readouterr()

    assert codes == [0]
    assert said.out == b"two\n"
    assert said.err.count(b"going on as soon as it is back") == 1


def test_followed_events_are_lines(desk: Desk, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """`events -f --json` prints one JSON value a line until Ctrl-C."""
    seen: list[str] = []

    def stop_after_submit(value: Any) -> None:
        seen.append(value["kind"])
        if value["kind"] == "job_submitted":
            raise KeyboardInterrupt
        if value["kind"] == "policy_loaded":
            threading.Thread(target=desk.submit).start()

    monkeypatch.setattr(events, "print_json_line", stop_after_submit)

    assert main(["events", "-f", "--json"]) == 130
    assert seen == ["policy_loaded", "job_submitted"]


def test_cancel_says_what_it_did(desk: Desk, capsys: Capture) -> None:
    """Cancelled now, being cancelled already, or over already."""
    desk.see_offers()
    desk.submit()
    desk.run_job()

    assert "is being cancelled;" in text(capsys, "cancel", "llama-ft")
    assert "is being cancelled already" in text(capsys, "cancel", "llama-ft")
