"""`spotd selftest aws`: what may be bought, what counts as seen, what is said, and that nothing stays."""

from __future__ import annotations

import argparse
import json
import socket
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from spotd.config.job import parse_job
from spotd.config.policy import parse_policy
from spotd.core.errors import ProviderUnavailable
from spotd.core.offer import Market, Offer, OfferKey
from spotd_aws import selftest, trial_run
from spotd_aws.findings import Finding, State
from spotd_aws.installation import Unusable
from spotd_aws.trial import TITLES, Trial
from spotd_aws.trial_choice import choose
from spotd_aws.trial_daemon import Daemon, toml
from spotd_aws.trial_fitness import fit_regions, see_that_free
from spotd_aws.trial_job import job_file, policy_file
from spotd_aws.trial_pace import Pace
from spotd_aws.trial_reclaim import How, Target
from spotd_aws.trial_removal import empty
from spotd_aws.trial_report import Discretion, Failed, Record, Report, Step, Verdict
from spotd_aws.trial_wishes import read_wishes

WEST, EAST = "us-west-2", "us-east-1"


# What may be bought


def _offer(kind: str, price: str, region: str = WEST, market: Market = Market.SPOT) -> Offer:
    return Offer(OfferKey("aws", region, f"{region}a", kind, market), Decimal(price), datetime(2026, 1, 1, tzinfo=UTC))


def test_the_cheapest_spot_offer_is_named_and_the_cap_keeps_the_budget() -> None:
    """On-demand offers do not count; dearer types stay in as long as two of them for all hours are within the budget."""
    offers = [_offer("m5.large", "0.04"), _offer("t3.small", "0.007", EAST), _offer("t3.small", "0.001", market=Market.ON_DEMAND), _offer("big", "2")]
    choice = choose(offers, Decimal(1), Decimal(1))
    assert choice.cheapest.key.region == EAST
    assert choice.instance_types == ["t3.small", "m5.large"]
    assert choice.regions == [EAST, WEST]
    assert choice.cap_usd_per_hour == Decimal("0.5")
    assert choose(offers, Decimal(1), Decimal(3)).cap_usd_per_hour == Decimal("0.166666"), "rounded down: never above the budget"


def test_nothing_is_bought_that_the_budget_does_not_cover() -> None:
    """The refusal names the price, the sum, and both ways out."""
    with pytest.raises(Unusable, match=r"\$0\.30/h.*may cost \$0\.600, and the budget is \$0\.5.*--budget.*--type"):
        choose([_offer("m5.large", "0.30")], Decimal("0.5"), Decimal(1))
    with pytest.raises(Unusable, match="--type"):
        choose([_offer("m5.large", "0.01", market=Market.ON_DEMAND)], Decimal(1), Decimal(1))


def test_job_and_policy_are_what_spotd_takes() -> None:
    """Both files parse, the policy buys spot only and nothing above the cap."""
    job = parse_job(json.dumps(job_file(180)), "job.yaml")
    assert "total=180 every=15" in job.spec.run
    policy = parse_policy(json.dumps(policy_file(["t3.small"], [WEST], "0.166666")), "selftest.yaml").policy
    assert policy.max_hourly_price_usd == Decimal("0.166666")
    assert policy.spot_handlers.max_preemptions == 1000


# Where it can work


def _fit(*findings: tuple[str, str, State], remote: bool = True) -> tuple[str, ...]:
    return fit_regions([Finding(where, what, state, "says", "fix it") for where, what, state in findings], (WEST, EAST), remote=remote)


def test_regions_are_used_where_a_launch_would_go_through() -> None:
    """A region that lacks something is left out; where none is left, what is wrong is said with its fix."""
    good = (WEST, "launch spot", State.OK)
    assert _fit(good, (EAST, "image", State.PROBLEM)) == (WEST,)
    assert _fit(good, (EAST, "launch spot", State.OK), (EAST, "quota spot", State.PROBLEM)) == (WEST,)
    with pytest.raises(Unusable, match="us-east-1: image: says - fix it"):
        _fit((EAST, "image", State.PROBLEM))


def test_what_concerns_the_host_matters_where_instances_are_elsewhere() -> None:
    """An account on this host needs no address and no store."""
    findings = ((WEST, "launch spot", State.OK), ("host", "agent_api.advertise", State.PROBLEM))
    assert _fit(*findings, remote=False) == (WEST,)
    with pytest.raises(Unusable, match=r"agent_api\.advertise"):
        _fit(*findings)
    with pytest.raises(Unusable, match="clock"):
        _fit((WEST, "launch spot", State.OK), ("account", "clock", State.PROBLEM), remote=False)


def test_a_port_that_is_taken_is_named_with_both_ways_out() -> None:
    """Most often the daemon in use has it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Unusable, match=r"stop it for the test.*--listen"):
            see_that_free(address)
    see_that_free(address)


def test_settings_are_the_users_with_a_place_of_their_own_in_the_store(tmp_path: Path) -> None:
    """Another deployment, no queue, a prefix behind the user's; a store that could not be emptied is refused."""
    file = tmp_path / "spotd.toml"
    file.write_text(
        'deployment = "lab"\n[agent_api]\nlisten = "0.0.0.0:7443"\nadvertise = "h:7443"\n'
        '[checkpoints]\nstore = "s3://ckpt/spotd/"\nregion = "us-west-2"\n[providers.aws]\nscore_pools = [["a.x", "b.x", "c.x"]]\n'
    )
    wishes = read_wishes(_arguments("--config", str(file), "--advertise", "other:7444"), "selftest-1")
    assert wishes.installation.store == "s3://ckpt/spotd/selftest-1"
    assert wishes.installation.store_settings == {"region": "us-west-2"}
    assert wishes.installation.advertise == "other:7444"
    assert (wishes.deployment, wishes.own_deployment) == ("selftest-1", "lab")
    assert wishes.hours == 1
    assert read_wishes(_arguments("--config", str(file), "--timeout", "110m"), "selftest-1").hours == 2, "ten minutes for the removal"
    assert not wishes.installation.aws.queue
    assert not wishes.installation.aws.score_pools
    file.write_text('[checkpoints]\nstore = "gs://ckpt/spotd"\n')
    with pytest.raises(Unusable, match="s3:// only"):
        read_wishes(_arguments("--config", str(file)), "selftest-1")


def _arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    selftest.add_options(parser)
    return parser.parse_args(["--budget", "1", *words])


@pytest.mark.parametrize("words", [("--budget", "0"), ("--budget", "x"), ("--budget", "NaN"), ("--seconds", "5"), ("--timeout", "30")])
def test_what_makes_no_sense_is_refused(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """By argparse, with a sentence."""
    with pytest.raises(SystemExit) as ended:
        _arguments(*words)
    assert ended.value.code == 2
    assert "is not" in capsys.readouterr().err


@pytest.mark.parametrize(
    "table", [{"a": 'x"\\\n\x7f', "b": [1, 2.5, True], "in": {"us-west-2": {"subnets": {"us-west-2a": "s"}}}, "c": None, "d.e": {}}]
)
def test_settings_survive_being_written(table: dict[str, Any]) -> None:
    """What is written as TOML is read as what it was; None is left out."""
    assert tomllib.loads(toml(table)) == {key: value for key, value in table.items() if value is not None}


# The trial


@dataclass
class _Time:
    now: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def _attempt(number: int, state: str, **more: Any) -> dict[str, Any]:
    base = {"number": number, "state": state, "reason": None, "detail": "", "saved": None, "seconds_used": 1.0, "seconds_given": 120.0}
    return base | {"resumed_step": None, "started_at": "2026-01-01T00:00:00Z", "step": None, "boot_s": 30.0} | more


def _instance(number: int, provider_id: str, state: str = "live", **more: Any) -> dict[str, Any]:
    offer = {"region": WEST, "zone": f"{WEST}a", "instance_type": "t3.small", "market": "spot"}
    base = {"attempt": number, "provider_id": provider_id, "state": state, "offer": offer, "price_usd_per_hour": "0.007", "notice": None}
    return base | {"ended_by": None, "spend_usd": "0.001", "refusal": None} | more


@dataclass
class _Daemon:
    """Answers `show` with one scene after the other; the last one stays."""

    scenes: list[dict[str, Any]]
    savings: str = "0.002"
    said: list[Sequence[str]] = field(default_factory=list)

    def ask(self, *words: str) -> Any:
        self.said.append(words)
        match words[0]:
            case "submit":
                return {"job": {"id": "j1"}}
            case "savings":
                return {"total": {"spend_usd": self.savings}}
            case _:
                return deepcopy(self.scenes.pop(0) if len(self.scenes) > 1 else self.scenes[0])


def _scene(attempts: list[dict[str, Any]], instances: list[dict[str, Any]], saved: Sequence[tuple[int, int]] = (), **job: Any) -> dict[str, Any]:
    base = {"status": "running", "outcome": None, "detail": "", "step": None, "checkpoint_step": None, "hold": None, "attempts": len(attempts)}
    checkpoints = [{"attempt": attempt, "step": step, "files": 1, "size_bytes": 3} for attempt, step in saved]
    return {"job": base | job, "attempts": attempts, "instances": instances, "checkpoints": checkpoints}


def _story(**second: Any) -> list[dict[str, Any]]:
    """What spotd tells when all goes well; `second` is what differs in the attempt that goes on."""
    lost = _attempt(1, "ended", reason="reclaimed", saved=True, step=32, resumed_step=None)
    told = _instance(1, "i-1", notice={"kind": "reclaim", "source": "imds"})
    later = _attempt(2, "running", **({"resumed_step": 31} | second))
    gone = [_instance(1, "i-1", "gone", ended_by="reclaim"), _instance(2, "i-2", "gone", ended_by="us")]
    return [
        _scene([_attempt(1, "booting")], [_instance(1, "i-1")]),
        _scene([_attempt(1, "running")], [_instance(1, "i-1")]),
        _scene([_attempt(1, "running")], [_instance(1, "i-1")], [(1, 15)]),
        _scene([_attempt(1, "running")], [_instance(1, "i-1")], [(1, 15)]),
        _scene([lost], [told], [(1, 15), (1, 31)]),
        _scene([lost, later], [told, _instance(2, "i-2")], [(1, 31)]),
        _scene([lost, later], [told, _instance(2, "i-2")], [(1, 31), (2, 45)], outcome="succeeded", step=180),
        _scene([lost, later], gone, [(1, 31), (2, 45)], outcome="succeeded", step=180),
    ]


class _Takes:
    def __init__(self, how: How = How.FIS) -> None:
        self.how = how
        self.taken: list[Target] = []

    def reclaim(self, target: Target, saw: Callable[[str], None]) -> How:
        saw("taken away")
        self.taken.append(target)
        return self.how


def _trial(scenes: list[dict[str, Any]], savings: str = "0.002") -> tuple[Trial, Record]:
    time = _Time()
    pace = Pace(1800.0, lambda: time.now, time.sleep)
    record = Record(lambda _: None, lambda: time.now)
    return Trial(_Daemon(scenes, savings), pace, record, Path("job.yaml"), 180, Decimal(1)), record


def test_a_trial_that_goes_well() -> None:
    """Every step is passed, with what was seen; the instance that is taken away is the one that ran."""
    trial, record = _trial(_story())
    takes = _Takes()
    trial.run(takes)
    assert [step.title for step in record.steps] == list(TITLES)
    assert all(step.verdict is Verdict.PASSED for step in record.steps)
    assert takes.taken == [Target(WEST, "i-1")]
    assert trial.spent_usd == Decimal("0.002")
    assert "from step 31" in str(record.steps[3].evidence)


@pytest.mark.parametrize(
    ("scenes", "savings", "how", "what"),
    [
        (_story(resumed_step=15), "0", How.FIS, "and not from step 31"),
        (_story(resumed_step=None), "0", How.FIS, "and not from step 31"),
        (_story(), "1.01", How.FIS, "the budget is"),
        ([_scene([], [], outcome="failed", detail="refused as wrong")], "0", How.FIS, "refused as wrong"),
        ([*_story()[:4], _scene([_attempt(1, "ended", reason="exited", step=3)], [_instance(1, "i-1")])], "0", How.FIS, "for exited"),
        (
            [*_story()[:4], _scene([_attempt(1, "ended", reason="reclaimed", saved=False)], [_instance(1, "i-1")])],
            "0",
            How.FIS,
            "committed checkpoint",
        ),
        ([*_story()[:-1]], "0", How.FIS, "not within 480 s"),
        ([*_story()[:-2], _scene([_attempt(2, "ended")], [], outcome="failed", detail="exit 1")], "0", How.FIS, "failed: exit 1"),
    ],
)
def test_what_is_not_seen_is_a_failure(scenes: list[dict[str, Any]], savings: str, how: How, what: str) -> None:
    """Another step, another end, a launch that spotd did not end, a cost above the budget: each fails its own step, and ends the trial."""
    trial, record = _trial(scenes, savings)
    with pytest.raises(Failed, match=what):
        trial.run(_Takes(how))
    assert record.steps[-1].verdict is Verdict.FAILED
    assert what in record.steps[-1].evidence[-1]
    assert all(step.verdict is Verdict.PASSED for step in record.steps[:-1])


def test_an_end_by_hand_is_known_as_such() -> None:
    """It is no failure that spotd takes it for somebody else's doing: it was."""
    scenes = _story()
    for scene in scenes[4:]:
        scene["attempts"][0] |= {"reason": "external", "saved": None}
        for row in scene["instances"]:
            row["notice"] = None
    trial, record = _trial(scenes)
    trial.run(_Takes(How.BY_HAND))
    assert "with no notice" in str(record.steps[2].evidence)


def test_the_time_limit_ends_every_wait() -> None:
    """And the sentence says that it is the limit."""
    time = _Time()
    pace = Pace(5.0, lambda: time.now, time.sleep)
    with pytest.raises(Failed, match=r"the job runs: not within 5 s, and the time limit is reached \(--timeout\)"):
        pace.until(lambda: None, "the job runs")


# The report


def _report(steps: Sequence[Step], **more: Any) -> Report:
    return Report(steps, ("one", "two"), {"regions": WEST}, Decimal(1), **({"spent_usd": Decimal("0.02")} | more))


def test_the_report_says_what_was_not_reached() -> None:
    """A failure is not passed over, and shows the logs; they are left out where all is well."""
    good = _report([Step("one", Verdict.PASSED, ("seen",)), Step("two", Verdict.PASSED)], logs={"log": "x"})
    assert good.passed
    assert "selftest aws: passed" in good.markdown()
    assert "details" not in good.markdown()
    bad = _report([Step("one", Verdict.FAILED, ("a | b",), 3.0)], logs={"log": "x ``` y"}, spent_usd=None)
    text = bad.markdown()
    assert not bad.passed
    assert "FAILED" in text
    assert "| two | not reached |  |  |" in text
    assert r"a \| b" in text
    assert "x ''' y" in text
    assert bad.view()["steps"][1]["verdict"] == "not reached"


def test_the_report_names_no_account_and_no_key() -> None:
    """Neither in evidence nor in logs; and none of the words that were said to be private."""
    steps = [Step("one", Verdict.FAILED, ("arn:aws:iam::123456789012:role/x, s3://acme-ckpt/y",))]
    report = _report(steps, discretion=Discretion({"acme-ckpt": "<bucket>", "": "never"}), logs={"log": "AKIAABCDEFGHIJKLMNOP at 123456789012"})
    for text in (report.markdown(), json.dumps(report.view())):
        assert "123456789012" not in text
        assert "acme-ckpt" not in text
        assert "AKIA" not in text
        assert "arn:aws:iam::<account>:role/x" in text


# Removal


class _Store:
    """Keys; the first deletions may fail."""

    def __init__(self, keys: int, failures: int = 0) -> None:
        self.keys = [f"jobs/{number}" for number in range(keys)]
        self.failures = failures

    def list(self, prefix: str) -> Sequence[str]:
        return [key for key in self.keys if key.startswith(prefix)]

    def delete(self, key: str) -> None:
        if self.failures:
            self.failures -= 1
            raise ProviderUnavailable("S3 did not answer")
        self.keys.remove(key)


def test_the_store_is_emptied_and_asked_again() -> None:
    """One failure is tried again; a store that goes on failing is said to hold something."""
    store: Any = _Store(3, failures=1)
    assert empty(store) == 3
    assert not store.keys
    with pytest.raises(Failed, match="left in the store: S3 did not answer"):
        empty(_Store(3, failures=9))  # type: ignore[arg-type]


@pytest.fixture(name="made")
def _made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Daemon]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    daemon = Daemon()
    yield daemon
    daemon.stop()
    daemon.remove()


def test_a_daemon_that_does_not_start_is_quoted(made: Daemon) -> None:
    """Its own sentence is the reason; its directory is private and goes with it."""
    assert made.directory.stat().st_mode & 0o777 == 0o700
    with pytest.raises(Unusable, match=r"does not start: .*nonsense"):
        made.start({"nonsense": 1}, Pace(60.0))
    made.remove()
    assert not made.directory.exists()
    made.remove()


def test_a_long_temporary_directory_is_no_place_for_a_socket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Linux takes about a hundred bytes."""
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    daemon = Daemon()
    try:
        assert daemon.directory.parent == Path("/tmp")
        assert not list(deep.iterdir())
    finally:
        daemon.remove()


def test_titles_are_told_apart() -> None:
    """A report finds its steps by them."""
    titles = (trial_run.FIT, trial_run.CHOICE, trial_run.DAEMON, *TITLES, trial_run.NOTHING_LEFT)
    assert len(set(titles)) == len(titles)
