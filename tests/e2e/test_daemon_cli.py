"""The verbs of daily work against a real daemon: what they print, how they end, and that whatever is wrong is said in a sentence."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.world import POLICY, SPOT, TRAIN, World, uninterrupted, world

STEPS = 20
#: Runs until it is asked to stop, and stops at once then.
UNTIL_NOTICE = "until [ -e $SPOTD_NOTICE_FILE ]; do sleep 0.1; done"


@pytest.fixture(scope="module", name="house")
def _house() -> Iterator[World]:
    with world() as made:
        yield made
        made.at_peace()


@pytest.fixture(scope="module", name="job")
def _job(house: World) -> str:
    """The id of a training job that was handed in as users do, with its working directory, and is finished."""
    folder = house.directory / "project"
    folder.mkdir()
    shutil.copy(TRAIN, folder)
    (folder / "job.yaml").write_text(
        f"""\
name: spirals
policy: spot
workdir: .
run: exec python train.py --steps {STEPS} --checkpoint-every 10 --print-every 5
env: {{EXAMPLE_WITNESS: {house.witness_of("spirals")}}}
checkpoint: {{dir: ckpt}}
labels: {{project: legal}}
"""
    )
    said = house.cli("submit", folder / "job.yaml", "--json").json
    followed = house.cli("logs", "-f", said["job"]["id"])
    assert f"weights sha256 {uninterrupted(STEPS)}" in followed.out
    assert "succeeded" in followed.err
    return str(said["job"]["id"])


def test_what_is_asked_about_a_job(house: World, job: str) -> None:
    """jobs, show, logs, explain, events: by id, by its beginning and by name; for people and as JSON."""
    assert "No unfinished jobs" in house.cli("jobs").out
    row = house.cli("jobs", "--all", "--label", "project=legal", "--json").json["jobs"][0]
    assert (row["id"], row["status"], row["step"]) == (job, "succeeded", STEPS)
    assert re.search(r"spirals +root +spot +succeeded +20 +20", house.cli("jobs", "--all").out)
    shown = house.cli("show", "spirals", "--json").json
    assert [c["step"] for c in shown["checkpoints"]][-1] == STEPS
    assert "us-west-2a" in house.cli("show", job[:8]).out
    assert "step 20/20" in house.cli("logs", "spirals").out
    assert "step 5/20" in house.cli("logs", "spirals", "--attempt", 1, "--json").json["text"]
    assert house.cli("explain", job).out.startswith(f"job {job[:8]} (spirals): succeeded")
    assert house.cli("explain", job, "--json").json["job"]["id"] == job
    kinds = [event["kind"] for event in house.cli("events", "--job", job, "--json").json["events"]]
    assert kinds[0] == "job_submitted"
    assert {"launch_succeeded", "gate_opened", "workload_exited", "job_finished"} <= set(kinds)
    assert "job finished" in house.cli("events").out.replace("_", " ")


def test_what_is_asked_about_the_market_and_money(house: World, job: str) -> None:
    """offers, prices, savings, policy list, status; and every answer about money says how fast this market runs."""
    offers = house.cli("offers", "--json").json
    assert {o["zone"]: o["price_usd_per_hour"] for o in offers["offers"] if o["market"] == "spot"} == {z: f"{float(p):.6f}" for z, p in SPOT.items()}
    assert offers["speeds"] == {"local": 600}
    assert "us-east-1b" in house.cli("offers").out
    assert len(house.cli("prices", "--json").json["prices"]) >= len(SPOT)
    assert "us-east-1b" in house.cli("prices").out
    savings = house.cli("savings", "--by", "job", "--json").json
    assert float(savings["total"]["spend_usd"]) > 0
    assert "600" in house.cli("savings").out
    listed = house.cli("policy", "list", "--json").json["policies"]
    assert ("spot", "ok") in {(p["name"], p["state"]) for p in listed}, listed
    assert "spot" in house.cli("policy", "list").out
    assert str(house.daemon.pid) in house.cli("status").out
    assert job


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("show", "nobody"), "no job 'nobody'|nobody"),
        (("logs", "nobody"), "nobody"),
        (("logs", "-f", "nobody"), "nobody"),
        (("explain", "nobody"), "nobody"),
        (("cancel", "nobody"), "nobody"),
        (("events", "--job", "nobody"), "nobody"),
        (("logs", "spirals", "--attempt", "9"), "attempt 9"),
        (("jobs", "--status", "runing"), "runing"),
        (("savings", "--by", "weather"), "weather"),
        (("submit", "missing.yaml"), "missing.yaml"),
        (("run", "--policy", "nosuch", "--no-workdir", "--", "true"), "nosuch"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_not_there_is_said_in_a_sentence(house: World, job: str, words: tuple[str, ...], sentence: str) -> None:
    """Exit code 2, on standard error, nothing on standard output; with --json the same as one document."""
    assert job
    said = house.cli(*words, check=False)
    assert said.code == 2, said
    assert said.out == ""
    assert re.search(sentence, said.sentence()), said
    before = words[: words.index("--")] if "--" in words else words
    as_json = house.cli(*before, "--json", *words[len(before) :], check=False)
    assert as_json.code == 2
    assert re.search(sentence, json.dumps(as_json.json["error"])), as_json


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: a\npolicy: spot\nrun: [unclosed\n", r"job\.yaml:\d+: .*YAML"),
        ("name: a\npolicy: spot\nrun: x\ncheckpiont: {dir: c}\n", r"job\.yaml:4: checkpiont: .*checkpoint"),
        ("name: a\npolicy: spot\nrun: x\nestimated_runtime: 40 parsecs\n", r"job\.yaml:4: estimated_runtime: .*40 parsecs"),
        ("name: a\npolicy: sopt\nrun: x\n", r"job\.yaml:.*policy: .*sopt.*spot"),
        ("name: a\npolicy: spot\nrun: x\nworkdir: nowhere\n", r"nowhere"),
        ("", r"job\.yaml"),
    ],
    ids=["broken YAML", "unknown key", "wrong unit", "unknown policy", "no such directory", "empty"],
)
def test_a_wrong_job_file_names_file_line_key_and_what_is_right(house: World, tmp_path: Path, text: str, sentence: str) -> None:
    """And nothing was handed in."""
    (tmp_path / "job.yaml").write_text(text)
    before = len(house.client.get("/v1/jobs", {"all": True})["jobs"])
    said = house.cli("submit", "job.yaml", check=False, cwd=tmp_path)
    assert said.code == 2, said
    assert re.search(sentence, said.sentence()), said
    assert len(house.client.get("/v1/jobs", {"all": True})["jobs"]) == before


def test_without_a_daemon_every_verb_says_how_to_start_one(house: World) -> None:
    """One sentence and exit code 2, at once."""
    for words in (("jobs",), ("show", "x"), ("logs", "-f", "x"), ("cancel", "x"), ("offers",), ("savings",), ("events",), ("policy", "list")):
        said = house.cli(*words, "--socket", house.directory / "nothing", check=False)
        assert said.code == 2
        assert "is not running" in said.sentence()
        assert said.err.count("\n") == 1


def test_run_prints_the_output_and_ends_as_the_job_does(house: World) -> None:
    """Its exit code is the job's; Ctrl-C detaches, and the job runs on until it is cancelled."""
    said = house.cli("run", "--policy", "spot", "--no-workdir", "--", "echo to be or not; exit 7", check=False)
    assert (said.code, said.out) == (7, "to be or not\n")
    watching = house.spawn("run", "--policy", "spot", "--no-workdir", "--name", "long", "--", f"echo begun; {UNTIL_NOTICE}")
    assert watching.stdout is not None
    assert watching.stdout.readline() == "begun\n"
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=20)
    assert watching.returncode == 130
    assert "spotd cancel" in err
    assert house.cli("jobs", "--json").json["jobs"][0]["status"] == "running"
    assert house.cli("cancel", "long").code == 0
    answer = house.finished("long", "cancelled")
    assert [(a["state"], a["reason"]) for a in answer["attempts"]] == [("ended", "cancelled")]
    assert house.cli("cancel", "long").code == 0  # harmless


def test_a_job_is_cancelled_before_it_runs(house: World) -> None:
    """Its machine is ended while it boots, and its command never starts."""
    job = house.submit("early", f"echo 1 0 1 >> {house.witness_of('early')}")
    house.cli("cancel", job)
    house.finished(job, "cancelled")
    house.until(lambda: all(i["state"] == "gone" for i in house.show(job)["instances"]), "its machine is gone")
    assert house.witness("early") == []


def test_policies_are_taken_up_while_the_daemon_runs(house: World) -> None:
    """A new file is in force within seconds. A broken edit keeps the last good version, says so in three places, and a good one mends it."""
    house.policy("later", POLICY)
    house.until(lambda: _policy(house, "later"), "it is loaded")
    house.policy("later", POLICY.replace("max_preemptions", "max_premptions"))
    house.until(lambda: _policy(house, "later")["state"] == "broken", "it is known to be broken")
    entry = _policy(house, "later")
    assert entry["policy"]["spot_handlers"]["max_preemptions"] == 100
    assert (entry["problems"][0]["line"], "max_preemptions" in entry["problems"][0]["hint"]) == (4, True), entry
    out = house.cli("policy", "list").out
    assert "later.yaml:4" in out
    assert "last good version of later stays in force" in out
    told = [event for event in house.cli("events", "--json").json["events"] if event["kind"] == "policy_loaded"]
    assert "max_premptions" in json.dumps(told[-1])
    assert "max_premptions" in house.log.read_text()
    assert house.cli("run", "--policy", "later", "--no-workdir", "--", "echo it runs").out == "it runs\n"
    house.policy("later", POLICY.replace("100", "7"))
    house.until(lambda: _policy(house, "later")["policy"]["spot_handlers"]["max_preemptions"] == 7, "the mended one is in force")
    assert _policy(house, "later")["state"] == "ok"


def _policy(house: World, name: str) -> dict[str, Any]:
    return next((p for p in house.client.get("/v1/policies")["policies"] if p["name"] == name), {})


def test_a_policy_file_is_checked_without_a_daemon(house: World, tmp_path: Path) -> None:
    """Right: 0. Wrong: 2, with file, line, key and the nearest right one."""
    (tmp_path / "good.yaml").write_text(POLICY)
    (tmp_path / "bad.yaml").write_text(POLICY + "max_wait: 2 fortnights\n")
    nowhere = {"SPOTD_SOCKET": "/nonexistent"}
    assert house.cli("policy", "check", tmp_path / "good.yaml", env=nowhere).out.endswith("good.yaml: OK\n")
    said = house.cli("policy", "check", tmp_path / "bad.yaml", check=False, env=nowhere)
    assert said.code == 2
    assert re.search(r"bad\.yaml:5: max_wait: .*2 fortnights", said.err)


#: One request as whoever runs it: standard library only, for an interpreter that other users may run.
ASK = """
import http.client, json, socket, sys
path, method, address, body = sys.argv[1:]
connection = http.client.HTTPConnection("spotd")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(path)
connection.request(method, address, body, {"Content-Type": "application/json"})
answer = connection.getresponse()
print(json.dumps([answer.status, json.loads(answer.read())]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_two_users_have_their_own_jobs(house: World) -> None:
    """The kernel says who calls: a job belongs to who handed it in, its files are its own, and nobody stops another's."""
    nobody = pwd.getpwnam("nobody")
    house.directory.chmod(0o755)
    os.chown(house.socket, -1, nobody.pw_gid)

    def ask(method: str, address: str, body: dict[str, Any]) -> Any:
        for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
            command = [python, "-I", "-c", ASK, str(house.socket), method, address, json.dumps(body)]
            try:
                done = subprocess.run(
                    command, user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[], cwd="/", capture_output=True, text=True, check=True
                )
            except (PermissionError, FileNotFoundError):
                continue
            return json.loads(done.stdout)
        pytest.skip("no interpreter here that other users may run")

    mine = house.submit("mine", f"echo mine > file; {UNTIL_NOTICE}")
    body = {"spec": {"name": "theirs", "policy": "spot", "run": "ls; echo theirs alone"}, "file": "x"}
    status, answer = ask("POST", "/v1/jobs", body)
    assert (status, answer["job"]["owner"]) == (201, "nobody")
    theirs = answer["job"]["id"]
    house.finished(theirs)
    assert house.cli("logs", theirs).out == "checkpoints\ntheirs alone\n"
    status, answer = ask("POST", f"/v1/jobs/{mine}/cancel", {})
    assert (status, "belongs to root" in answer["error"]["message"]) == (403, True)
    status, answer = ask("POST", "/v1/jobs", {**body, "spec": {**body["spec"], "owner": "root"}})  # type: ignore[dict-item]
    assert status == 403
    assert house.show(mine)["job"]["cancel_requested_at"] is None
    assert [j["name"] for j in house.cli("jobs", "--owner", "root", "--json").json["jobs"]] == ["mine"]
    house.cli("cancel", mine)
    house.finished(mine, "cancelled")


def test_a_second_daemon_is_refused_with_the_pid_of_the_first(house: World) -> None:
    """One sentence, exit code 2, and the first one does not notice."""
    before = house.daemon
    said = house.cli("daemon", "--config", house.config, check=False)
    assert said.code == 2
    assert f"process {before.pid}" in said.sentence()
    assert house.client.get("/v1/status")["pid"] == before.pid


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (('socket = "', 'sockte = "'), r"spotd\.toml:2: sockte: .*socket"),
        (('tick_interval = "1s"', 'tick_interval = "1"'), r"spotd\.toml:4: tick_interval: .*unit|tick_interval"),
        (("[providers.local]", "[providers.lokal]"), r"lokal"),
        (("speed = 600", "speed = true"), r"speed"),
        (('market = "', 'market = "/nowhere'), r"market"),
        (('socket = "', 'socket = "/proc/nowhere'), r"socket = /proc/nowhere"),
        (('state_dir = "', 'state_dir = "/proc/nowhere'), r"/proc/nowhere"),
        (None, r"spotd\.toml"),
    ],
    ids=["key", "unit", "provider", "value", "market", "socket", "state", "no file"],
)
def test_a_daemon_that_cannot_start_says_why(change: tuple[str, str] | None, sentence: str) -> None:
    """One sentence that names what to change, exit code 2, and nothing is left running."""
    with world(start=False) as house:
        if change is None:
            house.config.unlink()
        else:
            text = house.config.read_text()
            assert change[0] in text
            house.config.write_text(text.replace(*change))
        said = house.cli("daemon", "--config", house.config, check=False)
        assert said.code == 2, said
        lines = [line for line in said.err.splitlines() if re.search(r"^spotd: ", line)]
        assert "Traceback" not in said.err, said.err
        assert len(lines) == 1, said.err
        assert re.search(sentence, said.err), said.err


def test_a_stopped_daemon_leaves_its_jobs_running(house: World) -> None:
    """SIGTERM: exit code 0, the socket is gone, the job runs on; the next daemon has it."""
    job = house.submit("runs-on", "sleep 5; echo through")
    house.attempt(job, 1, "running")
    assert house.stop() == 0
    assert not house.socket.exists()
    assert house.orphans()
    house.start()
    assert house.finished(job)["attempts"][0]["number"] == 1
    assert house.cli("logs", job).out == "through\n"
