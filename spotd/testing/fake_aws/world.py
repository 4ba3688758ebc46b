"""What one fake account is made of, as every action of EC2 gets it; and its networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from spotd.testing.fake_aws.catalogue import made_up_id
from spotd.testing.fake_aws.fleet import FailingLaunch, Fleet
from spotd.testing.fake_aws.market import Pool, SpotMarket
from spotd.testing.fake_aws.wire import AwsError, Form, Value


@dataclass(slots=True)
class Group:
    """A security group. `ingress` is empty: nothing comes in; everything may go out."""

    id: str
    region: str
    vpc_id: str
    name: str
    description: str
    tags: dict[str, str]


@dataclass(frozen=True, slots=True)
class Subnet:
    """The default subnet of a zone."""

    id: str
    region: str
    zone: str
    zone_id: str
    vpc_id: str
    number: int


class Network:
    """The default VPC of each region with its subnets, and all security groups."""

    def __init__(self, account: str, zones: Mapping[str, tuple[tuple[str, str], ...]]) -> None:
        self.vpcs = {region: made_up_id("vpc", account, region) for region in zones}
        self.subnets = [
            Subnet(made_up_id("subnet", account, zone), region, zone, zone_id, self.vpcs[region], number)
            for region, names in zones.items()
            for number, (zone, zone_id) in enumerate(names)
        ]
        self.groups = [
            Group(made_up_id("sg", account, region, "default"), region, vpc, "default", "default VPC security group", {})
            for region, vpc in self.vpcs.items()
        ]

    def subnet(self, region: str, subnet_id: str) -> Subnet:
        """The subnet with this id."""
        for subnet in self.subnets:
            if (subnet.region, subnet.id) == (region, subnet_id):
                return subnet
        raise AwsError("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")

    def group(self, region: str, group_id: str) -> Group:
        """The security group with this id."""
        for group in self.groups:
            if (group.region, group.id) == (region, group_id):
                return group
        raise AwsError("InvalidGroup.NotFound", f"The security group '{group_id}' does not exist")

    def remove_default(self, region: str) -> None:
        """An account whose default VPC was deleted."""
        self.vpcs.pop(region, None)
        self.subnets = [subnet for subnet in self.subnets if subnet.region != region]
        self.groups = [group for group in self.groups if group.region != region]


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a client token stands for."""

    fingerprint: str
    instance_ids: tuple[str, ...]
    reservation_id: str


@dataclass(slots=True)
class World:
    """One account."""

    account: str
    fleet: Fleet
    network: Network
    #: The most rows of one page.
    page_rows: int = 1000
    #: By (region or "", zone or "", token): idempotency is zonal where a zone is named (facts/reclaim.md §1.10).
    tokens: dict[tuple[str, str, str], Remembered] = field(default_factory=dict)
    failing: dict[Pool, FailingLaunch] = field(default_factory=dict)
    key_pairs: set[str] = field(default_factory=lambda: {"ops"})
    disabled: set[str] = field(default_factory=set)
    #: Regions the account could ask for, and has not.
    not_opted_in: set[str] = field(default_factory=lambda: {"ap-east-1", "me-south-1"})
    #: Placement scores that were set: (region, zone id or "").
    scores: dict[tuple[str, str], int] = field(default_factory=dict)
    #: How many sets of types may be asked scores for within a day, and which were.
    score_configurations: int = 50
    scores_asked: dict[frozenset[str], datetime] = field(default_factory=dict)
    #: The ARN of an instance profile by its name or ARN; None where there is none.
    instance_profile: Callable[[str], str | None] = lambda _: None
    #: What a machine wrote on its console.
    console: Callable[[str], bytes] = lambda _: b""

    @property
    def market(self) -> SpotMarket:
        """Prices, pools, quotas."""
        return self.fleet.market


Action = Callable[[World, str, Form], Mapping[str, Value]]


def tag_set(tags: Mapping[str, str]) -> list[Value]:
    """Tags as EC2 lists them."""
    return [{"key": key, "value": value} for key, value in sorted(tags.items())]
