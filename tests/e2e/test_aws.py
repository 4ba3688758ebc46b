"""The real daemon on an AWS account in three regions: real user data, real agents, warnings by queue and by metadata, checkpoints in S3."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from spotd.core.offer import Market
from spotd.testing.fake_aws import FakeAws, Lags, Machines, Reclaim
from spotd.testing.fake_aws.instances import FakeInstance, State
from tests.contract.aws_clients import client_of
from tests.e2e.world import PATIENCE_S, TRAIN, World, one_at_a_time, uninterrupted

KIND = "g5.xlarge"
#: Regions by price: the cheapest has no capacity, the next one throttles, and so on.
EMPTY, THROTTLED, LAST = "us-west-2", "us-east-1", "eu-west-1"
PRICES = {EMPTY: "0.30", THROTTLED: "0.40", LAST: "0.45"}
BUCKET = "training"
POLICY = f"""\
candidates:
  - {{provider: aws, instance_types: [{KIND}], regions: [{EMPTY}, {THROTTLED}, {LAST}]}}
spot_handlers:
  max_preemptions: 100
"""


class AwsWorld(World):
    """A daemon whose only provider is the account."""

    def __init__(self, directory: Path, aws: FakeAws) -> None:
        super().__init__(directory)
        self.aws = aws
        self.policy("spot", POLICY)
        client = client_of(aws, "s3")
        client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": EMPTY})
        self.stored = lambda key: bytes(client.get_object(Bucket=BUCKET, Key=f"spotd/{key}")["Body"].read())
        self.config.write_text(
            f"""\
state_dir = "{self.state}"
deployment = "acceptance"
socket = "{self.socket}"
policies_dir = "{self.policies}"
tick_interval = "1s"
observe_poll = "1s"
price_poll = "5s"

[checkpoints]
store = "s3://{BUCKET}/spotd"
endpoint_url = "{aws.endpoint}"

[providers.aws]
regions = ["{EMPTY}", "{THROTTLED}", "{LAST}"]
endpoint_url = "{aws.endpoint}"
queue_wait = "2s"
metadata_poll = "200ms"
heartbeat = "500ms"
boot_timeout = "60s"
"""
        )

    def story(self) -> str:
        """The logs, for whoever reads of a failure."""
        parts = [self.log.read_text(errors="replace")[-6000:]] if self.log.exists() else []
        for instance in self.aws.instances:
            console = self.aws.world.console(instance.instance_id).decode(errors="replace")
            parts.append(f"--- {instance.instance_id} {instance.zone} {instance.state}\n{console[-1500:]}")
        return "\n".join(parts)

    def machine(self, job: str, attempt: int) -> FakeInstance:
        """The account's own record of an attempt's machine, once its workload runs."""
        self.attempt(job, attempt, "running")
        row = next(i for i in reversed(self.show(job)["instances"]) if i["attempt"] == attempt and i["provider_id"])
        return self.aws.instance(row["provider_id"])

    def close(self) -> None:
        """End the daemons; the account ends its machines."""
        for process in self.daemons:
            process.kill()
            process.wait()


@pytest.fixture(name="aws")
def _aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeAws]:
    lags = Lags(boot_s=0.5, shutdown_s=1.0, visible_s=0.5, listing_s=0.2, request_visible_s=0.5, request_s=0.2)
    with FakeAws(regions=(EMPTY, THROTTLED, LAST), lags=lags, machines=Machines(tmp_path / "machines")) as aws:
        for name, value in aws.environment().items():
            if name != "AWS_ENDPOINT_URL":  # that is for spotd.toml to say
                monkeypatch.setenv(name, value)
        for region in (EMPTY, THROTTLED, LAST):
            aws.set_quota(region, "L-3819A6DF", 64)
            aws.set_quota(region, "L-DB2E81BA", 64)
            for zone in "abc":
                aws.set_price(region, f"{region}{zone}", KIND, PRICES[region])
        yield aws


@pytest.fixture(name="house")
def _house(aws: FakeAws) -> Iterator[AwsWorld]:
    directory = Path(tempfile.mkdtemp(prefix="sp-"))
    made = AwsWorld(directory, aws)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(directory, ignore_errors=True)


def _spotd(house: AwsWorld, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spotd.cli.main", *words, "--config", str(house.config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def _alive(house: AwsWorld) -> list[str]:
    return [i.instance_id for i in house.aws.instances if i.state is not State.TERMINATED]


def _train(house: AwsWorld, steps: int) -> str:
    run = f"exec {sys.executable} {TRAIN} --steps {steps} --seconds-per-step 0.1 --checkpoint-every 20"
    return house.submit("spirals", run, checkpoint={"dir": "ckpt"}, resources={"disk": "200GB"}, labels={"project": "legal"})


def _endings(answer: dict[str, Any]) -> list[tuple[int, str]]:
    return [(i["attempt"], i["ended_by"]) for i in answer["instances"] if i["provider_id"]]


def test_a_training_job_on_aws(house: AwsWorld) -> None:
    """A region without capacity, one that throttles, `kill -9` within a launch, a reclaim by queue only and one by metadata only.

    One workload at any time, no step lost that was saved, the weights of an undisturbed run, nothing left running, and every ending known for
    what it was.
    """
    aws = house.aws
    setup = _spotd(house, "aws", "setup")
    assert setup.returncode == 0, setup.stdout + setup.stderr
    for zone in "abc":
        aws.exhaust(EMPTY, f"{EMPTY}{zone}", KIND, Market.SPOT)
    aws.refuse(THROTTLED, "RunInstances", "RequestLimitExceeded", 503, times=1)
    house.start()
    steps = 400
    job = _train(house, steps)
    house.until(lambda: "throttled" in _refusals(house), "the daemon was told to slow down")
    assert "no_capacity" in _refusals(house)
    with aws.hold_answer(THROTTLED, "RunInstances") as held:
        assert held.wait(PATIENCE_S), house.story()
        house.kill()
    (first,) = aws.instances
    house.start()

    # Adopted, not launched again.
    assert house.machine(job, 1).instance_id == first.instance_id
    assert len(aws.instances) == 1
    assert first.tags["spotd:deployment"] == "acceptance"
    assert first.tags["project"] == "legal"
    house.steps("spirals", 45)
    aws.reclaim(first.instance_id, Reclaim(notice_s=25.0, imds=False, spot_request=False))

    second = house.machine(job, 2)
    reached = max(line.step for line in house.witness("spirals"))
    house.steps("spirals", reached + 30)
    aws.reclaim(second.instance_id, Reclaim(notice_s=20.0, events=False, spot_request=False))
    third = house.machine(job, 3)
    assert len({first.region, second.region, third.region}) == 2, "the empty region was never used"
    answer = house.finished(job, seconds=3 * PATIENCE_S)

    assert [a["reason"] for a in answer["attempts"]] == ["reclaimed", "reclaimed", "exited"]
    assert [a["saved"] for a in answer["attempts"]][:2] == [True, True]
    assert answer["job"]["preemptions"] == 2
    told = [row["fields"]["notice"]["source"] for row in house.events("notice_seen")]
    assert told == ["provider", "imds"]
    one_at_a_time(house.witness("spirals"), steps, {c["step"]: c for c in answer["checkpoints"]})
    assert house.weights(job) == uninterrupted(steps)

    house.until(lambda: not _alive(house), "no instance is left", PATIENCE_S)
    known = house.until(lambda: _settled(house, job), "the daemon knows every ending")
    assert _endings(known) == [(1, "reclaim"), (2, "reclaim"), (3, "us")]
    # Reclaimed within the first hour is free on AWS (facts/reclaim.md §1.11); the third ran for seconds and costs a minute.
    spent = [Decimal(i["spend_usd"]) for i in known["instances"] if i["provider_id"]]
    assert spent[:2] == [0, 0]
    assert spent[2] > 0
    assert all((volume.gb, volume.delete_on_termination) == (200, True) for instance in aws.instances for volume in instance.volumes)
    house.verify_checkpoints(job)
    assert "AKIA" not in house.log.read_text()


def _refusals(house: AwsWorld) -> list[str]:
    return [row["fields"]["kind"] for row in house.events("launch_refused")]


def _settled(house: AwsWorld, job: str) -> dict[str, Any] | None:
    answer = house.show(job)
    return answer if all(i["state"] == "gone" for i in answer["instances"]) else None


def test_the_account_is_looked_at_before_money_is_spent(house: AwsWorld) -> None:
    """`spotd doctor aws` finds what is missing before `setup`, and less after it."""
    before = json.loads(_spotd(house, "doctor", "aws", "--json").stdout)
    assert _spotd(house, "aws", "setup").returncode == 0
    after = json.loads(_spotd(house, "doctor", "aws", "--json").stdout)
    assert len(after["findings"]) < len(before["findings"])
