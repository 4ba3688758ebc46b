"""What a launch asks EC2 for, and what it makes of what EC2 says: against EC2 over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from spotd.core.errors import (
    InvalidRequest,
    Misconfigured,
    NoCapacity,
    NotAuthorized,
    PriceTooHigh,
    ProviderUnavailable,
    QuotaExceeded,
    Scope,
    Throttled,
)
from spotd.core.instance import LaunchRequest
from spotd.core.offer import Market, OfferKey
from spotd.ports import Launched, Refused, Unknown
from spotd.testing import FakeClock
from spotd.testing.fake_aws import FakeAws, FakeInstance, Lags, Pool, State
from spotd_aws.clients import Clients
from spotd_aws.config import read
from spotd_aws.launch import Launcher
from spotd_aws.tags import fingerprint

WEST, EAST = "us-west-2", "us-east-1"
KIND = "g5.xlarge"
SCRIPT = "#!/bin/bash\n# credential-that-nobody-may-see\n"
SPOT = OfferKey("aws", WEST, f"{WEST}a", KIND, Market.SPOT)
ON_DEMAND = replace(SPOT, market=Market.ON_DEMAND)


class _Account:
    """An account and launchers on it."""

    def __init__(self, aws: FakeAws) -> None:
        self.aws = aws
        assert isinstance(aws.clock, FakeClock)
        self.clock = aws.clock
        self.clients = Clients(read({"endpoint_url": aws.endpoint}))
        self.ec2 = self.clients.get("ec2", WEST)
        self._count = 0

    def launcher(self, **table: Any) -> Launcher:
        """One that remembers nothing yet, as after a restart."""
        return Launcher(self.clients, read(table), "lab", self.clock.now)

    def request(self, offer: OfferKey = SPOT, **changes: Any) -> LaunchRequest:
        self._count += 1
        expires = datetime(2026, 12, 8, tzinfo=UTC)
        return LaunchRequest(f"try-{self._count:04}", "lab", "job-1", "llama", 2, 0, offer, None, expires, **changes)

    def made_by(self, request: LaunchRequest) -> list[FakeInstance]:
        return [instance for instance in self.aws.instances if instance.client_token == request.token]

    def the(self, request: LaunchRequest) -> FakeInstance:
        (made,) = self.made_by(request)
        return made

    def pass_time(self, seconds: float) -> None:
        self.clock.step(seconds)
        self.aws.tick()


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Account]:
    """An empty account with two regions."""
    with FakeAws(FakeClock(), (WEST, EAST), lags=Lags(boot_s=5, shutdown_s=5)) as aws:
        for name, value in aws.environment().items():
            monkeypatch.setenv(name, value)
        account = _Account(aws)
        yield account
        account.clients.close()


def test_a_spot_machine_is_what_was_asked_for(account: _Account) -> None:
    """Everything that keeps a machine from leaking or lying open stands in the one call (facts/cloud-api.md §2.1)."""
    wanted = account.request(labels={"project": "legal", "spotd:job": "not-mine-to-say"}, disk_gb=300)
    launched = account.launcher().launch(wanted, SCRIPT)
    made = account.the(wanted)
    assert launched.provider_id == made.instance_id
    assert (made.lifecycle, made.zone, made.instance_type, made.shutdown_behavior) == (Market.SPOT, SPOT.zone, KIND, "terminate")
    assert made.metadata_options["HttpTokens"] == "required"
    assert made.metadata_options["HttpPutResponseHopLimit"] == "2"
    (root,) = made.volumes
    assert (root.device, root.gb, root.kind, root.delete_on_termination) == (made.root_device, 300, "gp3", True)
    assert made.max_price is None
    assert made.instance_profile_arn is None
    assert made.key_name is None
    assert made.user_data.decode().endswith(SCRIPT.partition("\n")[2])
    assert made.tags == root.tags
    assert made.tags == {
        "Name": "spotd llama 2",
        "project": "legal",
        "spotd:deployment": "lab",
        "spotd:job": "job-1",
        "spotd:job-name": "llama",
        "spotd:attempt": "2",
        "spotd:rank": "0",
        "spotd:token": wanted.token,
        "spotd:expires": "2026-12-08T00:00:00+00:00",
        "spotd:request": fingerprint(wanted),
    }
    (row,) = account.ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    assert row["Type"] == "one-time"
    assert {tag["Key"]: tag["Value"] for tag in row["Tags"]} == made.tags


def test_what_it_was_resolved_to_is_told(account: _Account) -> None:
    """For `spotd show`: image, network and disk as they really are."""
    wanted = account.request()
    details = account.launcher().launch(wanted, SCRIPT).details
    made = account.the(wanted)
    assert details["image"] == made.image_id
    assert details["subnet"] == made.subnet_id
    assert details["vpc"] == made.vpc_id
    assert details["security groups"] == " ".join(made.security_groups)
    assert details["disk"] == f"{made.volumes[0].gb} GB gp3"


def test_an_on_demand_machine_has_no_spot_request(account: _Account) -> None:
    """And no tags for one, which EC2 would refuse."""
    wanted = account.request(ON_DEMAND)
    account.launcher().launch(wanted, SCRIPT)
    assert account.the(wanted).spot_request_id is None


def test_a_limit_is_passed_on_in_plain_digits(account: _Account) -> None:
    """EC2 does not read powers of ten."""
    wanted = account.request()
    wanted = replace(wanted, max_price_usd_per_hour=Decimal("1E+1"))
    account.launcher().launch(wanted, SCRIPT)
    assert account.the(wanted).max_price == "10"


@pytest.mark.parametrize(
    ("asked", "configured", "gb"), [(None, {}, None), (None, {"root_disk": "250GB"}, 250), (9, {}, None), (500, {"root_disk": "250GB"}, 500)]
)
def test_the_root_disk_holds_at_least_its_image(account: _Account, asked: int | None, configured: dict[str, str], gb: int | None) -> None:
    """The job's size before the configured one, and never less than the image needs; always gone with its machine."""
    wanted = account.request(disk_gb=asked)
    account.launcher(**configured).launch(wanted, SCRIPT)
    made = account.the(wanted)
    least = account.ec2.describe_images(ImageIds=[made.image_id])["Images"][0]["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"]
    (root,) = made.volumes
    assert (root.gb, root.kind, root.delete_on_termination) == (gb or least, "gp3", True)


def test_the_disks_of_an_image_end_with_its_machine(account: _Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that was taken of a machine with a second disk would leave one behind each time, to be paid for."""
    config = read({"endpoint_url": account.aws.endpoint})
    clients = Clients(config)
    ec2 = clients.get("ec2", WEST)
    ask = ec2.describe_images

    def with_more(**parameters: Any) -> Any:
        answer = ask(**parameters)
        answer["Images"][0]["BlockDeviceMappings"] += [
            {"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 50, "DeleteOnTermination": False}},
            {"DeviceName": "/dev/sdb", "VirtualName": "ephemeral0"},
        ]
        return answer

    monkeypatch.setattr(ec2, "describe_images", with_more)
    wanted = account.request()
    launched = Launcher(clients, config, "lab", account.clock.now).launch(wanted, SCRIPT)
    disks = account.the(wanted).volumes
    assert [(disk.device, disk.delete_on_termination) for disk in disks] == [(disks[0].device, True), ("/dev/sdf", True)]
    assert launched.details["disk"] == f"{disks[0].gb} GB gp3"


def test_a_region_has_its_own_configuration(account: _Account) -> None:
    """Its subnets, groups and key; a public address refused on the interface, where alone that can be said."""
    subnets = {row["AvailabilityZone"]: row["SubnetId"] for row in account.ec2.describe_subnets()["Subnets"]}
    group = account.ec2.create_security_group(GroupName="mine", Description="mine", VpcId=account.aws.world.network.vpcs[WEST])["GroupId"]
    there = {"subnets": {SPOT.zone: subnets[SPOT.zone]}, "security_groups": [group], "public_address": False}
    wanted = account.request()
    account.launcher(**{"in": {WEST: there}}).launch(wanted, SCRIPT)
    made = account.the(wanted)
    assert (made.subnet_id, made.security_groups, made.public_address) == (subnets[SPOT.zone], (group,), None)


def test_the_group_that_setup_made_is_used(account: _Account) -> None:
    """It lets nothing in; the default group is for accounts without it."""
    launcher, before = account.launcher(), account.request()
    launcher.launch(before, SCRIPT)
    group = account.ec2.create_security_group(GroupName="spotd-lab", Description="made", VpcId=account.aws.world.network.vpcs[WEST])["GroupId"]
    after = account.request()
    account.launcher().launch(after, SCRIPT)
    assert group not in account.the(before).security_groups
    assert account.the(after).security_groups == (group,)


@pytest.mark.parametrize(
    "there",
    [
        {"subnets": {f"{WEST}a": "subnet-0123456789abcdef0"}},
        {"image": "ami-0123456789abcdef0"},
        {"image": "ssm:/no/such/parameter"},
        {"security_groups": ["sg-0123456789abcdef0"]},
        {"instance_profile": "no-such-profile"},
        {"key_name": "no-such-key"},
    ],
)
def test_what_is_wrong_in_one_region_fails_no_job(account: _Account, there: dict[str, Any]) -> None:
    """It is ops' to mend, and is said where it is; another region takes the job meanwhile."""
    launcher = account.launcher(**{"in": {WEST: there}})
    with pytest.raises(Misconfigured, match=WEST) as refused:
        launcher.launch(account.request(), SCRIPT)
    assert refused.value.scope is Scope.REGION
    east = replace(SPOT, region=EAST, zone=f"{EAST}a")
    assert launcher.launch(account.request(east), SCRIPT).provider_id


def test_the_policys_profile_comes_before_the_configured_one(account: _Account) -> None:
    """Default none: spotd itself needs no credentials there."""
    iam = account.clients.get("iam", EAST)
    for name in ("theirs", "ours"):
        iam.create_instance_profile(InstanceProfileName=name)
    wanted = account.request(instance_profile="theirs")
    account.launcher(instance_profile="ours").launch(wanted, SCRIPT)
    assert str(account.the(wanted).instance_profile_arn).endswith("/theirs")


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("InsufficientInstanceCapacity", 500, NoCapacity),
        ("Unsupported", 400, NoCapacity),
        ("MaxSpotInstanceCountExceeded", 400, QuotaExceeded),
        ("RequestLimitExceeded", 503, Throttled),
        ("UnauthorizedOperation", 403, NotAuthorized),
        ("InternalError", 500, ProviderUnavailable),
        ("SomethingNew", 400, ProviderUnavailable),
    ],
)
def test_a_refusal_is_said_in_the_loops_words(account: _Account, code: str, status: int, error: type[Exception]) -> None:
    """One call each: botocore would repeat an HTTP 500 by itself, and nothing of the script is quoted."""
    account.aws.refuse(WEST, "RunInstances", code, status, times=1, message="a sentence of AWS")
    launcher, wanted = account.launcher(), account.request()
    with pytest.raises(error) as refused:
        launcher.launch(wanted, SCRIPT)
    assert "nobody-may-see" not in repr(refused.value) + str(refused.value.__cause__)
    assert account.made_by(wanted) == []
    assert launcher.launch(wanted, SCRIPT).provider_id


def test_a_price_too_low_without_a_limit_of_ours_is_no_capacity(account: _Account) -> None:
    """EC2 then compares with its own limit, the on-demand price: there is none to be had (facts/error_classes.json)."""
    account.aws.refuse(WEST, "RunInstances", "SpotMaxPriceTooLow", times=2)
    launcher, wanted = account.launcher(), account.request()
    with pytest.raises(NoCapacity):
        launcher.launch(wanted, SCRIPT)
    with pytest.raises(PriceTooHigh):
        launcher.launch(replace(wanted, max_price_usd_per_hour=Decimal("0.01")), SCRIPT)


def test_a_lost_answer_is_found_by_its_token(account: _Account) -> None:
    """The outcome is unknown until somebody looks; the identical call gets the same machine."""
    launcher, wanted = account.launcher(), account.request()
    account.aws.lose_answer(WEST, "RunInstances")
    with pytest.raises(ProviderUnavailable):
        launcher.launch(wanted, SCRIPT)
    found = account.launcher().outcome(wanted)
    assert isinstance(found, Launched)
    assert found.provider_id == account.the(wanted).instance_id
    assert found.launched_at is None
    assert launcher.launch(wanted, SCRIPT).provider_id == found.provider_id


def test_an_image_that_moved_on_is_the_same_request(account: _Account) -> None:
    """An SSM parameter changes with each release: what EC2 calls another request is looked up, and is ours by its fingerprint."""
    wanted = account.request()
    account.aws.lose_answer(WEST, "RunInstances")
    with pytest.raises(ProviderUnavailable):
        account.launcher().launch(wanted, SCRIPT)
    again = account.launcher(root_disk="400GB").launch(wanted, SCRIPT)
    assert again.provider_id == account.the(wanted).instance_id


def test_an_earlier_machine_that_is_not_described_yet_fails_no_job(account: _Account) -> None:
    """Descriptions lag. After a restart nothing says whose the token is; the loop goes on asking, and finds it."""
    account.aws.world.fleet.lags = Lags(visible_s=30)
    wanted = account.request()
    account.launcher().launch(wanted, SCRIPT)
    restarted = account.launcher(root_disk="400GB")
    with pytest.raises(NoCapacity, match="does not show") as refused:
        restarted.launch(wanted, SCRIPT)
    assert refused.value.code == "IdempotentParameterMismatch"
    account.pass_time(60)
    assert isinstance(restarted.outcome(wanted), Launched)
    assert len(account.made_by(wanted)) == 1


def test_another_request_with_the_same_token_is_wrong(account: _Account) -> None:
    """A token stands for one request: also when the other one's machine can be seen."""
    wanted = account.request()
    account.launcher().launch(wanted, SCRIPT)
    other = replace(wanted, job_name="mistral")
    with pytest.raises(InvalidRequest):
        account.launcher().launch(other, SCRIPT)
    assert isinstance(account.launcher().outcome(other), Unknown)


def test_a_dead_machine_is_still_the_one_of_its_request(account: _Account) -> None:
    """With its tags, without them, and when nothing is left of it: no second one is made, and no job fails."""
    launcher, wanted = account.launcher(), account.request()
    first = launcher.launch(wanted, SCRIPT).provider_id
    account.pass_time(60)
    launcher.terminate(WEST, first)
    account.pass_time(60)
    assert account.the(wanted).state is State.TERMINATED
    assert launcher.launch(wanted, SCRIPT).provider_id == first
    account.pass_time(account.aws.world.fleet.lags.tags_kept_s)
    assert launcher.launch(wanted, SCRIPT).provider_id == first
    account.pass_time(account.aws.world.fleet.lags.rows_kept_s)
    assert isinstance(launcher.outcome(wanted), Unknown)
    with pytest.raises(NoCapacity) as refused:
        launcher.launch(wanted, SCRIPT)
    assert refused.value.code == "IdempotentInstanceTerminated"
    assert len(account.made_by(wanted)) == 1


def test_a_launch_that_failed_while_it_started_is_a_refusal(account: _Account) -> None:
    """Accepted, and then there was no capacity: `outcome` says so."""
    launcher, wanted = account.launcher(), account.request()
    account.aws.fail_launches(Pool(WEST, SPOT.zone, KIND, Market.SPOT), "Server.InsufficientInstanceCapacity")
    launcher.launch(wanted, SCRIPT)
    account.pass_time(60)
    outcome = launcher.outcome(wanted)
    assert isinstance(outcome, Refused)
    assert isinstance(outcome.error, NoCapacity)


def test_one_that_never_ran_has_no_time_to_bill_from(account: _Account) -> None:
    """Pending is free, also where it was all there was (facts/reclaim.md §1.11)."""
    account.aws.fail_launches(Pool(WEST, SPOT.zone, KIND, Market.SPOT), "Server.InternalError")
    launcher, wanted = account.launcher(), account.request()
    assert launcher.launch(wanted, SCRIPT).launched_at is None
    account.pass_time(5)
    outcome = launcher.outcome(wanted)
    assert isinstance(outcome, Launched)
    assert outcome.launched_at is None


def test_an_image_is_looked_up_once_a_day(account: _Account) -> None:
    """Launches in a hurry need no other calls; a day later the parameter may have moved on."""
    launcher = account.launcher()
    launcher.launch(account.request(), SCRIPT)
    account.aws.refuse(WEST, "DescribeImages", "UnauthorizedOperation", 403)
    launcher.launch(account.request(), SCRIPT)
    account.pass_time(timedelta(days=1).total_seconds())
    with pytest.raises(NotAuthorized, match="DescribeImages"):
        launcher.launch(account.request(), SCRIPT)


def test_after_a_refusal_everything_is_looked_up_again(account: _Account) -> None:
    """An image that was withdrawn is not asked for all day."""
    launcher = account.launcher()
    launcher.launch(account.request(), SCRIPT)
    account.aws.refuse(WEST, "RunInstances", "InvalidAMIID.NotFound", times=1)
    with pytest.raises(Misconfigured):
        launcher.launch(account.request(), SCRIPT)
    account.aws.refuse(WEST, "DescribeImages", "RequestLimitExceeded", 503)
    with pytest.raises(Throttled):
        launcher.launch(account.request(), SCRIPT)


def test_a_token_that_ec2_would_not_take_is_refused_before(account: _Account) -> None:
    """More than 64 characters, or others than ASCII."""
    for token in ("x" * 65, "naïve"):
        with pytest.raises(InvalidRequest):
            account.launcher().launch(replace(account.request(), token=token), SCRIPT)


def test_ending_what_is_not_there_is_success(account: _Account) -> None:
    """And a refusal is not."""
    launcher = account.launcher()
    launcher.terminate(WEST, "i-0123456789abcdef0")
    account.aws.refuse(WEST, "TerminateInstances", "OperationNotPermitted", times=1, message="The instance may not be terminated.")
    with pytest.raises(NotAuthorized):
        launcher.terminate(WEST, "i-0123456789abcdef0")


def test_a_rehearsal_launches_nothing(account: _Account) -> None:
    """What the doctor asks: rights and parameters are checked, and nothing is bought."""
    launcher = account.launcher()
    launcher.rehearse(account.request())
    account.aws.refuse(WEST, "RunInstances", "UnauthorizedOperation", 403, times=1)
    with pytest.raises(NotAuthorized):
        launcher.rehearse(account.request())
    assert account.aws.instances == []


def test_an_answer_that_lacks_what_it_must_have_is_unknown(account: _Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a KeyError: the machine may be there."""
    monkeypatch.setattr(account.ec2, "run_instances", lambda **_: json.loads('{"Instances": [{}]}'))
    with pytest.raises(ProviderUnavailable):
        account.launcher().launch(account.request(), SCRIPT)
