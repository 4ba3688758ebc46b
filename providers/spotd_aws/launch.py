"""RunInstances for one machine, what became of such a call, and TerminateInstances (facts/cloud-api.md §2.1, §2.5)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from spotd.core.errors import InvalidRequest, Misconfigured, NoCapacity, PriceTooHigh, ProviderError
from spotd.core.instance import EndedBy
from spotd.core.offer import Market
from spotd.ports import Launched, LaunchOutcome, Refused, Unknown
from spotd_aws.endings import ending_of, launch_failure
from spotd_aws.errors import NOT_FOUND, reads
from spotd_aws.images import Image, Images
from spotd_aws.machines import Machine, machines, read_machine
from spotd_aws.network import Network, Networks
from spotd_aws.tags import REQUEST, fingerprint, tags_of
from spotd_aws.user_data import for_ec2

if TYPE_CHECKING:
    from spotd.core.instance import LaunchRequest
    from spotd_aws.clients import Clients
    from spotd_aws.config import AwsConfig, Place

#: EC2 takes tokens of up to 64 ASCII characters.
_LONGEST_TOKEN = 64
#: The token is known, with other parameters or with an instance that has ended: what it stands for has to be looked at.
_KNOWN_TOKEN = frozenset({"IdempotentParameterMismatch", "IdempotentInstanceTerminated"})
#: How many tokens are remembered, to tell a token's second use by another request from a machine that is not described yet.
_REMEMBERED = 1000
#: What EC2 says of a call that was not to be carried out, and could have been.
WOULD_SUCCEED = "DryRunOperation"
#: Metadata through one bridge more, for jobs in containers; and no version 1 (facts/reclaim.md §1.2).
_METADATA = {"HttpTokens": "required", "HttpPutResponseHopLimit": 2, "HttpEndpoint": "enabled"}


class Launcher:
    """Launches, looks up and ends machines of one account."""

    def __init__(self, clients: Clients, config: AwsConfig, deployment: str, now: Callable[[], datetime]) -> None:
        self._clients = clients
        self._config = config
        self._images = Images(clients, now)
        self._networks = Networks(clients, deployment, now)
        self._lock = threading.Lock()
        #: By token and zone, oldest first.
        self._used: dict[tuple[str, str], str] = {}

    def launch(self, request: LaunchRequest, user_data: str) -> Launched:
        """One call, one attempt. Idempotent by the token, which is zonal: a zone is always named."""
        if len(request.token) > _LONGEST_TOKEN or not request.token.isascii():
            raise InvalidRequest(f"a client token has at most {_LONGEST_TOKEN} ASCII characters", "InvalidClientToken", "token")
        region, place = request.offer.region, self._config.place(request.offer.region)
        used_for = self._used_for(request)
        try:
            image = self._images.get(region, str(place.image))
            parameters = _parameters(request, place, image, self._networks.get(region, request.offer.zone, place))
            parameters["UserData"] = for_ec2(user_data)
            # Whatever goes wrong within, its text must not quote user data: only codes and AWS's own words are passed on.
            with reads(f"launching {request.offer.instance_type}", region):
                (row,) = self._clients.get("ec2", region).run_instances(**parameters)["Instances"]
                machine = read_machine(row)
        except Misconfigured:
            self._images.forget(region)
            self._networks.forget(region)
            raise
        except InvalidRequest as error:
            if error.code in _KNOWN_TOKEN:
                return self._earlier(request, error, used_for)
            raise
        except PriceTooHigh as error:
            if request.max_price_usd_per_hour is None:
                # Without a maximum of ours it means that there is none to be had (facts/error_classes.json).
                raise NoCapacity(error.message, error.code) from error
            raise
        return _launched(machine, parameters)

    def rehearse(self, request: LaunchRequest) -> None:
        """The call as a launch makes it, but for its user data, and not carried out. Raises what a launch would.

        EC2 checks rights and parameters, and stops before limits and capacity.
        """
        region, place = request.offer.region, self._config.place(request.offer.region)
        image = self._images.get(region, str(place.image))
        parameters = _parameters(request, place, image, self._networks.get(region, request.offer.zone, place))
        try:
            with reads(f"rehearsing the launch of {request.offer.instance_type}", region):
                self._clients.get("ec2", region).run_instances(DryRun=True, **parameters)
        except ProviderError as error:
            if error.code != WOULD_SUCCEED:
                raise

    def _earlier(self, request: LaunchRequest, refusal: InvalidRequest, used_for: str) -> Launched:
        """The machine that this very request made before, alive or dead: a request makes one machine for ever.

        Raises the refusal where the token was another request's. Where nothing shows whose it was, the machine is not described yet, or not any
        more (facts/cloud-api.md §2.2): nothing can be had for this token then, which is no fault of the job.
        """
        found = self._with_token(request)
        ours = next((machine for machine in found if _is_of(machine, request)), None)
        if ours is not None:
            return _launched(ours, {})
        if found or used_for != fingerprint(request):
            raise refusal
        message = f"{request.offer.instance_type} in {request.offer.zone}: an earlier call of the same launch made a machine that AWS does not show"
        raise NoCapacity(message, refusal.code) from refusal

    def outcome(self, request: LaunchRequest) -> LaunchOutcome:
        """What became of a call, by its token. Nothing found proves nothing: descriptions lag behind (facts/cloud-api.md §2.2)."""
        machine = next((machine for machine in self._with_token(request) if _is_of(machine, request)), None)
        if machine is None:
            return Unknown()
        failure = launch_failure(machine)
        return _launched(machine, {}) if failure is None else Refused(failure)

    def _with_token(self, request: LaunchRequest) -> list[Machine]:
        """What was launched with this token in this zone: tokens are zonal, and elsewhere the same one may stand for another machine."""
        region = request.offer.region
        with reads("looking for a launched instance", region):
            found = machines(self._clients.get("ec2", region), {"client-token": request.token})
        return [machine for machine in found if machine.zone == request.offer.zone]

    def _used_for(self, request: LaunchRequest) -> str:
        """The fingerprint of the first request that this object launched with a token in a zone; this one's own from now on if there was none."""
        key = (request.token, request.offer.zone)
        with self._lock:
            first = self._used.setdefault(key, fingerprint(request))
            if len(self._used) > _REMEMBERED:
                del self._used[next(iter(self._used))]
        return first

    def terminate(self, region: str, provider_id: str) -> None:
        """Ask for the end. One id a call: a wrong one among many would keep all of them alive (facts/cloud-api.md §2.2)."""
        try:
            with reads(f"ending {provider_id}", region):
                self._clients.get("ec2", region).terminate_instances(InstanceIds=[provider_id])
        except ProviderError as error:
            if error.code not in NOT_FOUND:
                raise


def _is_of(machine: Machine, request: LaunchRequest) -> bool:
    """Whether this very request made it. Tags vanish before the row does; then token and zone must do."""
    wanted = fingerprint(request)
    return machine.tags.get(REQUEST, wanted) == wanted


def _launched(machine: Machine, parameters: Mapping[str, Any]) -> Launched:
    details = dict(machine.details)
    for disk in parameters.get("BlockDeviceMappings", ()):
        if "VolumeSize" in disk["Ebs"]:
            details["disk"] = f"{disk['Ebs']['VolumeSize']} GB {disk['Ebs']['VolumeType']}"
    # Pending is free: billing begins when it runs (facts/reclaim.md §1.11).
    ending = ending_of(machine, "")
    never_ran = machine.state == "pending" or (ending is not None and ending.by is EndedBy.NEVER_RAN)
    return Launched(machine.instance_id, None if never_ran else machine.launch_time, details)


def _parameters(request: LaunchRequest, place: Place, image: Image, network: Network) -> dict[str, Any]:
    """The call, but for its user data."""
    tags, spot = tags_of(request), request.offer.market is Market.SPOT
    tagged = ["instance", "volume", *(["spot-instances-request"] if spot else [])]
    parameters: dict[str, Any] = {
        "ImageId": image.id,
        "InstanceType": request.offer.instance_type,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": request.token,
        "Placement": {"AvailabilityZone": request.offer.zone},
        # A guest that powers itself off must not become a stopped machine whose disk is paid for (facts/reclaim.md §1.12).
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": dict(_METADATA),
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in tagged],
    }
    if spot:
        # One-time only: a persistent request would launch again what we end (facts/cloud-api.md §2.1).
        options: dict[str, Any] = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        if request.max_price_usd_per_hour is not None:
            options["MaxPrice"] = f"{request.max_price_usd_per_hour:f}"
        parameters["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
    parameters.update(_network(place, network))
    if disks := list(_disks(request.disk_gb or place.root_disk or 0, image)):
        parameters["BlockDeviceMappings"] = disks
    parameters.update(_identity(request.instance_profile or place.instance_profile, place.key_name))
    return parameters


def _disks(least_gb: int, image: Image) -> Iterator[dict[str, Any]]:
    """The root disk, then what the image brings along.

    That they end with the machine is said of each: an image may have made them outlive it (one that was taken of a machine with a second disk does),
    and they are then paid for for ever.
    """
    if size := max(least_gb, image.size_gb):
        yield {"DeviceName": image.root_device, "Ebs": {"VolumeSize": size, "VolumeType": "gp3", "DeleteOnTermination": True}}
    for device in image.more_disks:
        yield {"DeviceName": device, "Ebs": {"DeleteOnTermination": True}}


def _network(place: Place, network: Network) -> Iterator[tuple[str, Any]]:
    if place.public_address is None:
        if network.subnet is not None:
            yield "SubnetId", network.subnet
        if network.groups:
            yield "SecurityGroupIds", list(network.groups)
        return
    interface: dict[str, Any] = {"DeviceIndex": 0, "AssociatePublicIpAddress": place.public_address, "DeleteOnTermination": True}
    if network.subnet is not None:
        interface["SubnetId"] = network.subnet
    if network.groups:
        interface["Groups"] = list(network.groups)
    yield "NetworkInterfaces", [interface]


def _identity(profile: str | None, key_name: str | None) -> Iterator[tuple[str, Any]]:
    if profile is not None:
        yield "IamInstanceProfile", {"Arn" if profile.startswith("arn:") else "Name": profile}
    if key_name is not None:
        yield "KeyName", key_name
