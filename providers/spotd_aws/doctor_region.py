"""What `spotd doctor aws` looks at in one region: rights, image, network, launches tried dry, quotas, the queue and its rules."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from spotd.core.errors import InvalidRequest, Misconfigured, NoCapacity, NotAuthorized, ProviderError, QuotaExceeded
from spotd.core.instance import LaunchRequest
from spotd.core.offer import Market, OfferKey
from spotd_aws.config import AwsConfig, Place
from spotd_aws.errors import NOT_FOUND, reads
from spotd_aws.findings import DISABLED, Finding, Notes, State
from spotd_aws.images import Images
from spotd_aws.launch import WOULD_SUCCEED, Launcher
from spotd_aws.machines import machines
from spotd_aws.offerings import Offerings
from spotd_aws.queue import NO_QUEUE
from spotd_aws.quotas import Quotas
from spotd_aws.setup import default_vpc, observe
from spotd_aws.tags import DEPLOYMENT
from spotd_aws.wiring import Account, Fate, Found, Wanted, plan, wanted

if TYPE_CHECKING:
    from spotd_aws.clients import Clients

#: What the daemon reads in EC2, each asked without being made.
_READS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("DescribeSpotPriceHistory", {}),
    ("DescribeInstanceTypes", {}),
    ("DescribeInstanceTypeOfferings", {}),
    ("DescribeInstances", {}),
    ("DescribeSpotInstanceRequests", {}),
    ("DescribeImages", {"Owners": ["self"]}),
    ("DescribeSubnets", {}),
    ("DescribeSecurityGroups", {}),
)


@dataclass(frozen=True, slots=True)
class Errand:
    """What is to be examined."""

    config: AwsConfig
    deployment: str
    account: Account
    #: Types in use; the first that the region sells is launched, dry.
    instance_types: Sequence[str]


def examine(clients: Clients, errand: Errand, region: str, stop: threading.Event) -> list[Finding]:
    """Everything about one region; once `stop` is set, what was found until then."""
    examiner = _Examiner(clients, errand, region, stop)
    if not stop.is_set() and examiner.enabled():
        examiner.look()
    return examiner.notes.findings


@dataclass(frozen=True, slots=True)
class _Sold:
    instance_type: str
    zone: str


class _Examiner:
    """One region."""

    def __init__(self, clients: Clients, errand: Errand, region: str, stop: threading.Event) -> None:
        self._stop = stop
        self._clients = clients
        self._errand = errand
        self._region = region
        self._place: Place = errand.config.place(region)
        self._zones: list[str] = []
        self.notes = Notes(region)

    def _ec2(self) -> Any:
        return self._clients.get("ec2", self._region)

    def enabled(self) -> bool:
        """Whether the region answers to this account at all."""
        try:
            with reads("looking at the region", self._region):
                rows = self._ec2().describe_availability_zones().get("AvailabilityZones") or []
        except ProviderError as error:
            if error.code in DISABLED:
                fix = "enable it for the account (Account > AWS Regions), or leave it out of `regions`"
                self.notes.add("region", State.PROBLEM, "not enabled for this account", fix)
                return False
            self.notes.failed("region", "ec2:DescribeAvailabilityZones", error)
            return isinstance(error, NotAuthorized)
        kinds = ("availability-zone", None)
        self._zones = [str(row["ZoneName"]) for row in rows if row.get("ZoneName") and row.get("ZoneType") in kinds]
        self.notes.add("region", State.OK, f"enabled, {len(self._zones)} zones")
        return True

    def look(self) -> None:
        """In the order in which a launch would stumble."""
        for part in (self._rights, self._launches, self._quotas, self._queue):
            if not self._stop.is_set():
                part()

    def _launches(self) -> None:
        image, subnet, groups, sold = self._image(), self._subnets(), self._groups(), self._sold()
        if image and subnet and groups and sold is not None:
            for market in Market:
                self._launch(OfferKey("aws", self._region, sold.zone, sold.instance_type, market))

    def _rights(self) -> None:
        actions = [*_READS]
        if self._errand.config.score_pools:
            pool = list(self._errand.config.score_pools[0])
            actions.append(("GetSpotPlacementScores", {"InstanceTypes": pool, "TargetCapacity": 1, "RegionNames": [self._region]}))
        well = True
        for action, parameters in actions:
            if self._stop.is_set():
                return
            method = re.sub(r"(?<!^)(?=[A-Z])", "_", action).lower()
            refusal = self._dry(partial(getattr(self._ec2(), method), DryRun=True, **parameters), f"checking ec2:{action}")
            if refusal is not None:
                self.notes.failed("permission", f"ec2:{action}", refusal)
                well = False
        if well:
            ending = self._ending()
            if ending is not None:
                self.notes.add("permission", State.OK, f"{len(actions)} ways of reading EC2, {ending}")

    def _ending(self) -> str | None:
        """Whether an instance of ours may be ended. The tag is the condition, so that only one of ours shows it. None: a finding tells why not."""
        mine = self.notes.ask("permission", "ec2:DescribeInstances", lambda: machines(self._ec2(), {f"tag:{DEPLOYMENT}": self._errand.deployment}))
        if mine is None:
            return None
        one = next((machine.instance_id for machine in mine if machine.state in {"pending", "running"}), None)
        if one is None:
            return "and ending is tried on an instance of ours as soon as there is one"
        refusal = self._dry(partial(self._ec2().terminate_instances, InstanceIds=[one], DryRun=True), "checking ec2:TerminateInstances")
        if refusal is not None and refusal.code not in NOT_FOUND:
            self.notes.failed("permission", "ec2:TerminateInstances", refusal)
            return None
        return f"ending {one}"

    def _dry(self, call: Any, doing: str) -> ProviderError | None:
        """A call that is not made; None if it would have gone through."""
        try:
            with reads(doing, self._region):
                call()
        except ProviderError as error:
            return None if error.code == WOULD_SUCCEED else error
        return None

    def _hint(self, key: str, value: str) -> str:
        return f"name one under [providers.aws.in.{self._region}]: {key} = {value}"

    def _image(self) -> bool:
        name = str(self._place.image)
        try:
            image = Images(self._clients, _now).get(self._region, name)
        except (Misconfigured, InvalidRequest) as error:
            self.notes.add("image", State.PROBLEM, str(error), self._hint("image", '"ami-…"'))
            return False
        except ProviderError as error:
            self.notes.failed("image", "ssm:GetParameter" if name.startswith("ssm:") else "ec2:DescribeImages", error)
            return False
        self.notes.add("image", State.OK, f"{image.id}, root disk of {image.size_gb} GB or more")
        return True

    def _subnets(self) -> bool:
        """Whether there is a subnet to launch in."""
        if self._place.subnets:
            wrong = [zone for zone, subnet in self._place.subnets.items() if not self._named_subnet(zone, subnet)]
            return not wrong
        vpc = self.notes.ask("subnet", "ec2:DescribeVpcs", lambda: default_vpc(self._clients, self._region) or "")
        if vpc is None:
            return False
        fix = f"aws ec2 create-default-vpc --region {self._region}; or " + self._hint("subnets", f'{{ "{self._region}a" = "subnet-…" }}')
        if not vpc:
            self.notes.add("subnet", State.PROBLEM, "there is no default VPC, and no subnets are configured", fix)
            return False
        filters = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "default-for-az", "Values": ["true"]}]
        answer = self.notes.ask("subnet", "ec2:DescribeSubnets", lambda: self._ec2().describe_subnets(Filters=filters))
        if answer is None:
            return False
        have = {str(row.get("AvailabilityZone")) for row in answer.get("Subnets") or []}
        lacking = [zone for zone in self._zones if zone not in have]
        if lacking:
            says = f"the default VPC {vpc} has none in {', '.join(lacking)}: launches there are refused"
            fix = "; ".join(f"aws ec2 create-default-subnet --region {self._region} --availability-zone {zone}" for zone in lacking)
            self.notes.add("subnet", State.PROBLEM, says, fix)
        else:
            self.notes.add("subnet", State.OK, f"{len(have)} of the default VPC {vpc}")
        return bool(have)

    def _named_subnet(self, zone: str, subnet: str) -> bool:
        fix = self._hint("subnets", f'{{ "{zone}" = "subnet-…" }}')
        try:
            with reads(f"looking at subnet {subnet}", self._region):
                rows = self._ec2().describe_subnets(SubnetIds=[subnet]).get("Subnets") or []
        except (Misconfigured, InvalidRequest) as error:
            self.notes.add("subnet", State.PROBLEM, str(error), fix)
            return False
        except ProviderError as error:
            self.notes.failed("subnet", "ec2:DescribeSubnets", error)
            return False
        where = rows[0].get("AvailabilityZone") if rows else None
        if where != zone:
            self.notes.add("subnet", State.PROBLEM, f"{subnet} is in {where or 'no zone'}, not in {zone}", fix)
            return False
        self.notes.add("subnet", State.OK, f"{subnet} in {zone}")
        return True

    def _groups(self) -> bool:
        groups = list(self._place.security_groups)
        if not groups:
            return True  # the queue's check tells of the one that `spotd aws setup` makes
        try:
            with reads("looking at the security groups", self._region):
                self._ec2().describe_security_groups(GroupIds=groups)
        except (Misconfigured, InvalidRequest) as error:
            self.notes.add("security group", State.PROBLEM, str(error), self._hint("security_groups", '["sg-…"]'))
            return False
        except ProviderError as error:
            self.notes.failed("security group", "ec2:DescribeSecurityGroups", error)
            return False
        self.notes.add("security group", State.OK, ", ".join(groups))
        return True

    def _sold(self) -> _Sold | None:
        """Of the types in use the first that is sold here, and a zone that sells it."""
        types = list(self._errand.instance_types)
        filters = [{"Name": "instance-type", "Values": types}]
        answer = self.notes.ask(
            "instance types",
            "ec2:DescribeInstanceTypeOfferings",
            lambda: self._ec2().describe_instance_type_offerings(LocationType="availability-zone", Filters=filters),
        )
        if answer is None:
            return None
        rows = answer.get("InstanceTypeOfferings") or []
        sold = sorted((str(row.get("InstanceType")), str(row.get("Location"))) for row in rows if row.get("Location") in self._zones)
        names = {name for name, _ in sold}
        if missing := [name for name in types if name not in names]:
            self.notes.add("instance types", State.NOTE, f"not sold here: {', '.join(missing)}")
        usable = [one for one in sold if not self._place.subnets or one[1] in self._place.subnets]
        return next((_Sold(name, zone) for wanted_type in types for name, zone in usable if name == wanted_type), None)

    def _launch(self, offer: OfferKey) -> None:
        """A launch that is not carried out."""
        subject, now = f"launch {offer.market.value}", datetime.now(UTC)
        request = LaunchRequest(
            token=f"doctor-{uuid.uuid4().hex}",
            deployment=self._errand.deployment,
            job_id="doctor",
            job_name="doctor",
            attempt=1,
            rank=0,
            offer=offer,
            max_price_usd_per_hour=None,
            expires_at=now,
        )
        try:
            Launcher(self._clients, self._errand.config, self._errand.deployment, lambda: now).rehearse(request)
        except NotAuthorized as error:
            self.notes.add(subject, State.PROBLEM, str(error), self._launch_fix(error))
        except (InvalidRequest, Misconfigured, NoCapacity, QuotaExceeded) as error:
            fix = f"see [providers.aws] and [providers.aws.in.{self._region}]: what a launch names has to be there"
            self.notes.add(subject, State.PROBLEM, str(error), fix)
        except ProviderError as error:
            self.notes.failed(subject, "ec2:RunInstances", error)
        else:
            self.notes.add(subject, State.OK, f"{offer.instance_type} would start in {offer.zone}")

    def _launch_fix(self, error: NotAuthorized) -> str:
        if error.code.startswith("AuthFailure.ServiceLinkedRole"):
            return MAKE_SPOT_ROLE
        fix = "allow ec2:RunInstances and ec2:CreateTags as `spotd aws iam-policy` prints them"
        if self._place.instance_profile:
            fix += ", and iam:PassRole for the role of the instance profile"
        return f"{fix}; if they are, an organisation's policy forbids it"

    def _quotas(self) -> None:
        """How many vCPUs the account may use, of the families of the types in use."""
        region, types, stop = self._region, self._errand.instance_types, self._stop
        quotas = Quotas(self._clients, _now)
        quotas.refresh(region, types, stop)
        if error := quotas.problem(region, types):
            self.notes.failed("quota", "servicequotas:GetServiceQuota", error)
            return
        sizes = self.notes.ask("instance types", "ec2:DescribeInstanceTypes", lambda: Offerings(self._clients, _now).vcpus(region, types, stop))
        short = {(one.market, one.code): one for one in quotas.shortages(region, types, sizes or {})}
        for one in short.values():
            need = "" if one.vcpus <= 0 else f", and {one.instance_type} has {one.needed}"
            says = f"{one.vcpus:g} vCPUs of {one.family} instances{need}: every launch is refused"
            ask = "aws service-quotas request-service-quota-increase --service-code ec2"
            fix = f"{ask} --region {region} --quota-code {one.code} --desired-value VCPUS" if one.code else "ask for more under Service Quotas"
            self.notes.add(f"quota {one.market.value}", State.PROBLEM, says, fix)
        for market in Market:
            if market not in {one.market for one in short.values()}:
                self.notes.add(f"quota {market.value}", State.OK, "none is known to be too small")

    # The queue

    def _queue(self) -> None:
        errand = self._errand
        if not errand.config.queue:
            return
        want = wanted(errand.deployment, self._region, errand.account, own_groups=bool(self._place.security_groups))
        found = self.notes.ask("queue", "sqs:GetQueueUrl, sqs:GetQueueAttributes, events:DescribeRule", lambda: observe(self._clients, want))
        if found is None:
            return
        fix = f"spotd aws setup --region {self._region}"
        steps = plan(want, found)
        for step in steps:
            if step.fate in (Fate.CREATE, Fate.REPAIR):
                says = "missing" if step.fate is Fate.CREATE else step.because
                self.notes.add(step.what, State.PROBLEM, says, fix)
        if all(step.fate in (Fate.KEEP, Fate.SKIP) for step in steps):
            self.notes.add("queue", State.OK, f"{want.queue} with its policy and {len(want.rules)} rules")
        self._queue_rights(want, found)

    def _queue_rights(self, want: Wanted, found: Found) -> None:
        if found.queue is None:
            return
        sqs, url = self._clients.get("sqs", self._region), found.queue.url
        # Seen for no time at all: whoever waits for what lies there gets it.
        self.notes.ask(
            "permission",
            "sqs:ReceiveMessage",
            lambda: sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=1, VisibilityTimeout=0, WaitTimeSeconds=0),
        )
        # There is no such message, which only those are told who may touch one.
        none = {"QueueUrl": url, "ReceiptHandle": "none"}
        for action, call in (
            ("sqs:DeleteMessage", partial(sqs.delete_message, **none)),
            ("sqs:ChangeMessageVisibility", partial(sqs.change_message_visibility, VisibilityTimeout=0, **none)),
        ):
            try:
                with reads(f"checking {action} on {want.queue}", self._region):
                    call()
            except ProviderError as error:
                if isinstance(error, NotAuthorized):
                    self.notes.failed("permission", action, error)
                elif error.code in NO_QUEUE:
                    self.notes.add("queue", State.PROBLEM, "it has just gone", f"spotd aws setup --region {self._region}")
                    return


def _now() -> datetime:
    return datetime.now(UTC)


MAKE_SPOT_ROLE = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
