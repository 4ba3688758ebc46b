"""`spotd doctor aws`: each thing that is wrong is named, with its fix; and what is well is not."""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from spotd.testing import FakeClock
from spotd.testing.fake_aws import FakeAws
from spotd_aws import doctor
from spotd_aws.clients import Clients
from spotd_aws.config import read
from spotd_aws.doctor import diagnose, keys_of, reach
from spotd_aws.doctor_region import Errand, examine
from spotd_aws.findings import Finding, State
from spotd_aws.installation import Installation, Unusable, read_installation
from spotd_aws.setup import Orders, set_up
from spotd_aws.wiring import Account

WEST = "us-west-2"


class _House:
    """A host with a configuration, and an account in which everything is as it should be."""

    def __init__(self, aws: FakeAws, clients: Clients, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.aws = aws
        self.clients = clients
        self.file = folder / "spotd.toml"
        self.policies = folder / "policies"
        self.policies.mkdir()
        self._table: dict[str, str] = {}
        self.write()
        for name, value in aws.environment().items():
            monkeypatch.setenv(name, value)

    def write(self, aws: str = "", agent_api: str = 'listen = "0.0.0.0:7443"\nadvertise = "control.example.com:7443"', more: str = "") -> None:
        text = f'deployment = "lab"\npolicies_dir = "{self.policies}"\n{more}\n[agent_api]\n{agent_api}\n'
        text += f'[checkpoints]\nstore = "s3://ckpt/spotd"\n[providers.aws]\nendpoint_url = "{self.aws.endpoint}"\nregions = ["{WEST}"]\n{aws}\n'
        self.file.write_text(text)

    def installation(self) -> Installation:
        return read_installation(self.file)

    def findings(self, *regions: str, types: Sequence[str] = ()) -> list[Finding]:
        return list(diagnose(self.clients, self.installation(), regions, types, threading.Event()))

    def problems(self, *regions: str, types: Sequence[str] = ()) -> dict[str, Finding]:
        return {one.subject: one for one in self.findings(*regions, types=types) if not one.state.well}


@pytest.fixture(scope="module")
def account() -> Iterator[tuple[FakeAws, Clients]]:
    """An account that `spotd aws setup` was run on, and clients of it: making them is what takes time."""
    with FakeAws(regions=(WEST,)) as made, pytest.MonkeyPatch.context() as patch:
        for name, value in made.environment().items():
            patch.setenv(name, value)
        config = read({"endpoint_url": made.endpoint, "regions": [WEST]})
        clients = Clients(config)
        list(set_up(clients, config, "lab", (WEST,), Orders(canary=False), threading.Event()))
        yield made, clients
        clients.close()


@pytest.fixture
def house(account: tuple[FakeAws, Clients], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_House]:
    """A well-kept one. What a test refuses is allowed again behind it."""
    refused: list[tuple[str, str]] = []
    aws, clients = account
    refuse = aws.refuse

    def _refuse(region: str, action: str, *args: Any, **more: Any) -> None:
        refused.append((region, action))
        refuse(region, action, *args, **more)

    monkeypatch.setattr(aws, "refuse", _refuse)
    yield _House(aws, clients, tmp_path, monkeypatch)
    for region, action in refused:
        aws.allow(region, action)


def test_a_well_kept_account_has_no_findings(house: _House) -> None:
    """And each thing that was looked at is listed."""
    findings = house.findings()
    assert [one for one in findings if not one.state.well] == []
    assert {one.subject for one in findings} == {
        "agent_api.advertise", "agent_api.listen", "checkpoints.store", "clock", "credentials", "credentials last", "signing credentials",
        "spot service role", "region", "permission", "image", "subnet", "launch spot", "launch on-demand", "quota spot", "quota on-demand", "queue",
    }  # fmt: skip


def test_each_missing_permission_is_named_with_its_fix(house: _House) -> None:
    """By its name in IAM's words; each, and nothing that is permitted."""
    reads = ("DescribeSpotPriceHistory", "DescribeInstances", "DescribeSpotInstanceRequests")
    for action in (*reads, "RunInstances"):
        house.aws.refuse(WEST, action, "UnauthorizedOperation", 403)
    json_actions = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "servicequotas:GetServiceQuota")
    for action in json_actions:
        house.aws.refuse(WEST, action, "AccessDeniedException", 403)
    # IAM and the price list belong to no region.
    for action in ("iam:GetRole", "pricing:GetProducts"):
        house.aws.refuse("*", action, "AccessDeniedException", 403)
    wrong = [one for one in house.findings() if not one.state.well]
    named = {one.says.removesuffix(" is not permitted") for one in wrong if not one.subject.startswith("launch")}
    assert named == {*(f"ec2:{action}" for action in reads), *json_actions, "iam:GetRole", "pricing:GetProducts"}
    assert [one.subject for one in wrong if one.subject.startswith("launch")] == ["launch spot", "launch on-demand"]
    assert all("spotd aws iam-policy" in one.fix for one in wrong)


def test_whether_instances_may_be_ended_shows_one_of_ours(house: _House) -> None:
    """The right holds for instances with our tag only, so that nothing else can show it; and nothing is ended for that."""
    with FakeAws(regions=(WEST,)) as other:
        house.clients = Clients(read({"endpoint_url": other.endpoint, "regions": [WEST]}))
        assert "as soon as there is one" in next(one.says for one in house.findings() if one.subject == "permission")
        ec2 = house.clients.get("ec2", WEST)
        image = ec2.describe_images()["Images"][0]["ImageId"]
        tags = [{"ResourceType": "instance", "Tags": [{"Key": "spotd:deployment", "Value": "lab"}]}]
        made = ec2.run_instances(ImageId=image, InstanceType="g5.xlarge", MinCount=1, MaxCount=1, TagSpecifications=tags)
        name = made["Instances"][0]["InstanceId"]
        assert f"ending {name}" in next(one.says for one in house.findings() if one.subject == "permission")
        other.refuse(WEST, "TerminateInstances", "UnauthorizedOperation", 403)
        found = house.problems()["permission"]
        assert (found.says, found.state) == ("ec2:TerminateInstances is not permitted", State.PROBLEM)
        assert [one.ended_at for one in other.instances] == [None]
        house.clients.close()


def test_permissions_that_a_launch_is_prepared_with(house: _House) -> None:
    """Without image and network a launch cannot even be tried."""
    house.aws.refuse(WEST, "DescribeVpcs", "UnauthorizedOperation", 403)
    house.aws.refuse(WEST, "ssm:GetParameter", "AccessDeniedException", 403)
    problems = house.problems()
    assert "ec2:DescribeVpcs" in problems["subnet"].says
    assert "ssm:GetParameter" in problems["image"].says
    assert "launch spot" not in problems


def test_a_silent_service_is_unknown_not_missing(house: _House) -> None:
    """Throttled or out of order says nothing about rights."""
    house.aws.refuse(WEST, "DescribeSpotPriceHistory", "RequestLimitExceeded", 503)
    found = house.problems()["permission"]
    assert (found.state, found.where) == (State.UNKNOWN, WEST)
    assert "spotd aws iam-policy" not in found.fix


def test_an_advisors_file_that_is_none_is_named(house: _House, tmp_path: Path) -> None:
    """Where it is configured; a good one is well."""
    file = tmp_path / "advisor.json"
    house.write(aws=f'spot_advisor = "{file}"')
    assert "put the file there" in house.problems()["spot advisor"].says
    file.write_text(json.dumps({"ranges": [{"index": 0, "max": 5}], "spot_advisor": {WEST: {"Linux": {"g5.xlarge": {"s": 60, "r": 0}}}}}))
    assert "spot advisor" not in house.problems()


def test_a_zero_quota_is_named_for_the_types_in_use(house: _House) -> None:
    """Of those that policies name; others are nobody's business."""
    house.aws.set_quota(WEST, "L-3819A6DF", 0)
    house.aws.set_quota(WEST, "L-C4BD4855", 0)
    try:
        problems = house.problems()
        assert "L-3819A6DF" in problems["quota spot"].fix
        assert "L-C4BD4855" not in problems["quota spot"].fix
        assert "quota on-demand" not in problems
        (house.policies / "h100.yaml").write_text("candidates: [{provider: aws, instance_types: [p5.48xlarge], regions: [us-west-2]}]")
        assert "L-C4BD4855" in house.problems()["quota spot"].fix
        assert "L-3819A6DF" in house.problems(types=["g6.xlarge"])["quota spot"].fix
    finally:
        house.aws.set_quota(WEST, "L-3819A6DF", 4096)
        house.aws.set_quota(WEST, "L-C4BD4855", 4096)


def test_a_missing_image_is_named(house: _House) -> None:
    """By parameter or by id; the fix names the region's table."""
    for image in ("ssm:/no/such/image", "ami-0123456789abcdef0"):
        house.write(aws=f'image = "{image}"')
        found = house.problems()["image"]
        assert image.removeprefix("ssm:") in found.says
        assert f"[providers.aws.in.{WEST}]" in found.fix


def test_a_missing_subnet_is_named(house: _House) -> None:
    """One that is not there, and one that is in another zone than it is said to be."""
    house.write(aws=f'[providers.aws.in.{WEST}]\nsubnets = {{ "us-west-2a" = "subnet-0123456789abcdef0" }}')
    assert "subnet-0123456789abcdef0" in house.problems()["subnet"].says
    there = next(one for one in house.aws.world.network.subnets if one.zone == "us-west-2b")
    house.write(aws=f'[providers.aws.in.{WEST}]\nsubnets = {{ "us-west-2a" = "{there.id}" }}')
    assert f"{there.id} is in us-west-2b" in house.problems()["subnet"].says
    house.write(aws=f'[providers.aws.in.{WEST}]\nsubnets = {{ "us-west-2b" = "{there.id}" }}\nsecurity_groups = ["sg-0123456789abcdef0"]')
    problems = house.problems()
    assert "subnet" not in problems
    assert "sg-0123456789abcdef0" in problems["security group"].says


def test_what_a_launch_would_be_refused_for_is_named(house: _House) -> None:
    """The launch itself is rehearsed: an instance profile or a key pair that is not there shows only so."""
    house.write(aws='instance_profile = "nobody"')
    assert "nobody" in house.problems()["launch spot"].says
    house.write(aws='key_name = "nobodys"')
    assert "nobodys" in house.problems()["launch on-demand"].says
    assert house.aws.instances == []


def test_a_missing_service_role_for_spot_is_named(house: _House) -> None:
    """Facts §2.6: without it no spot instance starts. The fix is a command."""
    house.aws.refuse("*", "iam:GetRole", "NoSuchEntity", 404)
    house.aws.refuse(WEST, "RunInstances", "AuthFailure.ServiceLinkedRoleCreationNotPermitted", 403)
    problems = house.problems()
    for subject in ("spot service role", "launch spot"):
        assert problems[subject].fix == "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"


def test_a_delayed_queue_and_a_missing_rule_are_named(house: _House) -> None:
    """Everything that `spotd aws setup` would repair."""
    sqs, events = house.clients.get("sqs", WEST), house.clients.get("events", WEST)
    url = sqs.get_queue_url(QueueName="spotd-lab")["QueueUrl"]
    policy = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "90", "Policy": ""})
    events.remove_targets(Rule="spotd-lab-warnings", Ids=["spotd"])
    try:
        problems = house.problems()
        assert "DelaySeconds is 90, not 0" in problems["queue spotd-lab"].says
        assert "EventsToQueue" in problems["policy of queue spotd-lab"].says
        assert "does not send" in problems["rule spotd-lab-warnings"].says
        assert {one.fix for one in problems.values()} == {f"spotd aws setup --region {WEST}"}
    finally:
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "0", "Policy": policy})
        events.put_targets(Rule="spotd-lab-warnings", Targets=[{"Id": "spotd", "Arn": f"arn:aws:sqs:{WEST}:{house.aws.account}:spotd-lab"}])


def test_a_queue_that_is_missing_is_a_finding_unless_it_is_off(house: _House) -> None:
    """`queue = false` is somebody's decision."""
    text = house.file.read_text().replace('deployment = "lab"', 'deployment = "other"')
    house.file.write_text(text)
    assert house.problems()["queue spotd-other"].says == "missing"
    house.file.write_text(text.replace("[providers.aws]", "[providers.aws]\nqueue = false"))
    assert house.problems() == {}


def test_a_region_that_is_not_enabled_is_one_finding(house: _House) -> None:
    """Not one for every question that it does not answer; the others are looked at."""
    findings = [one for one in house.findings(WEST, "ap-east-1") if one.where == "ap-east-1"]
    [found] = findings
    assert (found.subject, found.state) == ("region", State.PROBLEM)
    assert "not enabled" in found.says


def test_a_region_that_does_not_answer_is_unknown(house: _House) -> None:
    """One finding, and no waiting for the rest of it."""
    with house.aws.break_region(WEST):
        found = [one for one in house.findings() if one.where == WEST]
    assert [(one.subject, one.state) for one in found] == [("region", State.UNKNOWN)]


def test_session_tokens_are_named(house: _House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signed addresses of checkpoints die with the session; credentials that are renewed by themselves are told apart."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a-token")
    problems = house.problems()
    assert problems["signing credentials"].state is State.PROBLEM
    assert "session" in problems["signing credentials"].says
    assert "a-token" not in repr(problems)


def test_no_credentials_at_all_cannot_run(house: _House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 and a sentence, never a trace."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert keys_of(None) is None
    arguments = argparse.Namespace(config=house.file, region=None, type=None, json=False)
    assert doctor.run(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("spotd: ")
    assert "credentials" in said
    assert "Traceback" not in said


def test_an_aws_out_of_reach_is_not_blamed_on_credentials(house: _House, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2; the fix is the network's."""
    house.file.write_text(house.file.read_text().replace(house.aws.endpoint, "http://127.0.0.1:1"))
    assert doctor.run(argparse.Namespace(config=house.file, region=None, type=None, json=False)) == 2
    said = capsys.readouterr().err
    assert "did not answer (EndpointConnectionError): see that this host reaches AWS" in said
    assert "AWS_PROFILE" not in said


def test_a_wrong_clock_is_named(house: _House) -> None:
    """By the date of AWS's answer; also where AWS refuses because of it."""
    with FakeAws(FakeClock(), regions=(WEST,)) as past:
        house.clients = Clients(read({"endpoint_url": past.endpoint, "regions": [WEST]}))
        found = house.problems()["clock"]
        assert "ahead of AWS's" in found.says
        past.refuse("*", "sts:GetCallerIdentity", "SignatureDoesNotMatch", 403, message="Signature expired")
        with pytest.raises(Unusable, match="clock"):
            house.findings()
        house.clients.close()


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ("", {"agent_api.advertise", "agent_api.listen"}),
        ('listen = "0.0.0.0:7443"', {"agent_api.advertise"}),
        ('listen = "0.0.0.0:7443"\nadvertise = "127.0.0.1:7443"', {"agent_api.advertise"}),
        ('listen = "0.0.0.0:7443"\nadvertise = "localhost:7443"', {"agent_api.advertise"}),
        ('listen = "0.0.0.0:7443"\nadvertise = "[::1]:7443"', {"agent_api.advertise"}),
        ('listen = "0.0.0.0:7443"\nadvertise = "0.0.0.0:7443"', {"agent_api.advertise"}),
        ('listen = "0.0.0.0:0"\nadvertise = "control.example.com:7443"', {"agent_api.listen"}),
        ('listen = "127.0.0.1:7443"\nadvertise = "control.example.com:7443"', set()),
        ('listen = "[::]:7443"\nadvertise = "[2001:db8::1]:7443"', set()),
    ],
)
def test_whether_instances_can_call_the_daemon(house: _House, settings: str, wrong: set[str]) -> None:
    """A loopback address leads every instance to itself; a port that changes cannot be let through a firewall."""
    house.write(agent_api=settings)
    assert {one.subject for one in reach(house.installation()) if not one.state.well} == wrong


def test_the_report_is_a_table_or_json(house: _House, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 0 when all is well, 1 with findings; each fix once, with the places it mends."""
    arguments = argparse.Namespace(config=house.file, region=None, type=None, json=False)
    assert doctor.run(arguments) == 0
    assert "All is well." in capsys.readouterr().out
    house.write(agent_api="")
    assert doctor.run(arguments) == 1
    said = capsys.readouterr().out
    assert "agent_api.advertise" in said
    assert "2 to look at" in said
    arguments.json = True
    assert doctor.run(arguments) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["well"] is False
    assert {"where", "subject", "state", "says", "fix"} == set(document["findings"][0])


def test_ctrl_c_leaves_at_once_with_what_was_found(house: _House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The regions are not asked to their end; and nothing is called well."""
    asked: list[str] = []

    def _interrupted(clients: Clients, installation: Installation, regions: Sequence[str], types: Sequence[str], stop: threading.Event) -> Any:
        yield Finding("host", "clock", State.OK)
        stop.set()
        asked.extend(one.subject for one in examine(clients, Errand(installation.aws, "lab", Account("1"), ("g5.xlarge",)), WEST, stop))
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "diagnose", _interrupted)
    arguments = argparse.Namespace(config=house.file, region=None, type=None, json=False)
    assert doctor.run(arguments) == 130
    said = capsys.readouterr()
    assert asked == []
    assert "clock" in said.out
    assert "All is well" not in said.out
    assert "interrupted" in said.err


def test_the_parser_has_its_examples() -> None:
    """Help with an example, like every verb."""
    parser = argparse.ArgumentParser()
    doctor.add_options(parser)
    assert "spotd doctor aws --config" in parser.format_help()
