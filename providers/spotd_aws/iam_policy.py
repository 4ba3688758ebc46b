"""The least policy, in IAM's sense, that the enabled features need (facts/cloud-api.md §2.6).

Where the daemon's own tag can be the condition, it is: the credentials then start, tag and end machines of this deployment only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spotd_aws.events import CANARY
from spotd_aws.tags import DEPLOYMENT, SELFTEST
from spotd_aws.wiring import queue_name

if TYPE_CHECKING:
    from spotd_aws.config import AwsConfig

_SPOT_ROLE = "aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
_SSM = "ssm:"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is to be allowed beside what the configuration enables."""

    buckets: tuple[str, ...] = ()
    #: Instance profiles that policies name, beside the configuration's.
    instance_profiles: tuple[str, ...] = ()
    setup: bool = False
    selftest: bool = False


def iam_policy(config: AwsConfig, deployment: str, wishes: Wishes) -> dict[str, Any]:
    """The policy's document."""
    writer = _Writer(config, deployment, wishes)
    statements = [*writer.prices(), *writer.launch(), *writer.queue(), *writer.bucket(), *writer.setup(), *writer.selftest()]
    return {"Version": "2012-10-17", "Statement": statements}


def _statement(sid: str, actions: Sequence[str], resources: Sequence[str] = ("*",), condition: dict[str, Any] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"Sid": sid, "Effect": "Allow", "Action": list(actions), "Resource": list(resources)}
    return found | ({"Condition": condition} if condition else {})


class _Writer:
    """One method for each feature."""

    def __init__(self, config: AwsConfig, deployment: str, wishes: Wishes) -> None:
        self._config = config
        self._wishes = wishes
        self._queue = queue_name(deployment)
        self._partition = _partition(config.regions)
        self._in_regions = {"StringEquals": {"aws:RequestedRegion": list(config.regions)}} if config.regions else None
        self._ours = {"StringEquals": {f"aws:ResourceTag/{DEPLOYMENT}": deployment}}
        self._labelled = {"StringEquals": {f"aws:RequestTag/{DEPLOYMENT}": deployment}}

    def _arn(self, service: str, rest: str, *, region: str = "*", account: str = "*") -> str:
        return f"arn:{self._partition}:{service}:{region}:{account}:{rest}"

    def _ec2(self, *kinds: str) -> list[str]:
        # Images and snapshots are other accounts', and their ARNs name none.
        return [self._arn("ec2", f"{kind}/*", account="" if kind in {"image", "snapshot"} else "*") for kind in kinds]

    def prices(self) -> Iterator[dict[str, Any]]:
        """Spot prices, places, types; on-demand prices; quotas; scores if pools are configured."""
        actions = ["SpotPriceHistory", "Regions", "AvailabilityZones", "InstanceTypes", "InstanceTypeOfferings"]
        yield _statement("Prices", [f"ec2:Describe{action}" for action in actions], condition=self._in_regions)
        yield _statement("OnDemandPrices", ["pricing:GetProducts"])
        quotas = ["servicequotas:GetServiceQuota", "servicequotas:ListServiceQuotas", "servicequotas:GetAWSDefaultServiceQuota"]
        yield _statement("Quotas", quotas, condition=self._in_regions)
        if self._config.score_pools:
            yield _statement("Scores", ["ec2:GetSpotPlacementScores"])

    def launch(self) -> Iterator[dict[str, Any]]:
        """Start, tag, see and end machines."""
        seen = ["Instances", "SpotInstanceRequests", "Images", "Subnets", "SecurityGroups", "Vpcs"]
        yield _statement("See", [f"ec2:Describe{action}" for action in seen], condition=self._in_regions)
        made = self._ec2("instance", "volume", "spot-instances-request")
        yield _statement("LaunchOurs", ["ec2:RunInstances"], made, _both(self._labelled, self._in_regions))
        used = self._ec2("image", "snapshot", "subnet", "network-interface", "security-group", "key-pair")
        yield _statement("LaunchWith", ["ec2:RunInstances"], used, self._in_regions)
        yield _statement("TagAtLaunch", ["ec2:CreateTags"], made, {"StringEquals": {"ec2:CreateAction": "RunInstances"}})
        yield _statement("EndOurs", ["ec2:TerminateInstances"], self._ec2("instance"), self._ours)
        yield _statement("SpotRole", ["iam:GetRole"], [self._arn("iam", f"role/{_SPOT_ROLE}", region="")])
        if names := self._parameters():
            # AWS's public parameters belong to no account.
            arns = [self._arn("ssm", f"parameter{name}", account="" if name.startswith("/aws/service/") else "*") for name in names]
            yield _statement("Images", ["ssm:GetParameter"], arns)
        if profiles := self._profiles():
            # A profile made in the console holds a role of its own name; others name theirs here.
            roles = [self._role(name) for name in profiles]
            yield _statement("GiveProfiles", ["iam:PassRole"], roles, {"StringEquals": {"iam:PassedToService": f"ec2.{self._host()}"}})

    def _parameters(self) -> list[str]:
        images = {self._config.place(region).image or "" for region in (*self._config.places, "")}
        return sorted(image.removeprefix(_SSM) for image in images if image.startswith(_SSM))

    def _profiles(self) -> list[str]:
        places = [self._config, *self._config.places.values()]
        return sorted({place.instance_profile for place in places if place.instance_profile} | set(self._wishes.instance_profiles))

    def _role(self, profile: str) -> str:
        if profile.startswith("arn:"):
            return profile.replace(":instance-profile/", ":role/", 1)
        return self._arn("iam", f"role/{profile}", region="")

    def _host(self) -> str:
        return "amazonaws.com.cn" if self._partition == "aws-cn" else "amazonaws.com"

    def queue(self) -> Iterator[dict[str, Any]]:
        """Read the warnings; let `spotd doctor aws` see how they come."""
        if not self._config.queue:
            return
        read = ["GetQueueUrl", "GetQueueAttributes", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility"]
        yield _statement("Warnings", [f"sqs:{action}" for action in read], [self._arn("sqs", self._queue)])
        yield _statement("SeeRules", ["events:DescribeRule", "events:ListTargetsByRule"], [self._arn("events", f"rule/{self._queue}-*")])

    def bucket(self) -> Iterator[dict[str, Any]]:
        """Checkpoints."""
        if self._wishes.buckets:
            buckets = [f"arn:{self._partition}:s3:::{name}" for name in self._wishes.buckets]
            yield _statement("Checkpoints", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], [f"{b}/*" for b in buckets])
            yield _statement("ListCheckpoints", ["s3:ListBucket"], buckets)

    def setup(self) -> Iterator[dict[str, Any]]:
        """For `spotd aws setup`, run once by somebody who may: the daemon needs none of it."""
        if not self._wishes.setup:
            return
        if self._config.queue:
            yield _statement("SetUpQueue", ["sqs:CreateQueue", "sqs:SetQueueAttributes", "sqs:TagQueue"], [self._arn("sqs", self._queue)])
            write = ["events:PutRule", "events:PutTargets", "events:TagResource"]
            yield _statement("SetUpRules", write, [self._arn("events", f"rule/{self._queue}-*")])
            bus = [self._arn("events", "event-bus/default")]
            yield _statement("SendCanary", ["events:PutEvents"], bus, {"StringEquals": {"events:source": CANARY}})
        group = self._ec2("security-group")
        yield _statement("SetUpGroup", ["ec2:CreateSecurityGroup"], group, self._labelled)
        yield _statement("SetUpGroupIn", ["ec2:CreateSecurityGroup"], self._ec2("vpc"))
        yield _statement("TagGroup", ["ec2:CreateTags"], group, {"StringEquals": {"ec2:CreateAction": "CreateSecurityGroup"}})
        yield _statement("CloseGroup", ["ec2:RevokeSecurityGroupIngress"], group, self._ours)
        role, service = self._arn("iam", f"role/{_SPOT_ROLE}", region=""), {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}}
        yield _statement("MakeSpotRole", ["iam:CreateServiceLinkedRole"], [role], service)

    def selftest(self) -> Iterator[dict[str, Any]]:
        """For the instances of `spotd selftest aws`, and for the reclaim that AWS FIS makes there by a role that may interrupt instances."""
        if not self._wishes.selftest:
            return
        actions = ["CreateExperimentTemplate", "DeleteExperimentTemplate", "StartExperiment", "StopExperiment", "GetExperiment", "TagResource"]
        kinds = [self._arn("fis", kind) for kind in ("experiment-template/*", "experiment/*", "action/aws:ec2:send-spot-instance-interruptions")]
        yield _statement("InterruptOurs", [f"fis:{action}" for action in actions], kinds)
        role = [self._arn("iam", f"role/{self._queue}-fis", region="")]
        yield _statement("GiveFisItsRole", ["iam:PassRole"], role, {"StringEquals": {"iam:PassedToService": f"fis.{self._host()}"}})
        # The self-test has deployments of its own.
        where, made = self._in_regions or {}, self._ec2("instance", "volume", "spot-instances-request")
        launched, ours = ({"StringLike": {f"aws:{kind}/{DEPLOYMENT}": f"{SELFTEST}*"}} for kind in ("RequestTag", "ResourceTag"))
        yield _statement("LaunchSelftest", ["ec2:RunInstances"], made, launched | where)
        yield _statement("EndSelftest", ["ec2:TerminateInstances"], self._ec2("instance"), ours)


def _partition(regions: Sequence[str]) -> str:
    first = regions[0] if regions else ""
    return {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get("us-gov" if first.startswith("us-gov-") else first.partition("-")[0], "aws")


def _both(one: dict[str, Any], other: dict[str, Any] | None) -> dict[str, Any]:
    """Two conditions of the same operator."""
    return {"StringEquals": one["StringEquals"] | (other or {}).get("StringEquals", {})}
