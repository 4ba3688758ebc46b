"""Where in the network a machine is started. What is not configured is what an account has from the start: the default VPC."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from spotd.core.errors import Misconfigured, Scope
from spotd_aws.config import PREFIX
from spotd_aws.errors import reads

if TYPE_CHECKING:
    from spotd_aws.clients import Clients
    from spotd_aws.config import Place

_KEPT = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Network:
    """What a launch call says about it. Without a subnet EC2 takes the default VPC's of the zone, without groups the VPC's default group."""

    subnet: str | None
    groups: tuple[str, ...]


class Networks:
    """Looks them up by zone, and remembers them for an hour."""

    def __init__(self, clients: Clients, deployment: str, now: Callable[[], datetime]) -> None:
        self._clients = clients
        self._group = f"{PREFIX}-{deployment}"
        self._now = now
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str, bool], tuple[datetime, Network]] = {}

    def get(self, region: str, zone: str, place: Place) -> Network:
        """What a launch in this zone says. Misconfigured where what is configured is not there."""
        # An address is a property of a network interface, which is made in a subnet that has a name.
        needs_subnet = place.public_address is not None
        key = (region, zone, needs_subnet)
        now = self._now()
        with self._lock:
            known = self._known.get(key)
        if known is not None and now - known[0] < _KEPT:
            return known[1]
        network = self._look_up(region, zone, place, needs_subnet=needs_subnet)
        with self._lock:
            self._known[key] = (now, network)
        return network

    def forget(self, region: str) -> None:
        """Look again at the next launch: something there was refused."""
        with self._lock:
            self._known = {key: value for key, value in self._known.items() if key[0] != region}

    def _look_up(self, region: str, zone: str, place: Place, *, needs_subnet: bool) -> Network:
        ec2 = self._clients.get("ec2", region)
        subnet = place.subnets.get(zone)
        if place.subnets and subnet is None:
            raise _wrong(f"no subnet is named for {zone}: add it to subnets under [providers.aws.in.{region}]", "NoSubnet")
        vpc = None
        if subnet is not None:
            with reads(f"looking at subnet {subnet}", region):
                (row,) = ec2.describe_subnets(SubnetIds=[subnet])["Subnets"]
                vpc, where = str(row["VpcId"]), str(row["AvailabilityZone"])
            if where != zone:
                raise _wrong(f"subnet {subnet} is in {where}, not in {zone}: correct subnets under [providers.aws.in.{region}]", "WrongSubnet")
        elif needs_subnet:
            with reads(f"looking for the default subnet of {zone}", region):
                filters = [{"Name": "default-for-az", "Values": ["true"]}, {"Name": "availability-zone", "Values": [zone]}]
                rows = ec2.describe_subnets(Filters=filters)["Subnets"]
                subnet, vpc = (str(rows[0]["SubnetId"]), str(rows[0]["VpcId"])) if rows else (None, None)
        return Network(subnet, place.security_groups or self._own_group(ec2, region, vpc))

    def _own_group(self, ec2: Any, region: str, vpc: str | None) -> tuple[str, ...]:
        """The group that `spotd aws setup` made in this VPC, if it did."""
        with reads("looking for the security group", region):
            if vpc is None:
                defaults = ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"]
                if not defaults:
                    return ()
                vpc = str(defaults[0]["VpcId"])
            filters = [{"Name": "group-name", "Values": [self._group]}, {"Name": "vpc-id", "Values": [vpc]}]
            return tuple(str(row["GroupId"]) for row in ec2.describe_security_groups(Filters=filters)["SecurityGroups"])


def _wrong(sentence: str, code: str) -> Misconfigured:
    """Of one zone only: the others have subnets of their own."""
    return Misconfigured(sentence, code, Scope.ZONE)
