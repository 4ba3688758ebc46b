"""The fake AWS account behaves as the facts say AWS does, seen through boto3. `test_fake_aws_reclaims.py` has what happens to instances."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, HTTPClientError

from spotd.core.offer import Market
from spotd.testing import FakeClock
from spotd.testing.fake_aws import FakeAws, Lags, Pool, State
from tests.contract.aws_clients import client_of

REGION, ZONE = "us-west-2", "us-west-2a"
DLAMI = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"


@pytest.fixture
def clock() -> FakeClock:
    """Time to step."""
    return FakeClock()


@pytest.fixture
def aws(clock: FakeClock) -> Iterator[FakeAws]:
    """An empty account."""
    with FakeAws(clock) as fake:
        yield fake


@pytest.fixture
def ec2(aws: FakeAws) -> Any:
    """EC2 in Oregon."""
    return client_of(aws, "ec2")


def _order(ec2: Any, **changes: object) -> dict[str, Any]:
    """A request for a spot g5.xlarge in ZONE."""
    image = ec2.describe_images()["Images"][0]["ImageId"]
    subnet = _subnet(ec2, str(changes.pop("zone", ZONE)))
    spot: dict[str, object] = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}}
    request: dict[str, Any] = {
        "ImageId": image,
        "InstanceType": "g5.xlarge",
        "MinCount": 1,
        "MaxCount": 1,
        "SubnetId": subnet,
        "ClientToken": "token-1",
        "InstanceInitiatedShutdownBehavior": "terminate",
        "InstanceMarketOptions": spot,
        "UserData": "#!/bin/sh\nexit 0\n",
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": [{"Key": "spotd:job", "Value": "j"}]} for kind in ("instance", "volume", "spot-instances-request")
        ],
        "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 100, "VolumeType": "gp3", "DeleteOnTermination": True}}],
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 2, "HttpEndpoint": "enabled"},
    }
    request |= changes
    return {key: value for key, value in request.items() if value is not None}


def _on_demand(ec2: Any, **changes: object) -> dict[str, Any]:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "spotd:job", "Value": "j"}]}]
    return _order(ec2, **{"InstanceMarketOptions": None, "TagSpecifications": tags, **changes})


def _subnet(ec2: Any, zone: str) -> str:
    [subnet] = ec2.describe_subnets(Filters=[{"Name": "availability-zone", "Values": [zone]}])["Subnets"]
    return str(subnet["SubnetId"])


def _launch(ec2: Any, **changes: object) -> str:
    [instance] = ec2.run_instances(**_order(ec2, **changes))["Instances"]
    return str(instance["InstanceId"])


def _listed(ec2: Any, *filters: tuple[str, str]) -> list[dict[str, Any]]:
    pages = ec2.get_paginator("describe_instances").paginate(Filters=[{"Name": name, "Values": [value]} for name, value in filters])
    return [instance for page in pages for reservation in page["Reservations"] for instance in reservation["Instances"]]


def _refused(call: Callable[[], object]) -> tuple[str, int]:
    with pytest.raises(ClientError) as refused:
        call()
    return refused.value.response["Error"]["Code"], refused.value.response["ResponseMetadata"]["HTTPStatusCode"]


# Launching


def test_a_launched_instance_is_what_was_ordered(aws: FakeAws, ec2: Any) -> None:
    """Type, place, tags in the call (volume and spot request, too), disks, metadata options, user data: all as the request says."""
    [instance] = ec2.run_instances(**_order(ec2))["Instances"]
    assert (instance["State"]["Name"], instance["InstanceLifecycle"], instance["ClientToken"]) == ("pending", "spot", "token-1")
    assert (instance["Placement"]["AvailabilityZone"], instance["InstanceType"]) == (ZONE, "g5.xlarge")
    assert instance["Tags"] == [{"Key": "spotd:job", "Value": "j"}]
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    [volume] = ec2.describe_volumes(Filters=[{"Name": "tag:spotd:job", "Values": ["j"]}])["Volumes"]
    assert (volume["Size"], volume["VolumeType"], volume["State"]) == (100, "gp3", "in-use")
    [request] = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    assert (request["InstanceId"], request["SpotInstanceRequestId"]) == (instance["InstanceId"], instance["SpotInstanceRequestId"])
    assert (request["State"], request["Status"]["Code"], request["Tags"]) == ("active", "fulfilled", [{"Key": "spotd:job", "Value": "j"}])
    [truth] = aws.instances
    assert (truth.user_data, truth.lifecycle, truth.state) == (b"#!/bin/sh\nexit 0\n", Market.SPOT, State.PENDING)


def test_the_same_token_is_the_same_instance(aws: FakeAws, ec2: Any) -> None:
    """The identical request again makes no second instance (facts/reclaim.md §1.10)."""
    order = _order(ec2)
    first, second = (ec2.run_instances(**order)["Instances"][0]["InstanceId"] for _ in range(2))
    assert first == second
    assert len(aws.instances) == 1


def test_a_token_is_for_one_request(aws: FakeAws, ec2: Any) -> None:
    """Other parameters with a used token: IdempotentParameterMismatch, and nothing is launched."""
    _launch(ec2)
    assert _refused(lambda: _launch(ec2, UserData="#!/bin/sh\nexit 1\n")) == ("IdempotentParameterMismatch", 400)
    assert _refused(lambda: ec2.run_instances(**_on_demand(ec2))) == ("IdempotentParameterMismatch", 400)
    assert len(aws.instances) == 1


def test_a_token_is_zonal(ec2: Any) -> None:
    """In another zone the same token is a second instance, without a word (facts/reclaim.md §0.13)."""
    assert _launch(ec2) != _launch(ec2, zone="us-west-2b")


def test_a_dead_instances_token_is_spent(clock: FakeClock, ec2: Any) -> None:
    """IdempotentInstanceTerminated (facts/cloud-api.md §0.2)."""
    ec2.terminate_instances(InstanceIds=[_launch(ec2)])
    assert _refused(lambda: _launch(ec2)) == ("IdempotentInstanceTerminated", 400)
    clock.step(7200)
    assert _refused(lambda: _launch(ec2)) == ("IdempotentInstanceTerminated", 400)


def test_threads_with_one_token_get_one_instance(aws: FakeAws, ec2: Any) -> None:
    """At the same moment, too."""
    order = _order(ec2)
    ids: list[str] = []
    threads = [threading.Thread(target=lambda: ids.append(ec2.run_instances(**order)["Instances"][0]["InstanceId"])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 8
    assert set(ids) == {aws.instances[0].instance_id}


def test_an_empty_pool_is_http_500(aws: FakeAws, ec2: Any) -> None:
    """Capacity is per type, zone and market; its lack is a 500, which SDKs repeat by themselves. A token that was refused can be used again."""
    aws.exhaust(REGION, ZONE, "g5.xlarge", Market.SPOT)
    assert _refused(lambda: _launch(ec2)) == ("InsufficientInstanceCapacity", 500)
    assert _launch(ec2, zone="us-west-2b", ClientToken="b")
    assert ec2.run_instances(**_on_demand(ec2, ClientToken="c"))
    aws.restock(REGION, ZONE, "g5.xlarge", Market.SPOT)
    assert _launch(ec2)


def test_a_pool_can_hold_a_few(aws: FakeAws, ec2: Any) -> None:
    """So many, and no more."""
    aws.stock(Pool(REGION, ZONE, "g5.xlarge", Market.SPOT), 1)
    _launch(ec2)
    assert _refused(lambda: _launch(ec2, ClientToken="second")) == ("InsufficientInstanceCapacity", 500)


def test_quotas_are_in_vcpus(aws: FakeAws, ec2: Any) -> None:
    """A quota of 8 holds two machines of 4 vCPUs; spot and on-demand count apart, and say no in different words."""
    aws.set_quota(REGION, "L-3819A6DF", 8)
    aws.set_quota(REGION, "L-DB2E81BA", 3)
    ids = [_launch(ec2, ClientToken=f"{n}") for n in range(2)]
    assert _refused(lambda: _launch(ec2, ClientToken="2")) == ("MaxSpotInstanceCountExceeded", 400)
    assert _refused(lambda: ec2.run_instances(**_on_demand(ec2))) == ("VcpuLimitExceeded", 400)
    ec2.terminate_instances(InstanceIds=ids[:1])
    assert _launch(ec2, ClientToken="3")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"InstanceType": "no-such-type"}, "InvalidParameterValue"),
        ({"ImageId": "ami-0123456789abcdef0"}, "InvalidAMIID.NotFound"),
        ({"ImageId": "nonsense"}, "InvalidAMIID.Malformed"),
        ({"SubnetId": "subnet-0123456789abcdef0"}, "InvalidSubnetID.NotFound"),
        ({"SecurityGroupIds": ["sg-0123456789abcdef0"]}, "InvalidGroup.NotFound"),
        ({"SubnetId": None, "Placement": {"AvailabilityZone": "us-west-2z"}}, "InvalidParameterValue"),
        ({"UserData": "x" * 16_385}, "InvalidUserData.Malformed"),
        ({"KeyName": "nobodys"}, "InvalidKeyPair.NotFound"),
        ({"IamInstanceProfile": {"Name": "nobodys"}}, "InvalidParameterValue"),
        ({"ClientToken": "x" * 65}, "InvalidParameterValue"),
        ({"TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "aws:x", "Value": "y"}]}]}, "InvalidParameterValue"),
        ({"TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": f"{n}", "Value": ""} for n in range(51)]}]}, "TagLimitExceeded"),
        ({"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.001"}}}, "InvalidParameterValue"),
        ({"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.0011"}}}, "SpotMaxPriceTooLow"),
        ({"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "persistent"}}}, "InvalidParameterCombination"),
        ({"BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 8}}]}, "InvalidBlockDeviceMapping"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0, "AssociatePublicIpAddress": True}]}, "InvalidParameterCombination"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(aws: FakeAws, ec2: Any, changes: dict[str, object], code: str) -> None:
    """With EC2's code, HTTP 400, and nothing is launched."""
    assert _refused(lambda: _launch(ec2, **changes)) == (code, 400)
    assert aws.instances == []


def test_a_type_that_the_zone_does_not_have_is_unsupported(aws: FakeAws, ec2: Any) -> None:
    """`Unsupported`, which is not the same as unknown."""
    aws.withdraw("p5.48xlarge", REGION, ZONE)
    assert _refused(lambda: _launch(ec2, InstanceType="p5.48xlarge")) == ("Unsupported", 400)
    assert _launch(ec2, InstanceType="p5.48xlarge", zone="us-west-2b")


def test_a_dry_run_launches_nothing(aws: FakeAws, ec2: Any) -> None:
    """DryRunOperation is HTTP 412; what is wrong with the request is said before."""
    assert _refused(lambda: _launch(ec2, DryRun=True)) == ("DryRunOperation", 412)
    assert _refused(lambda: _launch(ec2, DryRun=True, InstanceType="no-such-type"))[0] == "InvalidParameterValue"
    assert _refused(lambda: ec2.describe_regions(DryRun=True)) == ("DryRunOperation", 412)
    assert aws.instances == []


def test_an_instance_profile_must_exist(aws: FakeAws, ec2: Any) -> None:
    """One that IAM knows goes with the instance."""
    iam = client_of(aws, "iam", "us-east-1")
    arn = iam.create_instance_profile(InstanceProfileName="trainer")["InstanceProfile"]["Arn"]
    [instance] = ec2.run_instances(**_order(ec2, IamInstanceProfile={"Name": "trainer"}))["Instances"]
    assert instance["IamInstanceProfile"]["Arn"] == arn


# Life and listing


def test_an_instance_boots_and_ends_with_time(clock: FakeClock, ec2: Any) -> None:
    """pending, running; after the call shutting-down, then terminated, for `Client.UserInitiatedShutdown`; the request says by whom."""
    ident = _launch(ec2)
    clock.step(5)
    assert _listed(ec2)[0]["State"] == {"Code": 16, "Name": "running"}
    [change] = ec2.terminate_instances(InstanceIds=[ident])["TerminatingInstances"]
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "shutting-down")
    clock.step(10)
    [row] = _listed(ec2)
    assert (row["State"]["Name"], row["StateReason"]["Code"]) == ("terminated", "Client.UserInitiatedShutdown")
    assert row["StateTransitionReason"] == "User initiated (2026-01-01 00:00:05 GMT)"
    [request] = ec2.describe_spot_instance_requests(Filters=[{"Name": "instance-id", "Values": [ident]}])["SpotInstanceRequests"]
    assert (request["State"], request["Status"]["Code"]) == ("closed", "instance-terminated-by-user")
    [again] = ec2.terminate_instances(InstanceIds=[ident])["TerminatingInstances"]
    assert again["CurrentState"]["Name"] == "terminated"


def test_one_unknown_id_ends_nothing(clock: FakeClock, ec2: Any) -> None:
    """A wrong id in the list fails the whole call (facts/cloud-api.md §2.2)."""
    ident = _launch(ec2)
    assert _refused(lambda: ec2.terminate_instances(InstanceIds=[ident, "i-0123456789abcdef0"])) == ("InvalidInstanceID.NotFound", 400)
    assert _refused(lambda: ec2.terminate_instances(InstanceIds=["nonsense"])) == ("InvalidInstanceID.Malformed", 400)
    clock.step(60)
    assert [row["State"]["Name"] for row in _listed(ec2)] == ["running"]


def test_rows_age_out_and_tags_go_first(clock: FakeClock, ec2: Any) -> None:
    """A terminated instance loses its tags, and an hour later its row; then its id is unknown."""
    ident = _launch(ec2)
    ec2.terminate_instances(InstanceIds=[ident])
    clock.step(60)
    assert len(_listed(ec2, ("tag:spotd:job", "j"))) == 1
    clock.step(1800)
    assert _listed(ec2, ("tag:spotd:job", "j")) == []
    assert _listed(ec2)[0]["Tags"] == []
    clock.step(1800)
    assert _listed(ec2) == []
    assert _refused(lambda: ec2.describe_instances(InstanceIds=[ident])) == ("InvalidInstanceID.NotFound", 400)
    assert _refused(lambda: ec2.terminate_instances(InstanceIds=[ident])) == ("InvalidInstanceID.NotFound", 400)


def test_descriptions_lag(clock: FakeClock) -> None:
    """A new instance is not there yet, an ended one not gone yet, each by its own lag; the truth is what it is."""
    lags = Lags(visible_s=10, listing_s=20, request_visible_s=30, terminate_s=3)
    with FakeAws(clock, lags=lags) as aws:
        ec2 = client_of(aws, "ec2")
        ident = _launch(ec2)
        assert _listed(ec2, ("client-token", "token-1")) == []
        assert _refused(lambda: ec2.describe_instances(InstanceIds=[ident]))[0] == "InvalidInstanceID.NotFound"
        assert _refused(lambda: ec2.terminate_instances(InstanceIds=[ident]))[0] == "InvalidInstanceID.NotFound"
        clock.step(10)
        assert [row["State"]["Name"] for row in _listed(ec2)] == ["pending"]
        assert ec2.describe_spot_instance_requests()["SpotInstanceRequests"] == []
        clock.step(20)
        assert [row["State"]["Name"] for row in _listed(ec2)] == ["running"]
        assert len(ec2.describe_spot_instance_requests()["SpotInstanceRequests"]) == 1
        ec2.terminate_instances(InstanceIds=[ident])
        clock.step(15)
        assert [row["State"]["Name"] for row in _listed(ec2)] == ["running"]
        assert aws.instance(ident).state is State.TERMINATED


def test_filters_select(ec2: Any) -> None:
    """By tag, key, state, token, market, zone; with wildcards; one that is unknown is refused, never passed over."""
    spot = _launch(ec2)
    [other] = ec2.run_instances(**_on_demand(ec2, ClientToken="token-2", zone="us-west-2b"))["Instances"]
    both = {spot, other["InstanceId"]}
    for name, value, wanted in (
        ("tag:spotd:job", "j", both),
        ("tag:spotd:job", "k", set[str]()),
        ("tag-key", "spotd:*", both),
        ("client-token", "token-1", {spot}),
        ("instance-lifecycle", "spot", {spot}),
        ("availability-zone", "us-west-2b", {other["InstanceId"]}),
        ("instance-state-name", "pending", both),
        ("instance-id", spot, {spot}),
    ):
        assert {row["InstanceId"] for row in _listed(ec2, (name, value))} == wanted, name
    assert _refused(lambda: _listed(ec2, ("tokn", "x")))[0] == "InvalidParameterValue"


def test_listings_have_pages(aws: FakeAws, ec2: Any) -> None:
    """A page holds no more than it may, and its token is good for the same question only."""
    aws.world.page_rows = 3
    ids = {_launch(ec2, ClientToken=f"{n}") for n in range(7)}
    assert {row["InstanceId"] for row in _listed(ec2)} == ids
    first = ec2.describe_instances()
    assert len(first["Reservations"]) == 3
    with_filter = [{"Name": "instance-lifecycle", "Values": ["spot"]}]
    assert _refused(lambda: ec2.describe_instances(NextToken=first["NextToken"], Filters=with_filter))[0] == "InvalidNextToken"
    assert _refused(lambda: ec2.describe_instances(InstanceIds=[next(iter(ids))], MaxResults=5))[0] == "InvalidParameterCombination"


def test_a_launch_can_fail_while_it_starts(aws: FakeAws, clock: FakeClock, ec2: Any) -> None:
    """From pending straight to terminated, with the reason that was set; the next one runs."""
    aws.fail_launches(Pool(REGION, ZONE, "g5.xlarge", Market.SPOT), "Server.InternalError")
    _launch(ec2)
    _launch(ec2, ClientToken="next")
    clock.step(6)
    rows = {row["ClientToken"]: row for row in _listed(ec2)}
    assert (rows["token-1"]["State"]["Name"], rows["token-1"]["StateReason"]["Code"]) == ("terminated", "Server.InternalError")
    assert rows["next"]["State"]["Name"] == "running"


def test_a_cancelled_request_leaves_its_instance(clock: FakeClock, ec2: Any) -> None:
    """It runs on, and costs money (facts/reclaim.md §1.8)."""
    _launch(ec2)
    clock.step(5)
    [request] = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    [gone] = ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[request["SpotInstanceRequestId"]])["CancelledSpotInstanceRequests"]
    assert gone["State"] == "cancelled"
    [after] = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    assert (after["State"], after["Status"]["Code"]) == ("cancelled", "request-canceled-and-instance-running")
    assert [row["State"]["Name"] for row in _listed(ec2)] == ["running"]


# Places


def test_regions_and_zones(aws: FakeAws, ec2: Any) -> None:
    """A disabled region is only among all; zones have a name and an id, and the letters say nothing."""
    aws.disable_region("eu-west-1")
    assert [row["RegionName"] for row in ec2.describe_regions()["Regions"]] == ["us-east-1", "us-west-2"]
    everything = {row["RegionName"]: row["OptInStatus"] for row in ec2.describe_regions(AllRegions=True)["Regions"]}
    assert everything["eu-west-1"] == "not-opted-in"
    assert _refused(lambda: client_of(aws, "ec2", "eu-west-1").describe_instances()) == ("AuthFailure", 401)
    assert _refused(lambda: client_of(aws, "ec2", "no-such-region-1").describe_regions()) == ("AuthFailure", 401)
    zones = ec2.describe_availability_zones()["AvailabilityZones"]
    assert {zone["ZoneName"]: zone["ZoneId"] for zone in zones} == {"us-west-2a": "usw2-az6", "us-west-2b": "usw2-az1", "us-west-2c": "usw2-az2"}
    assert "us-west-2-lax-1a" in {zone["ZoneName"] for zone in ec2.describe_availability_zones(AllAvailabilityZones=True)["AvailabilityZones"]}


def test_networks_and_images(aws: FakeAws, ec2: Any) -> None:
    """A default VPC with a subnet per zone and a group; groups can be made once, and removed; SSM names the region's image."""
    [vpc] = ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"]
    subnets = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
    assert {subnet["VpcId"] for subnet in subnets} == {vpc["VpcId"]}
    group = ec2.create_security_group(GroupName="spotd", Description="d", VpcId=vpc["VpcId"])["GroupId"]
    ec2.create_tags(Resources=[group], Tags=[{"Key": "a", "Value": "b"}])
    [shown] = ec2.describe_security_groups(Filters=[{"Name": "group-name", "Values": ["spotd"]}])["SecurityGroups"]
    assert (shown["GroupId"], shown["Tags"], shown["IpPermissions"]) == (group, [{"Key": "a", "Value": "b"}], [])
    assert _refused(lambda: ec2.create_security_group(GroupName="spotd", Description="d"))[0] == "InvalidGroup.Duplicate"
    ec2.delete_security_group(GroupId=group)
    assert _refused(lambda: ec2.describe_security_groups(GroupIds=[group]))[0] == "InvalidGroup.NotFound"
    image = client_of(aws, "ssm").get_parameter(Name=DLAMI)["Parameter"]["Value"]
    assert image != client_of(aws, "ssm", "eu-west-1").get_parameter(Name=DLAMI)["Parameter"]["Value"]
    [described] = ec2.describe_images(ImageIds=[image])["Images"]
    assert described["RootDeviceName"] == "/dev/sda1"
    assert _refused(lambda: client_of(aws, "ssm").get_parameter(Name="/aws/service/nothing"))[0] == "ParameterNotFound"


def test_an_account_may_have_no_default_vpc(aws: FakeAws, ec2: Any) -> None:
    """It was deleted: then a launch names a subnet, or fails."""
    order = _order(ec2, SubnetId=None)
    aws.world.network.remove_default(REGION)
    assert ec2.describe_vpcs()["Vpcs"] == []
    assert _refused(lambda: ec2.run_instances(**order)) == ("VPCIdNotSpecified", 400)


def test_types_and_offerings(aws: FakeAws, ec2: Any) -> None:
    """What a type is, and where it is sold, by zone name and zone id; an unknown type fails the call."""
    [kind] = ec2.describe_instance_types(InstanceTypes=["p5.48xlarge"])["InstanceTypes"]
    assert (kind["VCpuInfo"]["DefaultVCpus"], kind["GpuInfo"]["Gpus"][0]["Name"], kind["GpuInfo"]["Gpus"][0]["Count"]) == (192, "H100", 8)
    assert kind["InstanceStorageInfo"]["TotalSizeInGB"] == 30_400
    assert _refused(lambda: ec2.describe_instance_types(InstanceTypes=["p5.48xlarge", "x9.large"]))[0] == "InvalidInstanceType"
    aws.withdraw("p5.48xlarge", REGION, ZONE)
    wanted = [{"Name": "instance-type", "Values": ["p5.48xlarge"]}]
    rows = ec2.describe_instance_type_offerings(LocationType="availability-zone-id", Filters=wanted)["InstanceTypeOfferings"]
    assert {row["Location"] for row in rows} == {"usw2-az1", "usw2-az2"}


# Prices


def _prices(ec2: Any, **question: object) -> list[dict[str, Any]]:
    return [row for page in ec2.get_paginator("describe_spot_price_history").paginate(**question) for row in page["SpotPriceHistory"]]


def test_now_gives_the_last_change(aws: FakeAws, clock: FakeClock, ec2: Any) -> None:
    """With StartTime=now there is one row per type, zone and product, and its time is that of the last change, not of the question."""
    clock.step(600)
    aws.set_price(REGION, ZONE, "g5.xlarge", "0.1234")
    clock.step(7200)
    rows = _prices(ec2, StartTime=clock.now(), InstanceTypes=["g5.xlarge"], ProductDescriptions=["Linux/UNIX", "Linux/UNIX (Amazon VPC)"])
    by_zone = {row["AvailabilityZone"]: row for row in rows}
    assert len(rows) == len(by_zone) == 3
    assert (by_zone[ZONE]["SpotPrice"], by_zone[ZONE]["AvailabilityZoneId"]) == ("0.123400", "usw2-az6")
    assert by_zone[ZONE]["Timestamp"] == clock.now() - timedelta(seconds=7200)
    assert by_zone["us-west-2b"]["Timestamp"] < clock.now() - timedelta(hours=1)


def test_a_window_gives_its_changes_and_the_one_before(aws: FakeAws, clock: FakeClock, ec2: Any) -> None:
    """So that the price at its beginning is known."""
    for usd in ("0.11", "0.12", "0.13"):
        clock.step(60)
        aws.set_price(REGION, ZONE, "g5.xlarge", usd)
    question = {"InstanceTypes": ["g5.xlarge"], "ProductDescriptions": ["Linux/UNIX"], "AvailabilityZoneId": "usw2-az6"}
    rows = _prices(ec2, StartTime=clock.now() - timedelta(seconds=90), EndTime=clock.now() - timedelta(seconds=30), **question)
    assert sorted(row["SpotPrice"] for row in rows) == ["0.110000", "0.120000"]
    assert len(_prices(ec2, **question)) == 6


def test_products_are_mixed_unless_filtered(ec2: Any, clock: FakeClock) -> None:
    """Windows and others are among the rows; some types are listed under one of the two Linux names only."""
    rows = _prices(ec2, StartTime=clock.now())
    assert {"Linux/UNIX", "Linux/UNIX (Amazon VPC)", "Windows", "SUSE Linux", "Red Hat Enterprise Linux"} == {
        row["ProductDescription"] for row in rows
    }
    linux = {(row["InstanceType"], row["ProductDescription"]) for row in rows if row["ProductDescription"].startswith("Linux")}
    assert ("g6e.xlarge", "Linux/UNIX") not in linux
    assert ("g5.xlarge", "Linux/UNIX (Amazon VPC)") not in linux
    assert {("g4dn.xlarge", "Linux/UNIX"), ("g4dn.xlarge", "Linux/UNIX (Amazon VPC)"), ("g6e.xlarge", "Linux/UNIX (Amazon VPC)")} <= linux
    assert "us-west-2-lax-1a" in {row["AvailabilityZone"] for row in rows}


def test_price_pages_end_with_an_empty_token(aws: FakeAws, clock: FakeClock, ec2: Any) -> None:
    """Small pages, every row once, and an empty string after the last (facts/cloud-api.md §1.1)."""
    everything = _prices(ec2, StartTime=clock.now())
    aws.world.page_rows = 7
    assert _prices(ec2, StartTime=clock.now()) == everything
    token, seen = "", 0
    while True:
        page = ec2.describe_spot_price_history(StartTime=clock.now(), NextToken=token)
        seen += len(page["SpotPriceHistory"])
        token = page["NextToken"]
        if not token:
            break
    assert seen == len(everything)


def test_the_right_filters_give_one_price(aws: FakeAws) -> None:
    """All filters: one row. Without `capacitystatus` there are reservations of price 0 among them (facts/cloud-api.md §1.3)."""
    pricing = client_of(aws, "pricing", "us-east-1")
    filters = {
        "regionCode": REGION,
        "instanceType": "g5.xlarge",
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "licenseModel": "No License required",
        "capacitystatus": "Used",
    }

    def ask(**wanted: str) -> list[Decimal]:
        asked = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()]
        pages = pricing.get_paginator("get_products").paginate(ServiceCode="AmazonEC2", Filters=asked, FormatVersion="aws_v1")
        rows = [json.loads(row) for page in pages for row in page["PriceList"]]
        terms = [term for row in rows for term in row["terms"]["OnDemand"].values()]
        return [Decimal(d["pricePerUnit"]["USD"]) for term in terms for d in term["priceDimensions"].values()]

    assert ask(**filters) == [Decimal("1.006")]
    del filters["capacitystatus"]
    assert Decimal(0) in ask(**filters)


def test_quotas_are_told(aws: FakeAws) -> None:
    """What was granted; where nothing was, NoSuchResourceException, and AWS's default beside it."""
    quotas = client_of(aws, "service-quotas")
    aws.set_quota(REGION, "L-3819A6DF", 64)
    assert quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-3819A6DF")["Quota"]["Value"] == 64.0
    aws.set_quota(REGION, "L-3819A6DF", None)
    assert _refused(lambda: quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-3819A6DF"))[0] == "NoSuchResourceException"
    assert quotas.get_aws_default_service_quota(ServiceCode="ec2", QuotaCode="L-3819A6DF")["Quota"]["Value"] == 0.0
    pages = quotas.get_paginator("list_service_quotas").paginate(ServiceCode="ec2", PaginationConfig={"PageSize": 2})
    codes = {row["QuotaCode"] for page in pages for row in page["Quotas"]}
    assert "L-C4BD4855" in codes
    assert "L-3819A6DF" not in codes


def test_scores(aws: FakeAws, clock: FakeClock, ec2: Any) -> None:
    """Fewer than three types score low everywhere; new sets of types are limited within a day, known ones are not."""
    pool = ["g5.xlarge", "g6.xlarge", "g6e.xlarge"]
    aws.world.scores[REGION, "usw2-az1"] = 10
    rows = ec2.get_spot_placement_scores(InstanceTypes=pool, TargetCapacity=1, SingleAvailabilityZone=True)["SpotPlacementScores"]
    assert rows[0] == {"Region": REGION, "AvailabilityZoneId": "usw2-az1", "Score": 10}
    few = ec2.get_spot_placement_scores(InstanceTypes=pool[:2], TargetCapacity=1)["SpotPlacementScores"]
    assert {row["Score"] for row in few} == {1}
    aws.world.score_configurations = 2
    assert _refused(lambda: ec2.get_spot_placement_scores(InstanceTypes=pool[:1], TargetCapacity=1))[0] == "MaxConfigLimitExceeded"
    assert ec2.get_spot_placement_scores(InstanceTypes=pool, TargetCapacity=1)["SpotPlacementScores"]
    clock.step(86_401)
    assert ec2.get_spot_placement_scores(InstanceTypes=pool[:1], TargetCapacity=1)["SpotPlacementScores"]


def test_more_can_be_sold(aws: FakeAws, clock: FakeClock, ec2: Any) -> None:
    """A new type has offerings, prices, capacity, and the size of its family."""
    aws.sell("g6.12xlarge", REGION, ZONE, on_demand_usd="4.6", spot_usd="1.7")
    [row] = _prices(ec2, StartTime=clock.now(), InstanceTypes=["g6.12xlarge"], ProductDescriptions=["Linux/UNIX"])
    assert (row["AvailabilityZone"], row["SpotPrice"]) == (ZONE, "1.700000")
    assert _launch(ec2, InstanceType="g6.12xlarge")
    assert _refused(lambda: _launch(ec2, InstanceType="g6.12xlarge", zone="us-west-2b"))[0] == "Unsupported"


# Faults


def test_refusals_are_for_what_they_name(aws: FakeAws, ec2: Any) -> None:
    """By region, action, service and number; every protocol says it in its own way; `allow` takes it back."""
    aws.refuse(REGION, "DescribeInstances", "RequestLimitExceeded", 503, times=2)
    for _ in range(2):
        assert _refused(lambda: _listed(ec2)) == ("RequestLimitExceeded", 503)
    assert _listed(ec2) == []
    aws.refuse("*", "sqs:*", "AccessDenied", 403)
    for region in aws.regions:
        assert _refused(lambda region=region: client_of(aws, "sqs", region).list_queues()) == ("AccessDenied", 403)  # type: ignore[misc]
    assert ec2.describe_regions()
    aws.allow("*", "sqs:*")
    assert client_of(aws, "sqs").list_queues()
    aws.refuse("*", "*", "Blocked")
    for service, call in (("sts", "get_caller_identity"), ("iam", "list_roles"), ("s3", "list_buckets"), ("ssm", "describe_parameters")):
        assert _refused(getattr(client_of(aws, service), call)) == ("Blocked", 400)


def test_a_lost_answer_was_executed(aws: FakeAws, ec2: Any) -> None:
    """The connection breaks, and the instance is there; the identical call again finds it."""
    aws.lose_answer(REGION, "RunInstances")
    order = _order(ec2)
    with pytest.raises(ConnectionClosedError):
        ec2.run_instances(**order)
    [instance] = aws.instances
    assert ec2.run_instances(**order)["Instances"][0]["InstanceId"] == instance.instance_id


def test_an_answer_can_be_held_back(aws: FakeAws, ec2: Any) -> None:
    """Executed, not answered, and lost in the end: the moment in which a daemon is killed."""
    order = _order(ec2)
    ends: list[BaseException] = []

    def call() -> None:
        try:
            ec2.run_instances(**order)
        except HTTPClientError as error:
            ends.append(error)

    thread = threading.Thread(target=call)
    with aws.hold_answer(REGION, "RunInstances") as held:
        thread.start()
        assert held.wait(5)
        assert len(aws.instances) == 1
        assert ends == []
    thread.join()
    assert len(ends) == 1


def test_a_broken_region_breaks_alone(aws: FakeAws, ec2: Any) -> None:
    """Nothing is executed there; other regions, and what has none, answer."""
    order = _order(ec2)
    with aws.break_region(REGION):
        with pytest.raises(ConnectionClosedError):
            ec2.run_instances(**order)
        with pytest.raises(ConnectionClosedError):
            client_of(aws, "sqs").list_queues()
        assert client_of(aws, "ec2", "us-east-1").describe_instances()["Reservations"] == []
    assert aws.instances == []
    with aws.break_region("us-east-1"):
        assert client_of(aws, "pricing", "us-east-1").get_products(ServiceCode="AmazonEC2", MaxResults=1)["PriceList"]


def test_latency_is_real_and_of_one_region(aws: FakeAws, ec2: Any) -> None:
    """A slow region does not hold up another."""
    other = client_of(aws, "ec2", "us-east-1")
    aws.latency(REGION, 0.5)
    began = time.monotonic()
    slow = threading.Thread(target=ec2.describe_regions)
    slow.start()
    other.describe_regions()
    assert slow.is_alive()
    slow.join()
    assert time.monotonic() - began >= 0.5


@pytest.mark.parametrize(
    ("headers", "body", "code"),
    [
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"Action=DescribeRegions&Version=2016-11-15", "AuthFailure"),
        ({"X-Amz-Target": "AWSPriceListService.GetProducts"}, b"{}", "MissingAuthenticationToken"),
        ({"X-Amz-Target": "AmazonSQS.ListQueues"}, b"{}", "MissingAuthenticationToken"),
        ({"Content-Type": "application/octet-stream"}, b"x", "AccessDenied"),
    ],
)
def test_a_request_without_credentials_is_refused(aws: FakeAws, headers: dict[str, str], body: bytes, code: str) -> None:
    """By every service: a client that forgot to sign must not pass here."""
    request = urllib.request.Request(f"{aws.endpoint}/bucket/key", data=body, headers=headers)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    with refused.value as answer:
        assert answer.code in {401, 403}
        assert code.encode() in answer.read()


# What is moto's


def test_objects_and_presigned_addresses(aws: FakeAws) -> None:
    """S3: create-only writes, ranges, odd keys, and addresses that carry the signature."""
    s3 = client_of(aws, "s3")
    s3.create_bucket(Bucket="checkpoints", CreateBucketConfiguration={"LocationConstraint": REGION})
    body = bytes(range(256)) * 4096
    s3.put_object(Bucket="checkpoints", Key="a b/ü+%", Body=body, IfNoneMatch="*")
    assert _refused(lambda: s3.put_object(Bucket="checkpoints", Key="a b/ü+%", Body=b"", IfNoneMatch="*")) == ("PreconditionFailed", 412)
    assert s3.get_object(Bucket="checkpoints", Key="a b/ü+%", Range="bytes=10-19")["Body"].read() == body[10:20]
    assert s3.head_object(Bucket="checkpoints", Key="a b/ü+%")["ContentLength"] == len(body)
    address = s3.generate_presigned_url("put_object", Params={"Bucket": "checkpoints", "Key": "signed"})
    with urllib.request.urlopen(urllib.request.Request(address, data=b"hello", method="PUT")) as answer:
        assert answer.status == 200
    address = s3.generate_presigned_url("get_object", Params={"Bucket": "checkpoints", "Key": "signed"})
    with urllib.request.urlopen(address) as answer:
        assert answer.read() == b"hello"


def test_two_accounts_do_not_meet(aws: FakeAws) -> None:
    """Each has a number of its own, instances, queues; and the next one finds nothing of them."""
    client_of(aws, "sqs").create_queue(QueueName="spotd")
    _launch(client_of(aws, "ec2"))
    with FakeAws(FakeClock()) as other:
        assert other.account != aws.account
        assert "QueueUrls" not in client_of(other, "sqs").list_queues()
        assert other.instances == []
        assert client_of(other, "sts").get_caller_identity()["Account"] == other.account
        client_of(other, "sqs").create_queue(QueueName="theirs")
        number = other.account
    with FakeAws(FakeClock()) as third:
        assert third.account == number
        assert "QueueUrls" not in client_of(third, "sqs").list_queues()


def test_a_long_poll_ends_with_the_fake(clock: FakeClock) -> None:
    """Closing takes no 20 s, and leaves no thread."""
    before = threading.active_count()
    with FakeAws(clock) as aws:
        sqs = client_of(aws, "sqs")
        queue = sqs.create_queue(QueueName="spotd")["QueueUrl"]
        failures: list[BaseException] = []

        def listen() -> None:
            try:
                sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20)
            except (HTTPClientError, ClientError) as error:
                failures.append(error)

        thread = threading.Thread(target=listen)
        thread.start()
        time.sleep(0.1)
        began = time.monotonic()
    thread.join()
    assert time.monotonic() - began < 5
    assert threading.active_count() == before


def test_the_date_is_the_clocks(aws: FakeAws, clock: FakeClock, ec2: Any) -> None:
    """A client that compares its own time with the service's sees the fake's."""
    clock.jump(3600)
    told = ec2.describe_regions()["ResponseMetadata"]["HTTPHeaders"]["date"]
    assert abs(datetime.strptime(told, "%a, %d %b %Y %H:%M:%S %Z").replace(tzinfo=clock.now().tzinfo) - clock.now()) < timedelta(seconds=2)
