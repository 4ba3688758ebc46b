"""RunInstances and TerminateInstances: what is checked in which order, and what a client token is good for."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal

from spotd.core.offer import Market
from spotd.testing.fake_aws.catalogue import digest, made_up_id
from spotd.testing.fake_aws.describing import instance_xml
from spotd.testing.fake_aws.fleet import new_request
from spotd.testing.fake_aws.instances import NO_REASON, FakeInstance, Past, Reason, State, Volume
from spotd.testing.fake_aws.market import Pool, quota_of
from spotd.testing.fake_aws.order import Order, read_order
from spotd.testing.fake_aws.wire import AwsError, Form, Value
from spotd.testing.fake_aws.world import Action, Remembered, World

_METADATA = {"HttpTokens": "optional", "HttpPutResponseHopLimit": "1", "HttpEndpoint": "enabled", "InstanceMetadataTags": "disabled"}


def run_instances(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """Launch, or say why not. The order of the checks is EC2's as far as it is known: the request, the token, limits, price, capacity."""
    order = read_order(world, region, form)
    least, most = form.number("MinCount", 1, 1000, 1), form.number("MaxCount", 1, 1000, 1)
    if form.flag("DryRun"):
        raise AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
    token = form.text("ClientToken")
    key = (region, order.zone.name if order.zone_named else "", token)
    fingerprint = hashlib.sha256(repr(sorted((k, v) for k, v in form.values.items() if k != "ClientToken")).encode()).hexdigest()
    if token and (known := world.tokens.get(key)):
        return _again(world, known, fingerprint)
    count = _granted(world, order, least, most)
    now = world.fleet.clock.now()
    made = tuple(_make(world, order, form, now, number) for number in range(count))
    reservation = made_up_id("r", made[0].instance_id)
    if token:
        world.tokens[key] = Remembered(fingerprint, tuple(instance.instance_id for instance in made), reservation)
    return _reservation(world, reservation, made)


def _again(world: World, known: Remembered, fingerprint: str) -> Mapping[str, Value]:
    """A token that was used before: the same request is answered with the same instances, if they live."""
    if known.fingerprint != fingerprint:
        raise AwsError(
            "IdempotentParameterMismatch", "Arguments on this idempotent request are inconsistent with arguments used in previous request(s)."
        )
    made = tuple(world.fleet.instances[instance_id] for instance_id in known.instance_ids)
    if all(instance.state in (State.SHUTTING_DOWN, State.TERMINATED) for instance in made):
        raise AwsError(
            "IdempotentInstanceTerminated", "The instances of the previous request with this client token are terminated: use a new token."
        )
    return _reservation(world, known.reservation_id, made)


def _reservation(world: World, reservation: str, made: tuple[FakeInstance, ...]) -> Mapping[str, Value]:
    rows: list[Value] = [instance_xml(world, instance, (instance.state, instance.state_reason), instance.tags) for instance in made]
    return {"reservationId": reservation, "ownerId": world.account, "groupSet": [], "instancesSet": rows}


def _granted(world: World, order: Order, least: int, most: int) -> int:
    """How many there are to be had. Raises where it is not even the least wanted."""
    quota = quota_of(order.kind.name, order.market)
    if quota is not None:
        limit = world.market.limit(order.zone.region, quota)
        free = (limit - world.fleet.vcpus_in_use(order.zone.region, quota.code)) // order.kind.vcpus
        if free < least:
            if order.market is Market.SPOT:
                raise AwsError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
            raise AwsError(
                "VcpuLimitExceeded",
                f"You have requested more vCPU capacity than your current vCPU limit of {limit} allows for the instance bucket that the specified "
                "instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
            )
        most = min(most, free)
    if order.market is Market.SPOT:
        price = world.market.price(order.zone.name, order.kind.name, world.fleet.clock.now())
        if price is None:
            raise _no_capacity(order)
        if order.max_price is not None and order.max_price < price:
            raise AwsError(
                "SpotMaxPriceTooLow",
                f"Your Spot request price of {order.max_price} is lower than the minimum required Spot request fulfillment price of {price}.",
            )
    count = 0
    while count < most and world.market.has(order.pool):
        world.market.take(order.pool)
        count += 1
    if count < least:
        raise _no_capacity(order)
    return count


def _no_capacity(order: Order) -> AwsError:
    """HTTP 500, which SDKs repeat by themselves (facts/reclaim.md §1.10)."""
    if order.market is Market.SPOT:
        return AwsError("InsufficientInstanceCapacity", "There is no Spot capacity available that matches your request.", 500)
    sentence = (
        f"We currently do not have sufficient {order.kind.name} capacity in the Availability Zone you requested ({order.zone.name}). "
        "Our system will be working on provisioning additional capacity."
    )
    return AwsError("InsufficientInstanceCapacity", sentence, 500)


def _make(world: World, order: Order, form: Form, now: datetime, number: int) -> FakeInstance:
    fleet = world.fleet
    instance_id = made_up_id("i", world.account, len(fleet.instances), now)
    spot = order.market is Market.SPOT
    instance = FakeInstance(
        instance_id=instance_id,
        region=order.zone.region,
        zone=order.zone.name,
        zone_id=order.zone.id,
        instance_type=order.kind.name,
        lifecycle=order.market,
        launched_at=now,
        client_token=form.text("ClientToken"),
        tags=dict(order.tags["instance"]),
        image_id=order.image.id,
        subnet_id=order.subnet_id,
        vpc_id=order.vpc_id,
        security_groups=order.groups,
        user_data=order.user_data,
        volumes=tuple(
            Volume(made_up_id("vol", instance_id, d.device), d.device, d.gb, d.kind, d.delete_on_termination, order.tags["volume"])
            for d in order.disks
        ),
        metadata_options={key: form.text(f"MetadataOptions.{key}", default) for key, default in _METADATA.items()},
        shutdown_behavior=form.text("InstanceInitiatedShutdownBehavior", "stop"),
        architecture=order.image.architecture,
        root_device=order.image.root_device,
        private_address=f"172.31.{digest(instance_id) % 250}.{(digest(instance_id, number) % 250) + 4}",
        public_address=f"203.0.113.{digest(instance_id, 'public') % 250 + 1}" if order.public else None,
        key_name=form.text("KeyName") or None,
        instance_profile_arn=order.profile_arn,
        max_price=None if order.max_price is None else str(order.max_price),
        spot_request_id=f"sir-{digest(instance_id) % 16**8:08x}" if spot else None,
        history=Past(now, (State.PENDING, NO_REASON)),
    )
    request = None
    if spot and instance.spot_request_id:
        on_demand = fleet.catalogue.on_demand.get((order.zone.region, order.kind.name), Decimal(0))
        limit = str(on_demand if order.max_price is None else order.max_price)
        request = new_request(instance, instance.spot_request_id, order.request_kind, dict(order.tags["spot-instances-request"]), limit)
    fleet.add(instance, request, _failure(world, order.pool))
    return instance


def _failure(world: World, pool: Pool) -> Reason | None:
    """Why the next launch of a pool is to fail while it starts, if it is."""
    failing = world.failing.get(pool)
    if failing is None or failing.times == 0:
        return None
    if failing.times is not None:
        failing.times -= 1
    return failing.reason


def terminate_instances(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """End instances: all that are named, or none where one of them is unknown (facts/cloud-api.md §2.2)."""
    fleet, now = world.fleet, world.fleet.clock.now()
    named: list[FakeInstance] = []
    for instance_id in form.listed("InstanceId"):
        if not re.fullmatch(r"i-([0-9a-f]{8}|[0-9a-f]{17})", instance_id):
            raise AwsError("InvalidInstanceID.Malformed", f'Invalid id: "{instance_id}"')
        instance = fleet.instances.get(instance_id)
        if instance is None or instance.region != region or not _known(world, instance, now):
            raise AwsError("InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist")
        named.append(instance)
    if not named:
        raise AwsError("MissingParameter", "The request must contain the parameter InstanceId")
    if form.flag("DryRun"):
        raise AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
    rows: list[Value] = []
    for instance in named:
        before = instance.state
        fleet.terminate(instance, now)
        rows.append({"instanceId": instance.instance_id, "currentState": _state(instance.state), "previousState": _state(before)})
    return {"instancesSet": rows}


def _known(world: World, instance: FakeInstance, now: datetime) -> bool:
    lags = world.fleet.lags
    if now < instance.launched_at + timedelta(seconds=lags.terminate_s):
        return False
    return instance.gone_at is None or now < instance.gone_at + timedelta(seconds=lags.rows_kept_s)


def _state(state: State) -> Value:
    return {"code": state.code, "name": state.value}


ACTIONS: Mapping[str, Action] = {"RunInstances": run_instances, "TerminateInstances": terminate_instances}
