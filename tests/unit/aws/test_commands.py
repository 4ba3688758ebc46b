"""`spotd aws …` as it is typed: options, sentences, exit codes; and what it reads of the daemon's files."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotd.testing.fake_aws import FakeAws
from spotd_aws import commands
from spotd_aws.installation import Unusable, read_installation
from spotd_aws.usage import Usage, in_use

WEST = "us-west-2"


def _run(*words: str | Path) -> int:
    parser = argparse.ArgumentParser(prog="spotd")
    commands.add(parser.add_subparsers(required=True))
    arguments = parser.parse_args(["aws", *map(str, words)])
    return int(arguments.execute(arguments))


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    """An account with one region."""
    with FakeAws(regions=(WEST,)) as made:
        yield made


@pytest.fixture
def file(aws: FakeAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The daemon's settings for it."""
    for name, value in aws.environment().items():
        monkeypatch.setenv(name, value)
    made = tmp_path / "spotd.toml"
    made.write_text(f'deployment = "lab"\n[agent_api]\nlisten = "0.0.0.0:7443"\n[providers.aws]\nendpoint_url = "{aws.endpoint}"\n')
    return made


def test_setup_prints_each_step_and_the_firewall_rule(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """First what would be done, then what was, then that nothing is left to do. Without configured regions: in every enabled one."""
    assert _run("setup", "--config", file, "--dry-run") == 0
    said = capsys.readouterr().out
    assert f"{WEST}       queue spotd-lab: would create\n" in said
    assert "Nothing was done." in said
    assert _run("setup", "--config", file) == 0
    said = capsys.readouterr().out
    assert f"{WEST}       rule spotd-lab-warnings: created\n" in said
    assert "canary: arrived" in said
    assert "TCP port 7443" in said
    assert _run("setup", "--config", file, "--region", WEST, "--no-canary", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert {one["outcome"] for one in document["steps"]} == {"unchanged"}
    assert document["failed"] == 0
    assert "7443" in document["firewall"]


def test_setup_that_is_refused_says_what_to_do(aws: FakeAws, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1; the sentence names the permission and where to find the policy."""
    file.write_text(file.read_text().replace('"lab"', '"other"').replace('listen = "0.0.0.0:7443"', ""))
    aws.refuse(WEST, "sqs:CreateQueue", "AccessDenied", 403)
    try:
        assert _run("setup", "--config", file) == 1
    finally:
        aws.allow(WEST, "sqs:CreateQueue")
    said = capsys.readouterr().out
    assert "queue spotd-other: FAILED" in said
    assert "CreateQueue" in said
    assert "spotd aws iam-policy --setup" in said
    assert "agent_api.listen names no fixed port" in said


def test_setup_without_credentials_cannot_run(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, one sentence."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert _run("setup", "--config", file) == 2
    said = capsys.readouterr().err
    assert said.startswith("spotd: ")
    assert said.count("\n") == 1
    assert "credentials" in said
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert _run("setup", "--config", file) == 2


def test_setup_makes_no_queue_where_none_is_read(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`queue = false`: the security group alone, and no canary, which would find nobody."""
    file.write_text(file.read_text().replace('"lab"', '"mute"') + "queue = false\n")
    assert _run("setup", "--config", file) == 0
    steps = [line for line in capsys.readouterr().out.splitlines() if line.startswith(WEST)]
    assert [line.partition(" ")[2].strip() for line in steps] == [
        "queue spotd-mute: skipped (queue = false under [providers.aws]: nothing would read it)",
        "security group spotd-mute: created",
    ]


@pytest.mark.parametrize("region", ["us west", "", "US-WEST-2", "../x"])
def test_what_is_no_region_is_refused_as_it_is_typed(file: Path, region: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A sentence and exit 2, before anybody is asked."""
    with pytest.raises(SystemExit) as raised:
        _run("setup", "--config", file, "--region", region)
    assert raised.value.code == 2
    assert f"{region!r} is not the name of a region" in capsys.readouterr().err


def test_iam_policy_is_json_and_nothing_else(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To be piped into a file; the bucket is that of the checkpoints' store unless another is named. AWS is not asked."""
    file.write_text(file.read_text() + '[checkpoints]\nstore = "s3://ckpt/spotd"\n')
    assert _run("iam-policy", "--config", file) == 0
    assert "arn:aws:s3:::ckpt/*" in str(json.loads(capsys.readouterr().out))
    assert _run("iam-policy", "--config", file, "--bucket", "mine", "--setup", "--selftest", "--instance-profile", "trainer") == 0
    document = json.loads(capsys.readouterr().out)
    assert {"Checkpoints", "SetUpQueue", "InterruptOurs", "GiveProfiles"} <= {one["Sid"] for one in document["Statement"]}
    assert "arn:aws:s3:::ckpt/*" not in str(document)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "there is no file"),
        ("x = ", "is not valid TOML"),
        ("providers = 3", "providers is to be a table"),
        ("deployment = 3", "deployment is to be text"),
        ('[providers.aws]\nregion = "us-west-2"', "[providers.aws] region: "),
        ('state_dir = "/nowhere"', "the deployment has no name yet"),
    ],
)
def test_a_file_that_is_wrong_is_a_sentence(tmp_path: Path, text: str | None, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2; it says what to do, in setup as in iam-policy."""
    file = tmp_path / "spotd.toml"
    if text is not None:
        file.write_text(text)
    for verb in ("setup", "iam-policy"):
        assert _run(verb, "--config", file) == 2
        assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], ["setup", "--help"], ["iam-policy", "--help"]])
def test_help_has_an_example(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Like every verb of spotd."""
    with pytest.raises(SystemExit):
        _run(*words)
    assert "examples:\n  spotd aws " in capsys.readouterr().out


def test_the_deployments_name_is_the_daemons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the file, by the daemon's variable, else as the daemon has kept it."""
    file = tmp_path / "spotd.toml"
    file.write_text(f'state_dir = "{tmp_path}"\n[agent_api]\nadvertise = "a.example:1"\n')
    (tmp_path / "deployment").write_text("kept\n")
    assert read_installation(file).deployment == "kept"
    monkeypatch.setenv("SPOTD_DEPLOYMENT", "given")
    monkeypatch.setenv("SPOTD_AGENT_API__LISTEN", "0.0.0.0:9000")
    found = read_installation(file)
    assert (found.deployment, found.listen_port, found.advertise) == ("given", 9000, "a.example:1")
    monkeypatch.delenv("SPOTD_DEPLOYMENT")
    (tmp_path / "deployment").unlink()
    (tmp_path / "deployment").mkdir()
    with pytest.raises(Unusable, match="run this as the daemon's user"):
        _ = read_installation(file).deployment


def test_types_and_regions_in_use_are_those_of_the_policies(tmp_path: Path) -> None:
    """Candidates on AWS, fallback, failover; a file that is broken is passed over, for `spotd policy check` to judge."""
    (tmp_path / "one.yaml").write_text(
        "candidates:\n"
        "  - {provider: aws, instance_types: [p5.48xlarge], regions: [us-west-2, us-east-1]}\n"
        "  - {provider: gcp, instance_types: [a3-highgpu-8g], regions: [us-central1]}\n"
    )
    (tmp_path / "two.yml").write_text("spot_handlers: {fallback_node: g5.xlarge, region_failover: [eu-west-1, us-central1]}")
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "list.yaml").write_text("- 1")
    (tmp_path / "odd.yaml").write_text("candidates: [3, {instance_types: 4, regions: {}}]\nspot_handlers: 5")
    (tmp_path / "notes.txt").write_text("candidates")
    assert in_use(tmp_path) == Usage(("g5.xlarge", "p5.48xlarge"), ("eu-west-1", "us-east-1", "us-west-2"))
    assert in_use(tmp_path / "nowhere") == Usage()
