"""A real daemon and real machines whose checkpoints lie in a bucket: nothing of them passes through the daemon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spotd.testing.fake_aws import FakeAws
from spotd_local import control
from tests.contract.aws_clients import client_of
from tests.e2e.world import PATIENCE_S, World, one_at_a_time, uninterrupted, world

_BUCKET = "training"


@pytest.fixture(name="account")
def _account(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAws]:
    with FakeAws(regions=("us-west-2",)) as aws:
        for name, value in aws.environment().items():
            if name != "AWS_ENDPOINT_URL":  # that is for spotd.toml to say
                monkeypatch.setenv(name, value)
        yield aws


@pytest.fixture(name="house")
def _house(account: FakeAws) -> Iterator[World]:
    """Configured for the bucket, and not started yet."""
    with world(start=False) as made:
        with made.config.open("a") as stream:
            stream.write(f'\n[checkpoints]\nstore = "s3://{_BUCKET}/spotd"\nendpoint_url = "{account.endpoint}"\n')
        client = client_of(account, "s3")
        made.stored = lambda key: bytes(client.get_object(Bucket=_BUCKET, Key=f"spotd/{key}")["Body"].read())
        yield made


def test_a_job_resumes_from_the_bucket(house: World, account: FakeAws) -> None:
    """Reclaimed, saved within the notice, resumed elsewhere, the same weights; the daemon holds no checkpoint, only the bucket does."""
    client_of(account, "s3").create_bucket(Bucket=_BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    house.start()
    job = house.train("spirals", 100)
    house.steps("spirals", 30)
    control.reclaim(house.cloud, house.instance(job, 1))
    answer = house.finished(job)

    one, two = answer["attempts"]
    assert (one["reason"], one["saved"], two["reason"]) == ("reclaimed", True, "exited")
    assert two["resumed_step"] == one["step"]
    one_at_a_time(house.witness("spirals"), 100, {c["step"]: c for c in answer["checkpoints"]})
    assert house.weights(job) == uninterrupted(100)
    assert not (house.state / "objects").exists()
    house.at_peace()


def test_what_ops_got_wrong_is_said_and_changed_safely(house: World, account: FakeAws) -> None:
    """A bucket that is not there keeps a daemon from starting; one that a job needs cannot be left; afterwards it can."""
    assert house.launch().wait(PATIENCE_S) != 0
    assert f"there is no bucket {_BUCKET}: create it, or name another one" in house.log.read_text()

    client = client_of(account, "s3")
    for bucket in (_BUCKET, "another"):
        client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    house.start()
    job = house.train("spirals", 60, every=10)
    house.saved(job)
    house.stop()
    right = house.config.read_text()
    house.config.write_text(right.replace(f"s3://{_BUCKET}/", "s3://another/"))
    assert house.launch().wait(PATIENCE_S) != 0
    assert "the checkpoints of unfinished jobs (spirals) lie in s3://training/spotd at http://" in house.log.read_text()

    house.config.write_text(right)
    house.start()
    house.finished(job)
    house.at_peace()
    house.stop()
    house.config.write_text(right.replace(f"s3://{_BUCKET}/", "s3://another/"))
    house.start()
    assert "checkpoints lie in s3://another/spotd at" in house.log.read_text()
