"""What a RunInstances request orders: read, checked, and refused in EC2's words where it makes no sense."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from spotd.core.offer import Market
from spotd.testing.fake_aws.catalogue import Image, InstanceType, Zone
from spotd.testing.fake_aws.instances import Volume
from spotd.testing.fake_aws.market import Pool
from spotd.testing.fake_aws.wire import AwsError, Form
from spotd.testing.fake_aws.world import World

_USER_DATA_LIMIT = 16_384
#: Below it a limit is no limit but a mistake (facts/reclaim.md §1.10).
_LEAST_MAX_PRICE = Decimal("0.001")
_RESOURCES = {"instance", "volume", "network-interface", "spot-instances-request"}
#: Types with Graviton processors: g5g, c7gn and their like.
_ARM = re.compile(r"[a-z]+\d+g")


@dataclass(frozen=True, slots=True)
class Order:
    """A RunInstances request that makes sense."""

    kind: InstanceType
    image: Image
    zone: Zone
    zone_named: bool
    subnet_id: str
    vpc_id: str
    groups: tuple[str, ...]
    public: bool
    market: Market
    max_price: Decimal | None
    request_kind: str
    user_data: bytes
    tags: Mapping[str, Mapping[str, str]]
    disks: tuple[Volume, ...]
    profile_arn: str | None

    @property
    def pool(self) -> Pool:
        """What it takes from."""
        return Pool(self.zone.region, self.zone.name, self.kind.name, self.market)


def read_order(world: World, region: str, form: Form) -> Order:
    """The request, checked. Raises what EC2 says of one that makes no sense."""
    catalogue = world.fleet.catalogue
    kind = catalogue.types.get(form.required("InstanceType"))
    if kind is None:
        raise AwsError("InvalidParameterValue", f"Invalid value '{form.text('InstanceType')}' for InstanceType.")
    market, max_price, request_kind = _market(form)
    zone, named, subnet_id, vpc_id, groups, public = _place(world, region, form)
    if (zone.name, kind.name) not in catalogue.offered:
        raise AwsError(
            "Unsupported",
            f"Your requested instance type ({kind.name}) is not supported in your requested Availability Zone ({zone.name}). "
            "Please retry your request by not specifying an Availability Zone or choosing another.",
        )
    image = _image(world, region, form.required("ImageId"))
    if bool(_ARM.match(kind.name)) != (image.architecture == "arm64"):
        raise AwsError("InvalidParameterValue", f"The architecture '{image.architecture}' of the specified AMI does not match the instance type's.")
    if len(form.text("ClientToken")) > 64 or not form.text("ClientToken").isascii():
        raise AwsError("InvalidParameterValue", "The client token is longer than 64 ASCII characters.")
    if form.text("InstanceInitiatedShutdownBehavior", "stop") not in {"stop", "terminate"}:
        raise AwsError("InvalidParameterValue", "InstanceInitiatedShutdownBehavior is one of stop, terminate.")
    if form.text("KeyName") and form.text("KeyName") not in world.key_pairs:
        raise AwsError("InvalidKeyPair.NotFound", f"The key pair '{form.text('KeyName')}' does not exist")
    return Order(
        kind, image, zone, named, subnet_id, vpc_id, groups, public, market, max_price, request_kind, _user_data(form), _tags(form, market),
        _disks(form, image), _profile(world, form),
    )  # fmt: skip


def _market(form: Form) -> tuple[Market, Decimal | None, str]:
    options = form.sub("InstanceMarketOptions")
    match options.text("MarketType"):
        case "":
            return Market.ON_DEMAND, None, ""
        case "spot":
            pass
        case other:
            raise AwsError("InvalidParameterValue", f"Invalid value '{other}' for InstanceMarketOptions.MarketType.")
    spot = options.sub("SpotOptions")
    kind, behavior = spot.text("SpotInstanceType", "one-time"), spot.text("InstanceInterruptionBehavior", "terminate")
    if kind not in {"one-time", "persistent"} or behavior not in {"terminate", "stop", "hibernate"}:
        raise AwsError("InvalidParameterValue", "Invalid SpotInstanceType or InstanceInterruptionBehavior.")
    if (kind == "persistent") != (behavior != "terminate"):
        raise AwsError("InvalidParameterCombination", f"A {kind} Spot request from RunInstances does not go with the behavior {behavior}.")
    if kind == "one-time" and spot.text("ValidUntil"):
        raise AwsError("InvalidParameterCombination", "ValidUntil is not supported for one-time Spot requests.")
    if spot.text("BlockDurationMinutes"):
        raise AwsError("UnsupportedOperation", "Defined duration Spot requests are no longer supported.")
    if "MaxPrice" not in spot.values:
        return Market.SPOT, None, kind
    try:
        limit = Decimal(spot.text("MaxPrice"))
    except InvalidOperation:
        limit = Decimal(0)
    if not limit.is_finite() or limit <= _LEAST_MAX_PRICE:
        raise AwsError("InvalidParameterValue", f"Invalid value '{spot.text('MaxPrice')}' for MaxPrice: it must be more than {_LEAST_MAX_PRICE}.")
    return Market.SPOT, limit, kind


def _place(world: World, region: str, form: Form) -> tuple[Zone, bool, str, str, tuple[str, ...], bool]:
    """Zone, whether the request named it, subnet, VPC, security groups, public address."""
    interfaces = form.groups("NetworkInterface")
    inside = interfaces[0] if interfaces else Form({})
    if interfaces and (form.text("SubnetId") or form.listed("SecurityGroupId")):
        raise AwsError(
            "InvalidParameterCombination", "Network interfaces and an instance-level subnet ID or security groups may not be specified together."
        )
    if len(interfaces) > 1 and any("AssociatePublicIpAddress" in one.values for one in interfaces):
        raise AwsError("InvalidParameterCombination", "The associatePublicIPAddress parameter cannot be specified with several network interfaces.")
    subnet_id = inside.text("SubnetId") or form.text("SubnetId")
    wanted = form.text("Placement.AvailabilityZone") or form.text("Placement.AvailabilityZoneId")
    zone = world.fleet.catalogue.zone(region, wanted) if wanted else None
    if wanted and zone is None:
        raise AwsError("InvalidParameterValue", f"Invalid availability zone: [{wanted}]")
    if subnet_id:
        subnet = world.network.subnet(region, subnet_id)
        if zone is not None and zone.name != subnet.zone:
            raise AwsError("InvalidParameterValue", f"The availability zone '{zone.name}' does not match the subnet's, '{subnet.zone}'.")
    else:
        subnets = [s for s in world.network.subnets if s.region == region and (zone is None or s.zone == zone.name)]
        if not subnets:
            raise AwsError("VPCIdNotSpecified", "No default VPC for this user. GroupName is only supported for EC2-Classic and default VPC.")
        subnet = subnets[0]
    placed = world.fleet.catalogue.zone(region, subnet.zone)
    assert placed is not None, "every subnet is in a zone of the catalogue"
    groups = tuple(inside.listed("SecurityGroupId") or form.listed("SecurityGroupId"))
    for group in groups:
        world.network.group(region, group)
    public = inside.flag("AssociatePublicIpAddress") if "AssociatePublicIpAddress" in inside.values else True
    default = tuple(group.id for group in world.network.groups if (group.region, group.name) == (region, "default"))
    return placed, bool(wanted or subnet_id), subnet.id, subnet.vpc_id, groups or default, public


def _image(world: World, region: str, image_id: str) -> Image:
    if not re.fullmatch(r"ami-([0-9a-f]{8}|[0-9a-f]{17})", image_id):
        raise AwsError("InvalidAMIID.Malformed", f'Invalid id: "{image_id}"')
    for image in world.fleet.catalogue.images.get(region, ()):
        if image.id == image_id:
            return image
    raise AwsError("InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist")


def _profile(world: World, form: Form) -> str | None:
    name, arn = form.text("IamInstanceProfile.Name"), form.text("IamInstanceProfile.Arn")
    if not name and not arn:
        return None
    found = world.instance_profile(name or arn)
    if found is None:
        field = "name" if name else "arn"
        raise AwsError(
            "InvalidParameterValue",
            f"Value ({name or arn}) for parameter iamInstanceProfile.{field} is invalid. Invalid IAM Instance Profile {'name' if name else 'ARN'}",
        )
    return found


def _user_data(form: Form) -> bytes:
    try:
        raw = base64.b64decode(form.text("UserData"), validate=True)
    except binascii.Error:
        raise AwsError("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.") from None
    if len(raw) > _USER_DATA_LIMIT:
        raise AwsError("InvalidUserData.Malformed", f"User data is limited to {_USER_DATA_LIMIT} bytes")
    return raw


def _tags(form: Form, market: Market) -> Mapping[str, Mapping[str, str]]:
    """Tags by the kind of thing they are for."""
    tags: dict[str, dict[str, str]] = {kind: {} for kind in _RESOURCES}
    for group in form.groups("TagSpecification"):
        kind = group.required("ResourceType")
        if kind not in tags or (kind == "spot-instances-request" and market is not Market.SPOT):
            raise AwsError("InvalidParameterValue", f"'{kind}' is not a valid taggable resource type for this operation.")
        for pair in group.groups("Tag"):
            tags[kind][pair.text("Key")] = pair.text("Value")
    for kind, pairs in tags.items():
        check_tags(pairs)
        if kind == "instance" and form.text("MetadataOptions.InstanceMetadataTags") == "enabled" and any(" " in k or "/" in k for k in pairs):
            raise AwsError("InvalidParameterValue", "Tag keys with spaces or slashes do not go with tags in instance metadata.")
    return tags


def check_tags(pairs: Mapping[str, str]) -> None:
    """Raise what EC2 says of tags that break its rules (facts/cloud-api.md §2.1)."""
    if len(pairs) > 50:
        raise AwsError("TagLimitExceeded", "More than 50 tags specified")
    for key, value in pairs.items():
        if not 1 <= len(key) <= 127 or key.lower().startswith("aws:"):
            raise AwsError("InvalidParameterValue", f"Tag keys starting with 'aws:' are reserved, and keys have up to 127 characters: '{key[:140]}'")
        if len(value) > 255:
            raise AwsError("InvalidParameterValue", f"Tag value exceeds the maximum length of 255 characters: '{key}'")


def _disks(form: Form, image: Image) -> tuple[Volume, ...]:
    """The volumes: the image's root, changed and added to by the request."""
    disks = {image.root_device: Volume("", image.root_device, image.root_gb, "gp2", True, {})}  # noqa: FBT003 - a field of Volume
    for group in form.groups("BlockDeviceMapping"):
        device, ebs = group.required("DeviceName"), group.sub("Ebs")
        if not ebs:
            continue  # instance store, or NoDevice
        least = image.root_gb if device == image.root_device else 1
        gb = ebs.number("VolumeSize", 1, 65_536, least)
        if gb < least:
            raise AwsError("InvalidBlockDeviceMapping", f"Volume of size {gb}GB is smaller than snapshot 'snap-0', expect size >= {least}GB")
        kind = ebs.text("VolumeType", "gp2")
        if kind not in {"gp2", "gp3", "io1", "io2", "st1", "sc1", "standard"} or gb > 16_384:
            raise AwsError("InvalidParameterValue", f"The volume type {kind} does not exist, or is not sold with {gb} GB.")
        disks[device] = Volume("", device, gb, kind, ebs.text("DeleteOnTermination", "true").lower() == "true", {})
    return tuple(disks.values())
