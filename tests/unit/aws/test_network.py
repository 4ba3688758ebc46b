"""Where machines are started: subnets and security groups as configured, as `spotd aws setup` made them, or as the account has them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from spotd.core.errors import Misconfigured, ProviderUnavailable, Scope
from spotd.testing import FakeClock
from spotd.testing.fake_aws import FakeAws
from spotd.testing.fake_aws.world import Group
from spotd_aws.clients import Clients
from spotd_aws.config import Place, read
from spotd_aws.network import Network, Networks

REGION = "us-west-2"
ZONE, OTHER = f"{REGION}a", f"{REGION}b"


class _Account:
    def __init__(self, aws: FakeAws, clock: FakeClock) -> None:
        self.aws, self.clock = aws, clock
        self.networks = Networks(Clients(read({"endpoint_url": aws.endpoint})), "lab", clock.now)

    def subnet(self, zone: str) -> str:
        (found,) = (subnet.id for subnet in self.aws.world.network.subnets if subnet.zone == zone)
        return found

    def set_up(self, vpc_id: str | None = None) -> None:
        vpc_id = vpc_id or self.aws.world.network.vpcs[REGION]
        self.aws.world.network.groups.append(Group(f"sg-{vpc_id[-4:]}", REGION, vpc_id, "spotd-lab", "", {}))

    def get(self, zone: str = ZONE, **place: Any) -> Network:
        return self.networks.get(REGION, zone, Place(**place))


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Account]:
    """One region, nothing set up."""
    clock = FakeClock()
    with FakeAws(clock, (REGION,)) as aws:
        for name, value in aws.environment().items():
            monkeypatch.setenv(name, value)
        yield _Account(aws, clock)


def test_without_configuration_ec2_chooses(account: _Account) -> None:
    """The default VPC's subnet of the zone and its default group: what a call that names neither gets."""
    assert account.get() == Network(None, ())


def test_what_setup_made_is_found_after_an_hour(account: _Account) -> None:
    """By its name, in the VPC that is used; nobody has to restart the daemon for it."""
    account.get()
    account.set_up()
    assert account.get().groups == ()
    account.clock.step(timedelta(hours=1).total_seconds())
    assert account.get().groups == (f"sg-{account.aws.world.network.vpcs[REGION][-4:]}",)


def test_a_group_of_another_vpc_is_not_taken(account: _Account) -> None:
    """EC2 would refuse it."""
    account.set_up("vpc-00000000")
    assert account.get().groups == ()


def test_a_configured_subnet_goes_with_the_group_of_its_vpc(account: _Account) -> None:
    """Configured groups come before the one that setup made."""
    account.set_up()
    subnets = {ZONE: account.subnet(ZONE), OTHER: account.subnet(OTHER)}
    assert account.get(subnets=subnets) == Network(account.subnet(ZONE), (f"sg-{account.aws.world.network.vpcs[REGION][-4:]}",))
    assert account.get(OTHER, subnets=subnets, security_groups=("sg-1",)) == Network(account.subnet(OTHER), ("sg-1",))


def test_an_address_needs_a_subnet_that_has_a_name(account: _Account) -> None:
    """Addresses belong to network interfaces, and those to subnets."""
    assert account.get(public_address=True).subnet == account.subnet(ZONE)


def test_a_zone_without_a_subnet_is_left_alone_by_itself(account: _Account) -> None:
    """The zones beside it have theirs."""
    with pytest.raises(Misconfigured, match=rf"no subnet is named for {OTHER}.*\[providers.aws.in.us-west-2\]") as refused:
        account.get(OTHER, subnets={ZONE: account.subnet(ZONE)})
    assert refused.value.scope is Scope.ZONE
    with pytest.raises(Misconfigured, match=f"is in {ZONE}, not in {OTHER}") as refused:
        account.get(OTHER, subnets={OTHER: account.subnet(ZONE)})
    assert refused.value.scope is Scope.ZONE


def test_a_subnet_that_is_not_there_is_the_regions_trouble(account: _Account) -> None:
    """EC2's own words are passed on."""
    with pytest.raises(Misconfigured, match="subnet-0123") as refused:
        account.get(subnets={ZONE: "subnet-01234567"})
    assert refused.value.code == "InvalidSubnetID.NotFound"


def test_without_a_default_vpc_there_is_no_group_to_look_for(account: _Account) -> None:
    """The launch says what is missing then."""
    account.aws.world.network.remove_default(REGION)
    assert account.get() == Network(None, ())


def test_a_failure_is_not_remembered(account: _Account) -> None:
    """The next launch asks again."""
    account.set_up()
    account.aws.refuse(REGION, "DescribeSecurityGroups", "InternalError", 500, times=1)
    with pytest.raises(ProviderUnavailable):
        account.get()
    assert account.get().groups
