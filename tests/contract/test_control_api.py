"""The control API, request by request."""

from __future__ import annotations

import getpass
import hashlib
import os
import pwd
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from spotd.core import events as e
from spotd.core.errors import ErrorKind, Scope
from spotd.core.job import Outcome
from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd.core.plan import ProviderFacts
from spotd.daemon import control_logs, control_market
from spotd.daemon.peer import Peer, user_name
from spotd.daemon.reach import blocked
from spotd.ports import Capabilities, MetadataKind
from tests.contract.control_world import JOB, POLICY, START, WORKDIR_LIMIT, Desk

ME = pwd.getpwuid(os.getuid()).pw_name
BOB = Peer(4242, 4242, "bob")
ARCHIVE = b"\x1f\x8b" + b"an archive, as far as the daemon looks" * 3
SUM = hashlib.sha256(ARCHIVE).hexdigest()
CLOUD = Capabilities(
    notice=timedelta(seconds=120),
    boot_timeout=timedelta(minutes=10),
    heartbeat=timedelta(seconds=15),
    metadata_poll=timedelta(seconds=2),
    metadata=MetadataKind.IMDS,
    listing_lag=timedelta(seconds=30),
    billing_rule="aws",
)


@pytest.fixture(name="desk")
def _desk() -> Iterator[Desk]:
    with Desk() as desk:
        yield desk


@pytest.fixture(name="untouched", scope="module")
def _untouched() -> Iterator[Desk]:
    """One for all requests that are refused: none of them can change it, so each finds it as the first did."""
    with Desk() as desk:
        yield desk


# Submit ---------------------------------------------------------------------------------------------------------------


def test_a_job_file_becomes_a_job_of_who_called(desk: Desk) -> None:
    """The kernel says whose job it is; what was recorded is what was written."""
    status, answer = desk.call("POST", "/v1/jobs", {"yaml": JOB, "file": "job.yaml"})

    assert status == 201
    job = desk.world.jobs[answer["job"]["id"]]
    assert (job.owner, job.spec.name, job.submitted_at, job.spot_since, job.waiting_since) == (ME, "llama-ft", START, START, START)
    assert answer["speeds"] == {"local": 600}
    assert answer["warnings"] == []


def test_the_keys_of_a_job_can_be_sent_as_json(desk: Desk) -> None:
    """`spotd run` has no file: its spec is checked by the same rules."""
    spec = {"name": "x", "policy": "demo", "run": "true", "env": {"A": "1"}}
    status, answer = desk.call("POST", "/v1/jobs", {"spec": spec})

    assert (status, desk.world.jobs[answer["job"]["id"]].spec.env["A"]) == (201, "1")


def test_a_repeated_submit_is_the_same_job(desk: Desk) -> None:
    """With the same Idempotency-Key the second answer names the first job, and nothing is recorded again."""
    headers = {"Idempotency-Key": "0123456789abcdef"}
    first = desk.call("POST", "/v1/jobs", {"yaml": JOB}, headers)
    facts = desk.facts()
    second = desk.call("POST", "/v1/jobs", {"yaml": JOB}, headers)

    assert (first[0], second[0]) == (201, 200)
    assert first[1]["job"]["id"] == second[1]["job"]["id"]
    assert facts == desk.facts()


def test_a_key_belongs_to_one_job_and_one_user(desk: Desk) -> None:
    """The same key for another job is a conflict; another user's same key is another job."""
    headers = {"Idempotency-Key": "0123456789abcdef"}
    desk.call("POST", "/v1/jobs", {"yaml": JOB}, headers)
    facts = desk.facts()

    assert desk.call("POST", "/v1/jobs", {"yaml": JOB + "setup: x\n"}, headers)[0] == 409
    assert facts == desk.facts()
    desk.peer = BOB
    assert desk.call("POST", "/v1/jobs", {"yaml": JOB}, headers)[0] == 201


def test_submits_with_one_key_at_the_same_time_make_one_job(desk: Desk) -> None:
    """A client that lost patience and asks twice at once gets one job."""
    headers = {"Idempotency-Key": "0123456789abcdef"}
    answers: list[tuple[int, Any]] = []
    threads = [threading.Thread(target=lambda: answers.append(desk.call("POST", "/v1/jobs", {"yaml": JOB}, headers))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(status for status, _ in answers) == [200] * 5 + [201]
    assert len(desk.world.jobs) == 1


def test_a_wrong_file_is_told_with_file_line_and_key(desk: Desk) -> None:
    """All problems are in the answer, the first one's parts in the error itself; nothing is recorded."""
    facts = desk.facts()
    status, answer = desk.call("POST", "/v1/jobs", {"yaml": JOB + "polcy: x\nestimated_runtime: 15 min\n", "file": "dir/job.yaml"})

    error = answer["error"]
    assert (status, error["code"]) == (422, "invalid")
    assert (error["file"], error["line"], error["key"], error["hint"]) == ("dir/job.yaml", 4, "polcy", "did you mean policy?")
    assert [problem["line"] for problem in error["problems"]] == [4, 5]
    assert facts == desk.facts()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "malformed"),
        (b"{", 400, "malformed"),
        (b"[]", 400, "malformed"),
        (b"\xff", 400, "malformed"),
        (b"[" * 100_000, 400, "malformed"),
        (b'{"yaml": ' + b"9" * 5000 + b"}", 400, "malformed"),
        (b"{}", 400, "malformed"),
        (b'{"yaml": 3}', 400, "malformed"),
        (b'{"yaml": "a", "spec": {}}', 400, "malformed"),
        (b'{"yaml": "a", "extra": 1}', 400, "malformed"),
        (b'{"yaml": "a", "workdir_sha256": "XYZ"}', 400, "malformed"),
        (b'{"yaml": "a", "file": 3}', 400, "malformed"),
        (b'{"spec": {}}', 422, "invalid"),
        (b'{"spec": {"name": "a", "policy": "demo", "run": "\\ud800"}}', 422, "invalid"),
        (b'{"spec": {"name": "a", "policy": "demo", "run": "x", "env": {"A": "\\u0000"}}}', 422, "invalid"),
        (b'{"spec": {"name": "a", "policy": "demo", "run": NaN}}', 422, "invalid"),
        (b'{"yaml": "' + b"#" * 300_000 + b'"}', 422, "invalid"),
        (b'{"yaml": "' + b"#" * 1_100_000 + b'"}', 413, "too_large"),
    ],
    ids=map(str, range(18)),
)
def test_bodies_that_are_none_change_nothing(untouched: Desk, body: bytes, status: int, code: str) -> None:
    """Whatever is sent, the answer is a sentence, and nothing was recorded."""
    facts = untouched.facts()
    found, answer = untouched.call("POST", "/v1/jobs", body)

    assert (status, code) == (found, answer["error"]["code"])
    assert answer["error"]["message"]
    assert facts == untouched.facts()


def test_an_unknown_policy_is_answered_with_the_known_ones(desk: Desk) -> None:
    """A misspelt policy is refused at once, not found out by a job that waits for ever."""
    status, answer = desk.call("POST", "/v1/jobs", {"yaml": JOB.replace("demo", "dem"), "file": "job.yaml"})

    assert (status, answer["error"]["key"], answer["error"]["hint"]) == (422, "policy", "known: demo")
    assert not desk.world.jobs


def test_a_policy_without_a_configured_provider_is_refused(desk: Desk) -> None:
    """A job that could never run anywhere is refused; one that can run somewhere is taken with a warning."""
    aws = "{provider: aws, instance_types: [p5.48xlarge], regions: [us-west-2]}"
    (desk.directory / "cloud.yaml").write_text(f"candidates: [{aws}]\n")
    (desk.directory / "both.yaml").write_text(POLICY.replace("[{", "[" + aws + ", {"))
    desk.refresh()

    status, answer = desk.call("POST", "/v1/jobs", {"yaml": JOB.replace("demo", "cloud")})
    assert status == 422
    assert "no such provider" in answer["error"]["message"]
    status, answer = desk.call("POST", "/v1/jobs", {"yaml": JOB.replace("demo", "both")})
    assert status == 201
    assert "no provider aws" in answer["warnings"][0]["message"]


def test_a_policy_whose_clouds_cannot_be_used_is_refused(desk: Desk) -> None:
    """A cloud that lacks a store for checkpoints (or an address to call) serves no job: the sentence names key, file and step."""
    lacking = ProviderFacts(timedelta(seconds=120), timedelta(minutes=10), "aws", blocked=blocked("aws", CLOUD, "spotd.example.com:7443", None))
    desk.engine._facts = {**desk.engine._facts, "aws": lacking}
    aws = "{provider: aws, instance_types: [p5.48xlarge], regions: [us-west-2]}"
    (desk.directory / "cloud.yaml").write_text(f"candidates: [{aws}]\n")
    (desk.directory / "both.yaml").write_text(POLICY.replace("[{", "[" + aws + ", {"))
    desk.refresh()

    status, answer = desk.call("POST", "/v1/jobs", {"yaml": JOB.replace("demo", "cloud")})
    assert status == 422
    assert "no place for checkpoints" in answer["error"]["message"]
    assert 'set [checkpoints] store = "s3://BUCKET/PREFIX" in spotd.toml' in answer["error"]["hint"]
    status, answer = desk.call("POST", "/v1/jobs", {"yaml": JOB.replace("demo", "both")})
    assert status == 201
    assert "candidates of aws are left out: instances of aws" in answer["warnings"][0]["message"]


def test_a_broken_policy_file_is_a_warning_as_long_as_a_good_version_is_in_force(desk: Desk) -> None:
    """Jobs go on being taken by the last good version; by a policy that never was good they are not."""
    (desk.directory / "demo.yaml").write_text("candidates: 3\n")
    (desk.directory / "bad.yaml").write_text("candidates: 3\n")
    desk.refresh()

    status, answer = desk.call("POST", "/v1/jobs", {"yaml": JOB})
    assert status == 201
    assert "last good version" in answer["warnings"][0]["message"]
    status, answer = desk.call("POST", "/v1/jobs", {"yaml": JOB.replace("demo", "bad")})
    assert status == 422
    assert "bad.yaml:1" in answer["error"]["message"]


def test_only_admins_submit_for_others(desk: Desk) -> None:
    """`owner` of a job file is the caller, unless the caller is root or an admin."""
    desk.peer = BOB
    facts = desk.facts()
    assert desk.call("POST", "/v1/jobs", {"yaml": JOB + "owner: alice\n"})[0] == 403
    assert facts == desk.facts()
    assert desk.call("POST", "/v1/jobs", {"yaml": JOB + "owner: bob\n"})[0] == 201
    desk.peer = Peer(0, 0, "root")
    status, answer = desk.call("POST", "/v1/jobs", {"yaml": JOB + "owner: alice\n"})
    assert (status, answer["job"]["owner"]) == (201, "alice")


# Workdirs -------------------------------------------------------------------------------------------------------------


def test_a_workdir_is_sent_once(desk: Desk) -> None:
    """An archive is kept under its sum, and a job may name it from then on."""
    text = JOB + "workdir: .\n"
    assert desk.call("GET", f"/v1/workdirs/{SUM}")[0] == 404
    assert desk.call("POST", "/v1/jobs", {"yaml": text})[0] == 422
    assert desk.call("POST", "/v1/jobs", {"yaml": text, "workdir_sha256": SUM})[1]["error"]["code"] == "workdir_missing"

    assert desk.call("PUT", f"/v1/workdirs/{SUM}", ARCHIVE)[0] == 201
    assert desk.call("PUT", f"/v1/workdirs/{SUM}", ARCHIVE)[0] == 200
    assert desk.call("GET", f"/v1/workdirs/{SUM}")[0] == 200
    job_id = desk.submit(text, workdir_sha256=SUM)
    assert desk.world.jobs[job_id].spec.workdir_sha256 == SUM


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        (SUM, ARCHIVE + b"x", 422),
        (SUM, b"PK not a tar.gz", 422),
        (SUM, b"", 422),
        (SUM, b"\x1f\x8b" + bytes(WORKDIR_LIMIT), 413),
        ("0" * 63, ARCHIVE, 400),
        ("..%2f" + "0" * 59, ARCHIVE, 400),
        (SUM.upper(), ARCHIVE, 400),
    ],
)
def test_what_is_not_the_announced_archive_leaves_nothing(untouched: Desk, name: str, body: bytes, status: int) -> None:
    """A wrong sum, another format, too much, no name: refused, with no file left behind."""
    facts = untouched.facts()

    assert status == untouched.call("PUT", f"/v1/workdirs/{name}", body)[0]
    assert facts == untouched.facts()


# List, show, explain, cancel --------------------------------------------------------------------------------------------


def test_jobs_are_listed_newest_first_with_filters(desk: Desk) -> None:
    """Unfinished jobs by default; owner, policy, label and status narrow it down."""
    first = desk.submit(JOB.replace("llama-ft", "one") + "labels: {project: legal}\n")
    desk.pass_time(1)
    desk.peer = BOB
    second = desk.submit(JOB.replace("llama-ft", "two"))

    def listed(query: str = "") -> list[str]:
        return [job["id"] for job in desk.get(f"/v1/jobs{query}")["jobs"]]

    assert [second, first] == listed()
    assert [second] == listed("?owner=bob")
    assert [first] == listed("?label=project%3Dlegal")
    assert listed("?label=project%3Dlegal&owner=bob") == []
    assert listed("?policy=other") == []
    assert [second, first] == listed("?status=waiting")
    assert [second] == listed("?limit=1")
    desk.record([e.JobFinished(desk.clock.now(), first, Outcome.FAILED, "exit code 1")])
    assert [second] == listed()
    assert [second, first] == listed("?all=1")
    assert [first] == listed("?status=failed")


def test_a_job_that_waits_says_why(desk: Desk) -> None:
    """Every job that does not run has a reason, in the list and in its page."""
    job_id = desk.submit()

    (row,) = desk.get("/v1/jobs")["jobs"]
    assert (row["status"], row["hold"]["why"]) == ("waiting", "no_offer")
    assert desk.get(f"/v1/jobs/{job_id}/explain")["hold"]["why"] == "no_offer"


def test_show_has_everything(desk: Desk) -> None:
    """Attempts, tries with reasons, checkpoints, the notice, the resolved policy, the cost so far, and how fast the market runs."""
    desk.see_offers()
    job_id = desk.submit()
    instance = desk.run_job()
    desk.pass_time(6)
    now = desk.clock.now()
    desk.record([e.NoticeSeen(now, instance.id, Notice(NoticeKind.RECLAIM, NoticeSource.IMDS, now, now))])
    found = desk.get(f"/v1/jobs/{job_id}")

    assert tuple(found["job"][k] for k in ("status", "step", "checkpoint_step", "preemptions")) == ("draining", 120, 100, 1)
    assert found["speeds"] == {"local": 600}
    assert tuple(found["attempts"][0][k] for k in ("market", "state", "loss")) == ("spot", "draining", 2.5)
    first = found["instances"][0]
    assert (first["try"], first["provider_id"], first["price_usd_per_hour"], first["notice"]["kind"]) == (1, "i-1", "1.000000", "reclaim")
    assert "per useful hour" in first["because"]
    # Six seconds, 600 times faster, are an hour at one dollar.
    assert (found["spend_usd"], found["spend_complete"]) == ("1.000000", True)
    assert [c["id"] for c in found["checkpoints"]] == ["00001-000001"]
    assert found["policy"]["spot_handlers"]["max_preemptions"] == 3
    assert found["spec"]["run"] == "python train.py"
    # While the old attempt saves, its replacement is on its way.
    assert len(found["attempts"]) == 2


def test_no_answer_holds_a_credential(desk: Desk) -> None:
    """Not even hashes of the agents' credentials leave the daemon."""
    desk.see_offers()
    job_id = desk.submit()
    instance = desk.instance()
    desk.record([e.LaunchSucceeded(START, instance.id, "i-1", START), e.AgentBootstrapped(START, instance.id, "a" * 64, "b" * 64)])

    for path in (f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/explain", "/v1/events", "/v1/jobs"):
        content = desk.raw("GET", path)[2]
        assert b"a" * 64 not in content
        assert b"b" * 64 not in content


def test_a_job_can_be_meant_in_three_ways(desk: Desk) -> None:
    """By id, by the beginning of an id, and by name."""
    job_id = desk.submit()

    assert {job_id} == {desk.get(f"/v1/jobs/{ref}")["job"]["id"] for ref in (job_id, job_id[:8], "llama-ft")}


@pytest.mark.parametrize("ref", ["nope", "%20", "..%2f..", "%00", "x" * 500, "%ff", "a%0ab"])
def test_an_unknown_job_is_one_sentence(untouched: Desk, ref: str) -> None:
    """No such job: 404 with the next step, for every verb about a job."""
    for method, path in (("GET", ""), ("GET", "/explain"), ("GET", "/logs"), ("POST", "/cancel")):
        status, answer = untouched.call(method, f"/v1/jobs/{ref}{path}")

        assert (status, answer["error"]["code"]) == (404, "not_found")
        assert answer["error"]["message"].isprintable()


def test_explain_shows_every_factor(desk: Desk) -> None:
    """The ranking with price, age, hazard, overhead and cost; the market with its counts; what a placement now would get."""
    desk.see_offers()
    job_id = desk.submit()
    instance = desk.instance()
    desk.record([e.LaunchRefused(START, instance.id, ErrorKind.NO_CAPACITY, Scope.OFFER, "InsufficientInstanceCapacity", "none left")])
    found = desk.get(f"/v1/jobs/{job_id}/explain")

    assert [o["market"] for o in found["ranking"]] == ["spot", "spot", "on-demand", "on-demand"]
    best = found["ranking"][0]
    assert best["overhead"] > 1
    assert f"{float(best['price_usd_per_hour']) * best['overhead']:.4f}" == f"{float(best['cost_usd_per_useful_hour']):.4f}"
    assert tuple(found["market"][k] for k in ("preemptions", "max_preemptions", "first")) == (0, 3, "spot")
    refused = found["tries"][0]
    assert (refused["refusal"], refused["error"]) == ("no_capacity", "InsufficientInstanceCapacity: none left")
    cooling = next(o for o in found["ranking"] if o["cooldown"])
    assert cooling["cooldown"]["cause"] == "no_capacity"
    assert cooling["region"] == refused["offer"]["region"]


def test_explain_shows_what_is_not_even_ranked(desk: Desk) -> None:
    """An offer that may not be bought stands there with the reason."""
    desk.see_offers(spot="4.00", on_demand="3.00")
    job_id = desk.submit()
    found = desk.get(f"/v1/jobs/{job_id}/explain")

    assert {"not_cheaper_than_on_demand"} == {o["why"] for o in found["rejected"]}


def test_cancel_is_for_the_owner_and_for_admins(desk: Desk) -> None:
    """Somebody else's job is left alone; one's own is cancelled once, however often it is asked for."""
    desk.see_offers()
    job_id = desk.submit()
    desk.run_job()
    desk.peer = BOB
    facts = desk.facts()
    assert desk.call("POST", f"/v1/jobs/{job_id}/cancel")[0] == 403
    assert facts == desk.facts()

    desk.peer = None
    first = desk.call("POST", f"/v1/jobs/{job_id}/cancel")
    assert (first[0], first[1]["changed"], first[1]["job"]["status"]) == (200, True, "cancelling")
    second = desk.call("POST", f"/v1/jobs/{job_id}/cancel")
    assert (second[0], second[1]["changed"]) == (200, False)


def test_root_may_cancel_any_job(desk: Desk) -> None:
    """Root is an admin everywhere."""
    desk.peer = BOB
    job_id = desk.submit()
    desk.peer = Peer(0, 0, "root")

    assert desk.call("POST", f"/v1/jobs/{job_id}/cancel")[0] == 200


# Logs -----------------------------------------------------------------------------------------------------------------


def test_logs_are_the_bytes_that_the_job_wrote(desk: Desk) -> None:
    """From an offset, attempt by attempt; the headers say which attempt it is."""
    desk.see_offers()
    job_id = desk.submit()
    desk.run_job()

    assert desk.raw("GET", f"/v1/jobs/{job_id}/logs")[::2] == (200, b"")
    desk.write_log(job_id, 1, b"one\n\xff\x00two\n")
    status, headers, content = desk.raw("GET", f"/v1/jobs/{job_id}/logs?offset=4")
    assert (status, headers["X-Spotd-Attempt"], content) == (200, "1", b"\xff\x00two\n")
    assert desk.raw("GET", f"/v1/jobs/{job_id}/logs?offset=4000")[2] == b""
    assert desk.raw("GET", f"/v1/jobs/{job_id}/logs?attempt=7")[0] == 404


def test_followed_logs_end_with_the_attempt(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever follows gets what was written until the attempt was over, and then the end."""
    monkeypatch.setattr(control_logs, "_LOOK_S", 0.02)
    monkeypatch.setattr(control_logs, "_GRACE_S", 0.2)
    desk.see_offers()
    job_id = desk.submit()
    instance = desk.run_job()
    desk.write_log(job_id, 1, b"one\n")
    found: list[bytes] = []
    follower = threading.Thread(target=lambda: found.append(desk.raw("GET", f"/v1/jobs/{job_id}/logs?attempt=1&follow=1")[2]))
    follower.start()
    desk.write_log(job_id, 1, b"two\n")
    desk.record([e.WorkloadExited(desk.clock.now(), instance.id, 0, done=True, step=200)])
    desk.write_log(job_id, 1, b"three\n")
    follower.join(30)

    assert found == [b"one\ntwo\nthree\n"]


def test_a_follower_does_not_hold_up_a_stop() -> None:
    """A daemon that is told to stop lets go of those who follow logs or events."""
    with Desk() as desk:
        desk.see_offers()
        job_id = desk.submit()
        desk.run_job()
        done: list[int] = []
        paths = (f"/v1/jobs/{job_id}/logs?follow=1", f"/v1/events?after={desk.reader.last_seq()}&wait=30")
        followers = [threading.Thread(target=lambda p=path: done.append(desk.raw("GET", p)[0])) for path in paths]
        for follower in followers:
            follower.start()
        desk.get("/v1/status")
    for follower in followers:
        follower.join(10)

    assert not any(follower.is_alive() for follower in followers)


# Market, money, journal, policies, status -------------------------------------------------------------------------------


def test_offers_and_prices(desk: Desk) -> None:
    """Offers are listed cheapest first with the age of their price; prices are the history."""
    desk.see_offers()
    desk.pass_time(60)

    found = desk.get("/v1/offers")
    assert [(o["region"], o["market"], o["price_usd_per_hour"], o["age_s"]) for o in found["offers"][:2]] == [
        ("eu-1", "spot", "1.000000", 60.0),
        ("us-1", "spot", "1.000000", 60.0),
    ]
    assert found["speeds"] == {"local": 600}
    assert len(desk.get("/v1/offers?market=spot&region=us-1")["offers"]) == 1
    desk.see_offers(spot="1.50")
    history = desk.get("/v1/prices?market=spot&region=us-1&since=1h")
    assert [p["price_usd_per_hour"] for p in history["prices"]] == ["1.000000", "1.500000"]
    assert history["speeds"] == {"local": 600}


def test_savings_are_reported_with_their_period(desk: Desk) -> None:
    """The report is the wiring's; the period and the speed stand beside it."""
    desk.see_offers()
    desk.submit()
    desk.run_job()
    desk.pass_time(6)
    found = desk.get("/v1/savings?since=30d&by=owner")

    assert (found["rows"][0]["key"], found["total"]["spend_usd"]) == (ME, "1.000000")
    assert found["speeds"] == {"local": 600}
    assert found["since"].startswith("2026-11-01")
    assert desk.call("GET", "/v1/savings?by=moon")[0] == 400
    assert desk.call("GET", "/v1/savings?since=1d&until=2d")[0] == 400


def test_events_are_the_journal(desk: Desk) -> None:
    """The newest rows without a place, the following ones with it; job and kind narrow it down."""
    desk.see_offers()
    job_id = desk.submit()
    desk.run_job()
    everything = desk.get("/v1/events")

    kinds = [row["kind"] for row in everything["events"]]
    assert kinds[:4] == ["policy_loaded", "job_submitted", "attempt_placed", "launch_requested"]
    assert everything["last"] == everything["events"][-1]["seq"]
    assert [kinds[-1]] == [row["kind"] for row in desk.get("/v1/events?limit=1")["events"]]
    assert kinds[2:4] == [row["kind"] for row in desk.get("/v1/events?after=2&limit=2")["events"]]
    assert "policy_loaded" not in [row["kind"] for row in desk.get(f"/v1/events?job={job_id}")["events"]]
    assert [row["kind"] for row in desk.get("/v1/events?kind=job_submitted")["events"]] == ["job_submitted"]
    assert desk.call("GET", "/v1/events?kind=nope")[0] == 400


def test_events_can_be_waited_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long poll is answered when something happens, and with nothing when nothing does."""
    monkeypatch.setattr(control_market, "_LOOK_S", 0.02)
    last = desk.reader.last_seq()
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(desk.get(f"/v1/events?after={last}&wait=30")))
    waiting.start()
    job_id = desk.submit()
    waiting.join(30)

    assert job_id == found[0]["events"][0]["job_id"]
    nothing = desk.get(f"/v1/events?after={found[0]['last']}&wait=0")
    assert ([], found[0]["last"]) == (nothing["events"], nothing["last"])


def test_a_filter_that_finds_nothing_goes_on_from_where_it_looked(desk: Desk) -> None:
    """The next question begins at the journal's end, so that following a quiet job does not read the journal again and again."""
    desk.submit()
    answer = desk.get("/v1/events?after=0&kind=job_finished&wait=0")

    assert ([], desk.reader.last_seq()) == (answer["events"], answer["last"])


def test_policies_are_listed_with_their_state(desk: Desk) -> None:
    """A broken file is shown as such, with line and key, beside the version in force."""
    desk.submit()
    (desk.directory / "demo.yaml").write_text("candidats: []\n")
    desk.refresh()
    (entry,) = desk.get("/v1/policies")["policies"]

    assert (entry["name"], entry["state"], entry["unfinished_jobs"]) == ("demo", "broken", 1)
    assert (entry["problems"][0]["line"], entry["problems"][0]["key"]) == (1, "candidats")
    assert entry["policy"]["candidates"][0]["regions"] == ["us-1", "eu-1"]
    assert [row["kind"] for row in desk.get("/v1/events?kind=policy_loaded")["events"]] == ["policy_loaded"] * 2


def test_a_policy_can_be_checked_without_putting_it_in_force(desk: Desk) -> None:
    """The answer says what is wrong or doubtful; the policies in force are what they were."""
    good = desk.call("POST", "/v1/policies/check", {"yaml": POLICY, "file": "new.yaml"})
    bad = desk.call("POST", "/v1/policies/check", {"yaml": "max_wiat: 1h\n", "file": "new.yaml"})

    assert (good[0], good[1]["ok"], good[1]["policy"]["name"]) == (200, True, "new")
    assert (bad[0], bad[1]["ok"], bad[1]["problems"][0]["key"]) == (200, False, "max_wiat")
    assert [entry["name"] for entry in desk.get("/v1/policies")["policies"]] == ["demo"]


def test_status_says_who_answers_and_how_the_providers_are(desk: Desk) -> None:
    """Version, pid, uptime, providers, and that the local market runs faster than the clock."""
    desk.submit()
    desk.pass_time(90)
    found = desk.get("/v1/status")

    assert ("1.2.3", os.getpid(), 90.0, getpass.getuser()) == tuple(found[k] for k in ("version", "pid", "uptime_s", "you"))
    assert (found["jobs"], found["providers"]["local"]["failures"], found["speeds"]) == ({"waiting": 1}, 2, {"local": 600})


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs?status=happy",
        "/v1/jobs?limit=-1",
        "/v1/jobs?limit=x",
        "/v1/jobs?all=maybe",
        "/v1/jobs?label=x",
        "/v1/jobs?owner=" + "x" * 300,
        "/v1/offers?market=black",
        "/v1/prices?since=yesterday",
        "/v1/prices?since=0001-01-01T00:00%2B23:00",
        "/v1/prices?limit=99999999999999999999",
        "/v1/events?after=-1",
        "/v1/events?wait=nan",
        "/v1/events?wait=31",
        "/v1/savings?until=99999999d",
    ],
)
def test_wrong_questions_are_answered_with_what_is_accepted(untouched: Desk, path: str) -> None:
    """A wrong query value is 400 and a sentence that names it."""
    status, answer = untouched.call("GET", path)

    assert (status, answer["error"]["code"]) == (400, "malformed")
    name = path.partition("?")[2].partition("=")[0]
    assert name in answer["error"]["message"]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/", 404), ("GET", "/v2/jobs", 404), ("DELETE", "/v1/jobs", 405)])
def test_unknown_paths_and_methods_are_json_too(untouched: Desk, method: str, path: str, status: int) -> None:
    """Every error has the one shape."""
    found, answer = untouched.call(method, path)

    assert status == found
    assert answer["error"]["message"]


def test_a_bug_is_a_sentence_and_its_traceback_stays_in_the_log(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """500 says where to look; what went wrong is in the daemon's log and nowhere else."""

    def fail() -> dict[str, object]:
        raise RuntimeError("a bug")

    desk.health = fail
    status, _, content = desk.raw("GET", "/v1/status")

    assert status == 500
    assert b"Traceback" not in content
    assert b"journalctl" in content
    assert "Traceback" in caplog.text


def test_who_is_no_user_of_this_host_has_a_name_all_the_same() -> None:
    """A uid that the host does not know is shown as such."""
    assert user_name(3_999_999_999) == "uid-3999999999"
