"""`spotd selftest aws` as users run it, against an account on this machine: by FIS, by hand, and interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spotd.testing.fake_aws import FakeAws, Lags, Machines, Reclaim, fis
from spotd.testing.fake_aws.instances import State
from tests.contract.aws_clients import client_of

WEST, EAST = "us-west-2", "us-east-1"
BUCKET = "training"
ROLE = "arn:aws:iam::123456789012:role/spotd-acceptance-fis"
_LONGEST_S = 120.0


@pytest.fixture(name="aws")
def _aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeAws]:
    lags = Lags(boot_s=0.5, shutdown_s=1.0, visible_s=0.5, listing_s=0.2, request_visible_s=0.5, request_s=0.2)
    with FakeAws(regions=(WEST, EAST), lags=lags, machines=Machines(tmp_path / "machines")) as aws:
        for name, value in aws.environment().items():
            if name != "AWS_ENDPOINT_URL":  # that is for spotd.toml to say
                monkeypatch.setenv(name, value)
        for region in (WEST, EAST):
            aws.sell("t3.small", region, on_demand_usd="0.0208", spot_usd="0.0070")
            aws.sell("m5.large", region, on_demand_usd="0.0960", spot_usd="0.0380")
        client_of(aws, "s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": WEST})
        yield aws


@pytest.fixture(name="config")
def _config(aws: FakeAws, tmp_path: Path) -> Path:
    file = tmp_path / "spotd.toml"
    file.write_text(
        f"""\
deployment = "acceptance"

[checkpoints]
store = "s3://{BUCKET}/spotd"
endpoint_url = "{aws.endpoint}"

[providers.aws]
regions = ["{WEST}", "{EAST}"]
endpoint_url = "{aws.endpoint}"
metadata_poll = "200ms"
heartbeat = "500ms"
boot_timeout = "60s"
"""
    )
    return file


def _command(config: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "spotd.cli.main", "selftest", "aws", "--config", str(config), "--budget", "1", *words]


def _selftest(config: Path, *words: str, timeout: float = _LONGEST_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_command(config, *words), capture_output=True, text=True, timeout=timeout, check=False)


def _nothing_is_left(aws: FakeAws) -> None:
    assert all(one.state in {State.SHUTTING_DOWN, State.TERMINATED} for one in aws.instances)
    assert "Contents" not in client_of(aws, "s3").list_objects_v2(Bucket=BUCKET, Prefix="spotd/selftest-")
    assert not list(Path(os.environ["TMPDIR"]).glob("spotd-selftest-*"))
    assert not aws._laboratory._templates


def _steps(answer: dict[str, Any]) -> dict[str, str]:
    return {step["title"]: step["verdict"] for step in answer["steps"]}


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="sp-") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield


def test_a_reclaim_by_fis(aws: FakeAws, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job goes on elsewhere from what the notice had it save, nothing is left, and the report says so without naming the account.

    AWS's notice is two minutes; this account's is shorter, so that nobody waits for an instance which is not needed any more.
    """
    monkeypatch.setattr(fis, "Reclaim", partial(Reclaim, notice_s=12.0))
    report = tmp_path / "report.md"
    done = _selftest(config, "--fis-role", ROLE, "--seconds", "20", "--report", str(report), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["passed"]
    assert set(_steps(answer).values()) == {"passed"}
    assert float(answer["spent_usd"]) < 1
    text = report.read_text()
    assert text == answer["markdown"]
    assert "ended as reclaimed, reclaim announced by" in text
    assert aws.account not in text + json.dumps(answer)
    assert BUCKET not in text
    first, second, *_ = aws.instances
    assert first.state_reason is not None
    assert first.state_reason.code == "Server.SpotInstanceTermination"
    assert {first.instance_type, second.instance_type} == {"t3.small"}
    assert all(one.tags["spotd:deployment"].startswith("selftest-") for one in aws.instances)
    _nothing_is_left(aws)


@pytest.mark.slow
def test_ctrl_c_removes_everything(aws: FakeAws, config: Path) -> None:
    """Pressed while the job runs: exit 130, and the account is as it was."""
    process = subprocess.Popen(_command(config, "--seconds", "60"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + _LONGEST_S
        while not any(one.state is State.RUNNING for one in aws.instances):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=_LONGEST_S)
    finally:
        process.kill()
    assert process.returncode == 130, out + err
    assert "interrupted" in out
    _nothing_is_left(aws)


@pytest.mark.slow
def test_what_does_not_come_to_an_end_is_ended(aws: FakeAws, config: Path) -> None:
    """A job that never gets on in its time: exit 1, the step that failed is named with its reason, its instance is ended, the cost is known."""
    done = _selftest(config, "--seconds", "600", "--timeout", "40s", "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    verdicts = _steps(answer)
    assert "failed" in verdicts.values()
    assert verdicts["nothing is left"] == "passed"
    assert "--timeout" in answer["markdown"]
    assert "the end of the daemon's log" in answer["markdown"]
    assert aws.instances
    _nothing_is_left(aws)


@pytest.mark.slow
def test_a_loss_without_notice(aws: FakeAws, config: Path) -> None:
    """Where FIS is refused, the instance is ended by hand, and the report says what that shows.

    Minutes, where the listing says who ended it before its agent says that it shuts down: spotd then waits before it places the job again.
    """
    aws.refuse("*", "fis:CreateExperimentTemplate", "AccessDeniedException", 403)
    done = _selftest(config, "--fis-role", ROLE, "--seconds", "20", "--json", timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert "AWS FIS did not do it" in answer["markdown"]
    assert "without AWS's notice" in answer["markdown"]
    assert "ended as external" in answer["markdown"] or "ended as guest_shutdown" in answer["markdown"]
    _nothing_is_left(aws)


def test_what_cannot_work_is_said_before_money_is_spent(aws: FakeAws, config: Path) -> None:
    """A budget below the cheapest offer, a type that nobody sells, and no credentials: exit 2, a sentence, and no instance."""
    refused = _selftest(config, "--type", "p5.48xlarge")
    assert refused.returncode == 2
    assert "--budget" in refused.stderr
    unsold = _selftest(config, "--type", "x9.huge")
    assert unsold.returncode == 2
    assert "--type" in unsold.stderr
    bare = {name: value for name, value in os.environ.items() if not name.startswith("AWS_ACCESS") and not name.startswith("AWS_SECRET")}
    nobody = subprocess.run(_command(config), capture_output=True, text=True, timeout=60, check=False, env=bare)
    assert nobody.returncode == 2
    assert "credentials" in nobody.stderr
    assert not aws.instances
    assert "Traceback" not in refused.stderr + unsold.stderr + nobody.stderr
    _nothing_is_left(aws)
