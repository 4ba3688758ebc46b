"""The least policy: what each feature needs, and nothing for a feature that is off."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spotd_aws.config import read
from spotd_aws.iam_policy import Wishes, iam_policy

NOTHING = Wishes()


def _policy(table: dict[str, Any] | None = None, wishes: Wishes = NOTHING, deployment: str = "lab") -> dict[str, dict[str, Any]]:
    document = iam_policy(read(table or {}), deployment, wishes)
    assert document["Version"] == "2012-10-17"
    statements = {row["Sid"]: row for row in document["Statement"]}
    assert len(statements) == len(document["Statement"])
    assert len(json.dumps(document, separators=(",", ":"))) < 6144, "what a managed policy may have"
    return statements


def _actions(statements: dict[str, dict[str, Any]]) -> set[str]:
    return {action for row in statements.values() for action in row["Action"]}


def test_machines_are_started_and_ended_by_their_tag_only() -> None:
    """Credentials of one deployment end no other's machines, and cannot tag what they did not launch."""
    statements = _policy()
    assert statements["EndOurs"]["Condition"] == {"StringEquals": {"aws:ResourceTag/spotd:deployment": "lab"}}
    assert statements["EndOurs"]["Resource"] == ["arn:aws:ec2:*:*:instance/*"]
    launch = statements["LaunchOurs"]
    assert launch["Condition"] == {"StringEquals": {"aws:RequestTag/spotd:deployment": "lab"}}
    assert {one.rpartition(":")[2] for one in launch["Resource"]} == {"instance/*", "volume/*", "spot-instances-request/*"}
    assert statements["TagAtLaunch"]["Condition"] == {"StringEquals": {"ec2:CreateAction": "RunInstances"}}
    assert "*" not in statements["LaunchWith"]["Resource"]


def test_nothing_is_granted_for_what_is_off() -> None:
    """No queue, no scores, no bucket, no profile, no set-up, no self-test: no rights for them."""
    actions = _actions(_policy({"queue": False}))
    services = {action.partition(":")[0] for action in actions}
    assert services == {"ec2", "iam", "pricing", "servicequotas", "ssm"}
    assert not actions & {"ec2:GetSpotPlacementScores", "iam:PassRole", "iam:CreateServiceLinkedRole", "ec2:CreateSecurityGroup"}


def test_each_feature_adds_its_own() -> None:
    """Scores, the queue, buckets, set-up, self-test."""
    assert "ec2:GetSpotPlacementScores" in _actions(_policy({"score_pools": [["g5.xlarge", "g6.xlarge", "g4dn.xlarge"]]}))
    queue = _policy()["Warnings"]
    assert queue["Resource"] == ["arn:aws:sqs:*:*:spotd-lab"]
    assert {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"} < set(queue["Action"])
    bucket = _policy(wishes=Wishes(buckets=("ckpt",)))
    assert bucket["Checkpoints"]["Resource"] == ["arn:aws:s3:::ckpt/*"]
    assert bucket["Checkpoints"]["Action"] == ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], "what the store calls, and no more"
    assert bucket["ListCheckpoints"]["Resource"] == ["arn:aws:s3:::ckpt"]
    setup = _policy(wishes=Wishes(setup=True))
    assert {"sqs:CreateQueue", "events:PutRule", "events:PutEvents", "ec2:CreateSecurityGroup"} < _actions(setup)
    assert setup["SendCanary"]["Condition"] == {"StringEquals": {"events:source": "spotd.canary"}}
    assert setup["SetUpRules"]["Resource"] == ["arn:aws:events:*:*:rule/spotd-lab-*"]
    mute = _actions(_policy({"queue": False}, Wishes(setup=True)))
    assert "ec2:CreateSecurityGroup" in mute
    assert not [action for action in mute if action.startswith(("sqs:", "events:"))], "no queue is made where none is read"
    assert "fis:StartExperiment" in _actions(_policy(wishes=Wishes(selftest=True)))


def test_a_selftest_has_deployments_of_its_own() -> None:
    """Its instances are started and ended by their own tag: the daemon's is not theirs."""
    statements = _policy({"regions": ["us-west-2"]}, Wishes(selftest=True))
    launch = statements["LaunchSelftest"]["Condition"]
    assert launch["StringLike"] == {"aws:RequestTag/spotd:deployment": "selftest-*"}
    assert launch["StringEquals"] == {"aws:RequestedRegion": ["us-west-2"]}
    assert statements["EndSelftest"]["Condition"] == {"StringLike": {"aws:ResourceTag/spotd:deployment": "selftest-*"}}
    assert "LaunchSelftest" not in _policy()


@pytest.mark.parametrize("table", [{"instance_profile": "trainer"}, {"in": {"us-west-2": {"instance_profile": "trainer"}}}])
def test_a_role_is_passed_only_where_a_profile_is_named(table: dict[str, Any]) -> None:
    """By the configuration, or by a policy file; and to EC2 only."""
    for statements in (_policy(table), _policy(wishes=Wishes(instance_profiles=("trainer",)))):
        given = statements["GiveProfiles"]
        assert given["Resource"] == ["arn:aws:iam::*:role/trainer"]
        assert given["Condition"] == {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}


def test_a_profile_named_by_its_arn_passes_the_role_of_its_name() -> None:
    """The ARN of a profile is not that of a role."""
    statements = _policy({"instance_profile": "arn:aws:iam::123456789012:instance-profile/path/trainer"})
    assert statements["GiveProfiles"]["Resource"] == ["arn:aws:iam::123456789012:role/path/trainer"]


def test_configured_regions_are_the_only_ones() -> None:
    """A policy for two regions is of no use in a third."""
    statements = _policy({"regions": ["us-west-2", "eu-west-1"]})
    where = {"aws:RequestedRegion": ["us-west-2", "eu-west-1"]}
    assert statements["Prices"]["Condition"]["StringEquals"] == where
    assert where.items() <= statements["LaunchOurs"]["Condition"]["StringEquals"].items()


def test_images_by_parameter_are_named() -> None:
    """Public parameters belong to no account; an image by its id needs no parameter."""
    [arn] = _policy()["Images"]["Resource"]
    assert arn.startswith("arn:aws:ssm:*::parameter/aws/service/deeplearning/")
    assert _policy({"image": "ssm:/our/image"})["Images"]["Resource"] == ["arn:aws:ssm:*:*:parameter/our/image"]
    assert "Images" not in _policy({"image": "ami-0123456789abcdef0"})


@pytest.mark.parametrize(("region", "partition"), [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov"), ("us-west-2", "aws")])
def test_partitions(region: str, partition: str) -> None:
    """ARNs of China and of GovCloud begin otherwise."""
    statements = _policy({"regions": [region], "instance_profile": "trainer"}, Wishes(buckets=("b",), setup=True, selftest=True))
    for row in statements.values():
        assert all(one == "*" or one.startswith(f"arn:{partition}:") for one in row["Resource"])
