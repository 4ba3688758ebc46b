"""Regions, zones, networks, images and types: what an account can see before it launches anything."""

from __future__ import annotations

import re
from collections.abc import Mapping

from spotd.testing.fake_aws.catalogue import KNOWN_REGIONS, InstanceType, made_up_id
from spotd.testing.fake_aws.describing import matching
from spotd.testing.fake_aws.order import check_tags
from spotd.testing.fake_aws.wire import AwsError, Form, Value, page
from spotd.testing.fake_aws.world import Action, Group, World, tag_set


def describe_regions(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """Enabled regions; with AllRegions those too that the account has not asked for. All of the fake's are there, whoever asks."""
    del region
    enabled = [name for name in world.fleet.catalogue.regions if name not in world.disabled]
    rows = [(name, "opt-in-not-required" if name in _WITHOUT_ASKING else "opted-in") for name in enabled]
    if form.flag("AllRegions"):
        rows += [(name, "not-opted-in") for name in sorted(world.disabled | world.not_opted_in - set(enabled))]
    wanted = form.listed("RegionName")
    for name in wanted:
        if name not in dict(rows):
            raise AwsError("InvalidParameterValue", f"Invalid region provided: {name}")
    fits = matching(form, {"opt-in-status": lambda row: [row[1]], "region-name": lambda row: [row[0]]}, lambda _: {})
    shown: list[Value] = [
        {"regionName": name, "regionEndpoint": f"ec2.{name}.amazonaws.com", "optInStatus": status}
        for name, status in sorted(rows)
        if fits((name, status)) and (not wanted or name in wanted)
    ]
    return {"regionInfo": shown}


_WITHOUT_ASKING = set(KNOWN_REGIONS) - {"af-south-1", "ap-east-1", "eu-south-1", "me-south-1"}


def describe_availability_zones(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """Zones by name and id; local ones, which the account has not asked for, only when all are wanted."""
    zones = world.fleet.catalogue.zones(region, local=form.flag("AllAvailabilityZones"))
    names, ids = form.listed("ZoneName"), form.listed("ZoneId")
    parent = zones[0] if zones else None
    fits = matching(
        form,
        {
            "zone-name": lambda zone: [zone.name],
            "zone-id": lambda zone: [zone.id],
            "state": lambda _: ["available"],
            "region-name": lambda zone: [zone.region],
            "zone-type": lambda zone: ["local-zone" if zone.local else "availability-zone"],
            "opt-in-status": lambda zone: ["not-opted-in" if zone.local else "opt-in-not-required"],
        },
        lambda _: {},
    )
    shown: list[Value] = [
        {
            "zoneName": zone.name,
            "zoneId": zone.id,
            "regionName": zone.region,
            "zoneState": "available",
            "optInStatus": "not-opted-in" if zone.local else "opt-in-not-required",
            "zoneType": "local-zone" if zone.local else "availability-zone",
            "groupName": zone.name[:-1] if zone.local else region,
            "networkBorderGroup": zone.name[:-1] if zone.local else region,
            "parentZoneName": parent.name if zone.local and parent else None,
            "parentZoneId": parent.id if zone.local and parent else None,
            "messageSet": [],
        }
        for zone in zones
        if fits(zone) and (not names or zone.name in names) and (not ids or zone.id in ids)
    ]
    return {"availabilityZoneInfo": shown}


def describe_vpcs(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """The default VPC, unless it was deleted."""
    vpcs = [world.network.vpcs[region]] if region in world.network.vpcs else []
    for vpc in form.listed("VpcId"):
        if vpc not in vpcs:
            raise AwsError("InvalidVpcID.NotFound", f"The vpc ID '{vpc}' does not exist")
    fits = matching(
        form,
        {"is-default": lambda _: ["true"], "isDefault": lambda _: ["true"], "vpc-id": lambda vpc: [vpc], "state": lambda _: ["available"]},
        lambda _: {},
    )
    shown: list[Value] = [
        {"vpcId": vpc, "ownerId": world.account, "state": "available", "cidrBlock": "172.31.0.0/16", "isDefault": True, "tagSet": []}
        for vpc in vpcs
        if fits(vpc)
    ]
    part, token = page(form, shown, world.page_rows)
    return {"vpcSet": part, "nextToken": token or None}


def describe_subnets(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """The default subnet of each zone."""
    wanted = form.listed("SubnetId")
    for subnet_id in wanted:
        world.network.subnet(region, subnet_id)
    fits = matching(
        form,
        {
            "subnet-id": lambda subnet: [subnet.id],
            "vpc-id": lambda subnet: [subnet.vpc_id],
            "availability-zone": lambda subnet: [subnet.zone],
            "availabilityZone": lambda subnet: [subnet.zone],
            "availability-zone-id": lambda subnet: [subnet.zone_id],
            "default-for-az": lambda _: ["true"],
            "defaultForAz": lambda _: ["true"],
            "state": lambda _: ["available"],
        },
        lambda _: {},
    )
    shown: list[Value] = [
        {
            "subnetId": subnet.id,
            "subnetArn": f"arn:aws:ec2:{region}:{world.account}:subnet/{subnet.id}",
            "state": "available",
            "ownerId": world.account,
            "vpcId": subnet.vpc_id,
            "cidrBlock": f"172.31.{16 * subnet.number}.0/20",
            "availableIpAddressCount": 4091,
            "availabilityZone": subnet.zone,
            "availabilityZoneId": subnet.zone_id,
            "defaultForAz": True,
            "mapPublicIpOnLaunch": True,
            "tagSet": [],
        }
        for subnet in world.network.subnets
        if subnet.region == region and fits(subnet) and (not wanted or subnet.id in wanted)
    ]
    part, token = page(form, shown, world.page_rows)
    return {"subnetSet": part, "nextToken": token or None}


def describe_security_groups(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """Security groups with their rules."""
    ids, names = form.listed("GroupId"), form.listed("GroupName")
    for group_id in ids:
        world.network.group(region, group_id)
    groups = [group for group in world.network.groups if group.region == region]
    for name in names:
        if all(group.name != name for group in groups):
            raise AwsError("InvalidGroup.NotFound", f"The security group '{name}' does not exist in default VPC")
    fits = matching(
        form,
        {"group-id": lambda group: [group.id], "group-name": lambda group: [group.name], "vpc-id": lambda group: [group.vpc_id]},
        lambda group: group.tags,
    )
    anywhere: Value = [{"ipProtocol": "-1", "groups": [], "ipRanges": [{"cidrIp": "0.0.0.0/0"}], "ipv6Ranges": [], "prefixListIds": []}]
    shown: list[Value] = [
        {
            "groupId": group.id,
            "groupName": group.name,
            "groupDescription": group.description,
            "ownerId": world.account,
            "vpcId": group.vpc_id,
            "ipPermissions": [],
            "ipPermissionsEgress": anywhere,
            "tagSet": tag_set(group.tags),
        }
        for group in groups
        if fits(group) and (not ids or group.id in ids) and (not names or group.name in names)
    ]
    part, token = page(form, shown, world.page_rows)
    return {"securityGroupInfo": part, "nextToken": token or None}


def create_security_group(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """A group as EC2 makes it: nothing in, everything out."""
    vpc = form.text("VpcId") or world.network.vpcs.get(region, "")
    if not vpc:
        raise AwsError("VPCIdNotSpecified", "No default VPC for this user")
    if vpc != world.network.vpcs.get(region):
        raise AwsError("InvalidVpcID.NotFound", f"The vpc ID '{vpc}' does not exist")
    name, description = form.required("GroupName"), form.required("GroupDescription")
    if any((group.region, group.vpc_id, group.name) == (region, vpc, name) for group in world.network.groups):
        raise AwsError("InvalidGroup.Duplicate", f"The security group '{name}' already exists for VPC '{vpc}'")
    tags = {pair.text("Key"): pair.text("Value") for group in form.groups("TagSpecification") for pair in group.groups("Tag")}
    check_tags(tags)
    _dry_run(form)
    made = Group(made_up_id("sg", world.account, region, name, len(world.network.groups)), region, vpc, name, description, tags)
    world.network.groups.append(made)
    return {"groupId": made.id, "tagSet": tag_set(tags), "securityGroupArn": f"arn:aws:ec2:{region}:{world.account}:security-group/{made.id}"}


def delete_security_group(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """Refused while a machine uses it."""
    group = world.network.group(region, form.required("GroupId"))
    if any(group.id in instance.security_groups and instance.alive for instance in world.fleet.in_region(region)):
        raise AwsError("DependencyViolation", f"resource {group.id} has a dependent object")
    _dry_run(form)
    world.network.groups.remove(group)
    return {"return": True, "groupId": group.id}


def create_tags(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """Tags on what exists: instances that are shown already, groups, spot requests."""
    tags = {pair.text("Key"): pair.text("Value") for pair in form.groups("Tag")}
    check_tags(tags)
    places = [_tags_of(world, region, resource) for resource in form.listed("ResourceId")]
    _dry_run(form)
    for place in places:
        place.update(tags)
    return {"return": True}


def _tags_of(world: World, region: str, resource: str) -> dict[str, str]:
    if resource.startswith("sg-"):
        return world.network.group(region, resource).tags
    if resource.startswith("sir-"):
        request = world.fleet.requests.get(resource)
        if request is not None and request.region == region:
            return request.tags
        raise AwsError("InvalidSpotInstanceRequestID.NotFound", f"The spot instance request ID '{resource}' does not exist")
    instance = world.fleet.instances.get(resource)
    if instance is None or instance.region != region or not world.fleet.shown(instance, world.fleet.clock.now()):
        raise AwsError("InvalidInstanceID.NotFound", f"The instance ID '{resource}' does not exist")
    return instance.tags


def _dry_run(form: Form) -> None:
    if form.flag("DryRun"):
        raise AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)


def describe_images(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """Public images."""
    images, wanted = world.fleet.catalogue.images.get(region, []), form.listed("ImageId")
    for image_id in wanted:
        if not re.fullmatch(r"ami-([0-9a-f]{8}|[0-9a-f]{17})", image_id):
            raise AwsError("InvalidAMIID.Malformed", f'Invalid id: "{image_id}"')
        if all(image.id != image_id for image in images):
            raise AwsError("InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist")
    fits = matching(
        form,
        {
            "image-id": lambda image: [image.id],
            "name": lambda image: [image.name],
            "architecture": lambda image: [image.architecture],
            "state": lambda _: ["available"],
            "root-device-type": lambda _: ["ebs"],
        },
        lambda _: {},
    )
    shown: list[Value] = []
    for image in images:
        if fits(image) and (not wanted or image.id in wanted):
            root: Value = [
                {
                    "deviceName": image.root_device,
                    "ebs": {"volumeSize": image.root_gb, "volumeType": "gp2", "deleteOnTermination": True, "encrypted": False},
                }
            ]
            shown.append(
                {
                    "imageId": image.id,
                    "name": image.name,
                    "imageState": "available",
                    "imageOwnerId": "898082745236",
                    "isPublic": True,
                    "architecture": image.architecture,
                    "imageType": "machine",
                    "rootDeviceType": "ebs",
                    "rootDeviceName": image.root_device,
                    "virtualizationType": "hvm",
                    "hypervisor": "xen",
                    "platformDetails": "Linux/UNIX",
                    "blockDeviceMapping": root,
                    "tagSet": [],
                }
            )
    part, token = page(form, shown, world.page_rows)
    return {"imagesSet": part, "nextToken": token or None}


def describe_instance_types(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """Types sold in the region. An unknown one fails the call (facts/cloud-api.md §1.6)."""
    catalogue = world.fleet.catalogue
    sold = [kind for kind in catalogue.types.values() if any((zone.name, kind.name) in catalogue.offered for zone in catalogue.zones(region))]
    wanted = form.listed("InstanceType")
    unknown = [name for name in wanted if name not in {kind.name for kind in sold}]
    if len(wanted) > 100:
        raise AwsError("InvalidParameterValue", "At most 100 instance types can be named.")
    if unknown:
        raise AwsError("InvalidInstanceType", f"The following supplied instance types do not exist: [{', '.join(unknown)}]")
    fits = matching(form, {"instance-type": lambda kind: [kind.name], "supported-usage-class": lambda _: ["spot", "on-demand"]}, lambda _: {})
    rows = [kind for kind in sold if fits(kind) and (not wanted or kind.name in wanted)]
    part, token = page(form, rows, min(100, world.page_rows), high=100)
    shown: list[Value] = [_type_xml(kind) for kind in part]
    return {"instanceTypeSet": shown, "nextToken": token or None}


def _type_xml(kind: InstanceType) -> Value:
    gpus: Value = None
    if kind.gpus:
        card: Mapping[str, Value] = {
            "name": kind.gpu,
            "manufacturer": "NVIDIA",
            "count": kind.gpus,
            "logicalGpuCount": kind.gpus,
            "gpuPartitionSize": "1.0",
            "memoryInfo": {"sizeInMiB": kind.gpu_memory_mib},
        }
        gpus = {"gpus": [card], "totalGpuMemoryInMiB": kind.gpus * kind.gpu_memory_mib}
    disks: Value = None
    if kind.disks:
        disk: Mapping[str, Value] = {"sizeInGB": kind.disk_gb, "count": kind.disks, "type": "ssd"}
        disks = {"totalSizeInGB": kind.disks * kind.disk_gb, "disks": [disk], "nvmeSupport": "required", "encryptionSupport": "required"}
    return {
        "instanceType": kind.name,
        "currentGeneration": True,
        "supportedUsageClasses": ["on-demand", "spot"],
        "supportedRootDeviceTypes": ["ebs"],
        "supportedVirtualizationTypes": ["hvm"],
        "bareMetal": False,
        "hypervisor": "nitro",
        "processorInfo": {"supportedArchitectures": ["x86_64"]},
        "vCpuInfo": {"defaultVCpus": kind.vcpus, "defaultCores": kind.vcpus // 2, "defaultThreadsPerCore": 2},
        "memoryInfo": {"sizeInMiB": kind.memory_mib},
        "instanceStorageSupported": bool(kind.disks),
        "instanceStorageInfo": disks,
        "gpuInfo": gpus,
    }


def describe_instance_type_offerings(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """Which types are sold where: by region, zone name or zone id."""
    catalogue, by = world.fleet.catalogue, form.text("LocationType", "region")
    if by not in {"region", "availability-zone", "availability-zone-id"}:
        raise AwsError("InvalidParameterValue", f"Invalid value '{by}' for LocationType.")
    rows: dict[tuple[str, str], None] = {}
    for zone in catalogue.zones(region):
        location = {"region": region, "availability-zone": zone.name, "availability-zone-id": zone.id}[by]
        for name in catalogue.types:
            if (zone.name, name) in catalogue.offered:
                rows[name, location] = None
    fits = matching(form, {"instance-type": lambda row: [row[0]], "location": lambda row: [row[1]]}, lambda _: {})
    part, token = page(form, [row for row in rows if fits(row)], world.page_rows)
    shown: list[Value] = [{"instanceType": name, "locationType": by, "location": location} for name, location in part]
    return {"instanceTypeOfferingSet": shown, "nextToken": token or None}


ACTIONS: Mapping[str, Action] = {
    "DescribeRegions": describe_regions,
    "DescribeAvailabilityZones": describe_availability_zones,
    "DescribeVpcs": describe_vpcs,
    "DescribeSubnets": describe_subnets,
    "DescribeSecurityGroups": describe_security_groups,
    "CreateSecurityGroup": create_security_group,
    "DeleteSecurityGroup": delete_security_group,
    "CreateTags": create_tags,
    "DescribeImages": describe_images,
    "DescribeInstanceTypes": describe_instance_types,
    "DescribeInstanceTypeOfferings": describe_instance_type_offerings,
}
