"""What a self-test does in the account itself: taking an instance away, and ending what is left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from spotd.core.errors import ProviderError
from spotd.testing import FakeClock
from spotd.testing.fake_aws import FakeAws, Lags
from spotd.testing.fake_aws.instances import State
from spotd_aws.clients import Clients
from spotd_aws.config import read
from spotd_aws.trial_pace import Pace
from spotd_aws.trial_reclaim import How, Reclaimer, Target
from spotd_aws.trial_removal import Sweep
from spotd_aws.trial_report import Failed
from spotd_aws.wiring import Account

WEST, EAST = "us-west-2", "us-east-1"
ROLE = "arn:aws:iam::123456789012:role/spotd-lab-fis"
NAME = "selftest-1"


@dataclass
class _House:
    aws: FakeAws
    clock: FakeClock
    clients: Clients

    def wait(self, seconds: float) -> None:
        self.clock.step(seconds)
        self.aws.tick()

    @property
    def pace(self) -> Pace:
        return Pace(600.0, self.clock.monotonic, self.wait)

    def launch(self, region: str = WEST, deployment: str = NAME) -> Target:
        tags = [{"ResourceType": "instance", "Tags": [{"Key": "spotd:deployment", "Value": deployment}]}]
        image = self.clients.get("ec2", region).describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
        answer = self.clients.get("ec2", region).run_instances(
            ImageId=image,
            InstanceType="g5.xlarge",
            MinCount=1,
            MaxCount=1,
            InstanceMarketOptions={"MarketType": "spot"},
            TagSpecifications=tags,
        )
        self.wait(10)
        return Target(region, answer["Instances"][0]["InstanceId"])

    def reclaimer(self, role: str = ROLE) -> Reclaimer:
        return Reclaimer(self.clients, Account(self.aws.account), NAME, role, self.pace)

    def state(self, target: Target) -> State:
        return self.aws.instance(target.instance_id).state


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> Iterator[_House]:
    """An account with a clock that is stepped by whoever waits."""
    clock = FakeClock()
    with FakeAws(clock=clock, regions=(WEST, EAST), lags=Lags()) as aws:
        for name, value in aws.environment().items():
            monkeypatch.setenv(name, value)
        for region in (WEST, EAST):
            aws.set_quota(region, "L-3819A6DF", 64)
        clients = Clients(read({"endpoint_url": aws.endpoint, "regions": [WEST, EAST]}))
        yield _House(aws, clock, clients)
        clients.close()


def test_fis_takes_the_one_instance(house: _House) -> None:
    """The other one stays; the template goes; what is said names the action."""
    target, other = house.launch(), house.launch()
    said: list[str] = []
    assert house.reclaimer().reclaim(target, said.append) is How.FIS
    house.wait(140)
    assert house.aws.instance(target.instance_id).state_reason.code == "Server.SpotInstanceTermination"
    assert house.state(other) is State.RUNNING
    assert not house.aws._laboratory._templates
    assert "aws:ec2:send-spot-instance-interruptions" in said[-1]


@pytest.mark.parametrize("action", ["CreateExperimentTemplate", "StartExperiment"])
def test_where_fis_is_refused_the_instance_is_ended_by_hand(house: _House, action: str) -> None:
    """It is said plainly what that shows, and no template stays."""
    target = house.launch()
    house.aws.refuse(WEST, f"fis:{action}", "AccessDeniedException", 403)
    said: list[str] = []
    assert house.reclaimer().reclaim(target, said.append) is How.BY_HAND
    house.wait(30)
    assert house.state(target) is State.TERMINATED
    assert "AWS FIS did not do it" in said[-1]
    assert "without AWS's notice" in said[-1]
    assert not house.aws._laboratory._templates


def test_without_a_role_fis_is_not_asked(house: _House) -> None:
    """Nor is a failed experiment taken for a reclaim: one whose target is gone."""
    target = house.launch()
    said: list[str] = []
    assert house.reclaimer("").reclaim(target, said.append) is How.BY_HAND
    assert "no --fis-role" in said[0]
    house.wait(30)
    assert house.reclaimer().reclaim(target, said.append) is How.BY_HAND
    assert "the FIS experiment failed" in said[-1]


def test_a_template_that_stays_is_said_with_the_command(house: _House) -> None:
    """Deleted at the second try, or by hand."""
    target = house.launch()
    house.aws.refuse(WEST, "fis:DeleteExperimentTemplate", "InternalServerException", 500)
    said: list[str] = []
    assert house.reclaimer().reclaim(target, said.append) is How.FIS
    assert any("aws fis delete-experiment-template --region us-west-2 --id EXT" in sentence for sentence in said)


def test_neither_way_is_an_error(house: _House) -> None:
    """The trial fails with AWS's own reason."""
    target = house.launch()
    house.aws.refuse(WEST, "TerminateInstances", "UnauthorizedOperation", 403)
    with pytest.raises(ProviderError):
        house.reclaimer("").reclaim(target, lambda _: None)


def _sweep(house: _House) -> Sweep:
    return Sweep(house.clients, (WEST, EAST), NAME)


def test_what_is_left_is_ended_in_every_region_and_nothing_else(house: _House) -> None:
    """By the tag: another deployment's instances run on."""
    mine = [house.launch(), house.launch(EAST)]
    other = house.launch(deployment="main")
    sweep = _sweep(house)
    sweep.until_none(house.pace, 0.0)
    assert sorted(sweep.ended) == sorted(one.instance_id for one in mine)
    assert all(house.state(one) in {State.SHUTTING_DOWN, State.TERMINATED} for one in mine)
    assert house.state(other) is State.RUNNING


def test_a_refusal_is_tried_again(house: _House) -> None:
    """Throttled twice, then ended."""
    target = house.launch()
    house.aws.refuse(WEST, "TerminateInstances", "RequestLimitExceeded", 503, times=2)
    _sweep(house).until_none(house.pace, 0.0)
    assert house.state(target) is not State.RUNNING


def test_it_is_looked_for_as_long_as_a_launch_may_show_late(house: _House) -> None:
    """No instance at first is no proof."""
    began = house.clock.monotonic()
    _sweep(house).until_none(house.pace, 60.0)
    assert house.clock.monotonic() - began >= 60


def test_what_cannot_be_ended_is_told_with_the_command(house: _House) -> None:
    """And so is a region that cannot be seen."""
    target = house.launch()
    house.aws.refuse(WEST, "TerminateInstances", "UnauthorizedOperation", 403)
    house.aws.refuse(EAST, "DescribeInstances", "UnauthorizedOperation", 403)
    pace: Any = Pace(5.0, house.clock.monotonic, house.wait)
    with pytest.raises(Failed) as failed:
        _sweep(house).until_none(pace, 0.0)
    assert f"aws ec2 terminate-instances --region {WEST} --instance-ids {target.instance_id}" in str(failed.value)
    assert f"look for spotd:deployment={NAME} in {EAST}" in str(failed.value)
