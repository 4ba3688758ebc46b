"""What the account's machines look like from outside: DescribeInstances and its relatives, with their lags."""

from __future__ import annotations

import base64
import fnmatch
import re
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import TypeVar

from spotd.core.offer import Market
from spotd.testing.fake_aws.instances import FakeInstance, Reason, RequestStatus, SpotRequest, State, Volume
from spotd.testing.fake_aws.wire import AwsError, Form, Value, page, timestamp
from spotd.testing.fake_aws.world import Action, World, tag_set

T = TypeVar("T")
#: The last so many bytes are what GetConsoleOutput gives.
_CONSOLE_BYTES = 65_536


def matching(form: Form, known: Mapping[str, Callable[[T], Collection[str]]], tags: Callable[[T], Mapping[str, str]]) -> Callable[[T], bool]:
    """Whether a row passes every filter: one value of each must fit, with * and ? as wildcards."""
    tests: list[Callable[[T], bool]] = []
    for name, values in form.filters().items():
        patterns = [re.compile(fnmatch.translate(value.replace("[", "[[]"))) for value in values]
        if name in known:
            read = known[name]
        elif name.startswith("tag:"):
            read = _tag_reader(tags, name.removeprefix("tag:"))
        elif name == "tag-key":
            read = _key_reader(tags)
        else:
            raise AwsError("InvalidParameterValue", f"The filter '{name}' is invalid")
        tests.append(_tester(read, patterns))
    return lambda row: all(test(row) for test in tests)


def _tag_reader(tags: Callable[[T], Mapping[str, str]], key: str) -> Callable[[T], Collection[str]]:
    return lambda row: [value for name, value in tags(row).items() if name == key]


def _key_reader(tags: Callable[[T], Mapping[str, str]]) -> Callable[[T], Collection[str]]:
    return lambda row: list(tags(row))


def _tester(read: Callable[[T], Collection[str]], patterns: list[re.Pattern[str]]) -> Callable[[T], bool]:
    return lambda row: any(pattern.match(value) for value in read(row) for pattern in patterns)


def _some(value: str | None) -> Collection[str]:
    return [] if not value else [value]


Seen = tuple[FakeInstance, tuple[State, Reason]]
_INSTANCE_FILTERS: Mapping[str, Callable[[Seen], Collection[str]]] = {
    "instance-id": lambda row: [row[0].instance_id],
    "instance-type": lambda row: [row[0].instance_type],
    "instance-state-name": lambda row: [row[1][0].value],
    "instance-state-code": lambda row: [str(row[1][0].code)],
    "instance-lifecycle": lambda row: ["spot"] if row[0].lifecycle is Market.SPOT else [],
    "client-token": lambda row: _some(row[0].client_token),
    "availability-zone": lambda row: [row[0].zone],
    "availability-zone-id": lambda row: [row[0].zone_id],
    "image-id": lambda row: [row[0].image_id],
    "subnet-id": lambda row: [row[0].subnet_id],
    "vpc-id": lambda row: [row[0].vpc_id],
    "spot-instance-request-id": lambda row: _some(row[0].spot_request_id),
    "state-reason-code": lambda row: _some(row[1][1].code),
    "private-ip-address": lambda row: [row[0].private_address],
    "instance.group-id": lambda row: row[0].security_groups,
}


def _shown(world: World, region: str, form: Form) -> list[Seen]:
    """The region's rows that a description may show, in the state it shows. An id that is unknown, or not yet known, fails the call."""
    fleet, now = world.fleet, world.fleet.clock.now()
    rows = {i.instance_id: (i, fleet.seen(i, now)) for i in fleet.in_region(region) if fleet.shown(i, now)}
    wanted = form.listed("InstanceId")
    if wanted and "MaxResults" in form.values:
        raise AwsError("InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
    for instance_id in wanted:
        if not re.fullmatch(r"i-([0-9a-f]{8}|[0-9a-f]{17})", instance_id):
            raise AwsError("InvalidInstanceID.Malformed", f'Invalid id: "{instance_id}"')
        if instance_id not in rows:
            raise AwsError("InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist")
    return [rows[instance_id] for instance_id in dict.fromkeys(wanted)] if wanted else list(rows.values())


def describe_instances(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """A reservation for each instance."""
    now = world.fleet.clock.now()
    fits = matching(form, _INSTANCE_FILTERS, lambda row: world.fleet.tags_seen(row[0], now))
    rows, token = page(form, [row for row in _shown(world, region, form) if fits(row)], world.page_rows)
    reservations: list[Value] = [
        {
            "reservationId": "r-" + instance.instance_id.removeprefix("i-"),
            "ownerId": world.account,
            "groupSet": [],
            "instancesSet": [instance_xml(world, instance, seen, world.fleet.tags_seen(instance, now))],
        }
        for instance, seen in rows
    ]
    return {"reservationSet": reservations, "nextToken": token or None}


def instance_xml(world: World, instance: FakeInstance, seen: tuple[State, Reason], tags: Mapping[str, str]) -> Mapping[str, Value]:
    """One instance. A terminated one has lost its network."""
    state, reason = seen
    gone = state is State.TERMINATED
    groups: list[Value] = (
        [] if gone else [{"groupId": g, "groupName": world.network.group(instance.region, g).name} for g in instance.security_groups]
    )
    return {
        "instanceId": instance.instance_id,
        "imageId": instance.image_id,
        "instanceState": {"code": state.code, "name": state.value},
        "privateDnsName": "" if gone else f"ip-{instance.private_address.replace('.', '-')}.{instance.region}.compute.internal",
        "dnsName": "",
        "reason": reason.transition,
        "keyName": instance.key_name,
        "amiLaunchIndex": 0,
        "productCodes": [],
        "instanceType": instance.instance_type,
        "launchTime": instance.launched_at,
        "placement": {"availabilityZone": instance.zone, "availabilityZoneId": instance.zone_id, "groupName": "", "tenancy": "default"},
        "monitoring": {"state": "disabled"},
        "subnetId": None if gone else instance.subnet_id,
        "vpcId": None if gone else instance.vpc_id,
        "privateIpAddress": None if gone else instance.private_address,
        "ipAddress": instance.public_address if state is State.RUNNING else None,
        "stateReason": {"code": reason.code, "message": reason.message} if reason.code else None,
        "architecture": instance.architecture,
        "rootDeviceType": "ebs",
        "rootDeviceName": instance.root_device,
        "blockDeviceMapping": [] if gone else [_mapping(volume, instance) for volume in instance.volumes],
        "virtualizationType": "hvm",
        "instanceLifecycle": "spot" if instance.lifecycle is Market.SPOT else None,
        "spotInstanceRequestId": instance.spot_request_id,
        "clientToken": instance.client_token,
        "tagSet": tag_set(tags),
        "groupSet": groups,
        "hypervisor": "xen",
        "networkInterfaceSet": [],
        "iamInstanceProfile": {"arn": instance.instance_profile_arn, "id": "AIPA0"} if instance.instance_profile_arn else None,
        "ebsOptimized": False,
        "metadataOptions": {
            "state": "applied",
            "httpTokens": instance.metadata_options["HttpTokens"],
            "httpPutResponseHopLimit": instance.metadata_options["HttpPutResponseHopLimit"],
            "httpEndpoint": instance.metadata_options["HttpEndpoint"],
            "instanceMetadataTags": instance.metadata_options["InstanceMetadataTags"],
        },
        "platformDetails": "Linux/UNIX",
        "usageOperation": "RunInstances",
        "usageOperationUpdateTime": instance.launched_at,
    }


def _mapping(volume: Volume, instance: FakeInstance) -> Value:
    ebs: Mapping[str, Value] = {
        "volumeId": volume.id,
        "status": "attached",
        "attachTime": instance.launched_at,
        "deleteOnTermination": volume.delete_on_termination,
    }
    return {"deviceName": volume.device, "ebs": ebs}


def describe_instance_status(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """Checks and scheduled events; of running instances unless all are wanted."""
    known: Mapping[str, Callable[[Seen], Collection[str]]] = {
        "instance-state-name": _INSTANCE_FILTERS["instance-state-name"],
        "availability-zone": _INSTANCE_FILTERS["availability-zone"],
        "event.code": lambda row: [event.code for event in row[0].maintenance],
    }
    fits = matching(form, known, lambda _: {})
    rows = [row for row in _shown(world, region, form) if fits(row) and (form.flag("IncludeAllInstances") or row[1][0] is State.RUNNING)]
    part, token = page(form, rows, world.page_rows)
    shown: list[Value] = []
    for instance, (state, _) in part:
        check = "ok" if state is State.RUNNING else "not-applicable"
        events: list[Value] = [
            {"instanceEventId": e.id, "code": e.code, "description": e.description, "notBefore": e.not_before, "notAfter": e.not_after}
            for e in instance.maintenance
        ]
        shown.append(
            {
                "instanceId": instance.instance_id,
                "availabilityZone": instance.zone,
                "eventsSet": events,
                "instanceState": {"code": state.code, "name": state.value},
                "systemStatus": {"status": check, "details": []},
                "instanceStatus": {"status": check, "details": []},
            }
        )
    return {"instanceStatusSet": shown, "nextToken": token or None}


SeenRequest = tuple[SpotRequest, RequestStatus]
_REQUEST_FILTERS: Mapping[str, Callable[[SeenRequest], Collection[str]]] = {
    "spot-instance-request-id": lambda row: [row[0].id],
    "instance-id": lambda row: [row[0].instance_id],
    "state": lambda row: [row[1].state],
    "status-code": lambda row: [row[1].code],
    "status-message": lambda row: [row[1].message],
    "type": lambda row: [row[0].kind],
    "spot-price": lambda row: [row[0].max_price],
    "launched-availability-zone": lambda row: [row[0].zone],
    "launch.instance-type": lambda row: [row[0].instance_type],
}


def _requests(world: World, region: str, form: Form) -> list[SeenRequest]:
    now, lags = world.fleet.clock.now(), world.fleet.lags
    rows = {
        request.id: (request, request.history.at(now - timedelta(seconds=lags.request_s)))
        for request in world.fleet.requests.values()
        if request.region == region
        and now >= request.created_at + timedelta(seconds=lags.request_visible_s)
        and (request.closed_at is None or now < request.closed_at + timedelta(seconds=2 * lags.rows_kept_s))
    }
    wanted = form.listed("SpotInstanceRequestId")
    for request_id in wanted:
        if request_id not in rows:
            raise AwsError("InvalidSpotInstanceRequestID.NotFound", f"The spot instance request ID '{request_id}' does not exist")
    return [rows[request_id] for request_id in dict.fromkeys(wanted)] if wanted else list(rows.values())


def describe_spot_instance_requests(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """Spot requests with their status: the third channel of a reclaim (facts/reclaim.md §0.3)."""
    fits = matching(form, _REQUEST_FILTERS, lambda row: row[0].tags)
    rows, token = page(form, [row for row in _requests(world, region, form) if fits(row)], world.page_rows)
    shown: list[Value] = [
        {
            "spotInstanceRequestId": request.id,
            "spotPrice": request.max_price,
            "type": request.kind,
            "state": status.state,
            "status": {"code": status.code, "message": status.message, "updateTime": timestamp(status.since)},
            "launchSpecification": {
                "imageId": request.image_id,
                "instanceType": request.instance_type,
                "placement": {"availabilityZone": request.zone},
            },
            "instanceId": request.instance_id,
            "createTime": request.created_at,
            "productDescription": "Linux/UNIX",
            "tagSet": tag_set(request.tags),
            "launchedAvailabilityZone": request.zone,
            "launchedAvailabilityZoneId": request.zone_id,
            "instanceInterruptionBehavior": "terminate",
        }
        for request, status in rows
    ]
    return {"spotInstanceRequestSet": shown, "nextToken": token or None}


def cancel_spot_instance_requests(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """Cancel requests; their instances run on, and cost money (facts/reclaim.md §1.8)."""
    now = world.fleet.clock.now()
    shown: list[Value] = []
    for request, _ in _requests(world, region, form) if form.listed("SpotInstanceRequestId") else ():
        if request.status.state in {"open", "active"}:
            world.fleet.set_request(world.fleet.instances[request.instance_id], now, "cancelled", "request-canceled-and-instance-running")
        shown.append({"spotInstanceRequestId": request.id, "state": request.status.state})
    return {"spotInstanceRequestSet": shown}


def get_console_output(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """What the machine wrote on its console."""
    wanted = Form({"InstanceId.1": form.required("InstanceId")})
    [(instance, _)] = _shown(world, region, wanted)
    text = world.console(instance.instance_id)[-_CONSOLE_BYTES:]
    return {"instanceId": instance.instance_id, "timestamp": world.fleet.clock.now(), "output": base64.b64encode(text).decode()}


def describe_volumes(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """Disks: those of live instances, and those that an instance left behind because nobody said to delete them."""
    rows = [(volume, i) for i in world.fleet.in_region(region) for volume in i.volumes if i.alive or not volume.delete_on_termination]
    fits = matching(
        form,
        {
            "status": lambda row: ["in-use" if row[1].alive else "available"],
            "attachment.instance-id": lambda row: [row[1].instance_id] if row[1].alive else [],
            "volume-id": lambda row: [row[0].id],
        },
        lambda row: row[0].tags,
    )
    wanted = form.listed("VolumeId")
    part, token = page(form, [row for row in rows if fits(row) and (not wanted or row[0].id in wanted)], world.page_rows)
    shown: list[Value] = []
    for volume, instance in part:
        attached: list[Value] = [{"volumeId": volume.id, "instanceId": instance.instance_id, "device": volume.device, "status": "attached"}]
        shown.append(
            {
                "volumeId": volume.id,
                "size": volume.gb,
                "volumeType": volume.kind,
                "availabilityZone": instance.zone,
                "status": "in-use" if instance.alive else "available",
                "createTime": instance.launched_at,
                "attachmentSet": attached if instance.alive else [],
                "tagSet": tag_set(volume.tags),
            }
        )
    return {"volumeSet": shown, "nextToken": token or None}


ACTIONS: Mapping[str, Action] = {
    "DescribeInstances": describe_instances,
    "DescribeInstanceStatus": describe_instance_status,
    "DescribeSpotInstanceRequests": describe_spot_instance_requests,
    "CancelSpotInstanceRequests": cancel_spot_instance_requests,
    "GetConsoleOutput": get_console_output,
    "DescribeVolumes": describe_volumes,
}
