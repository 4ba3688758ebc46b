"""Reclaims of the fake AWS account: what each channel says, when, and what is left afterwards (facts/reclaim.md §1)."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from spotd.node.imds import ImdsWatcher
from spotd.testing import FakeClock
from spotd.testing.fake_aws import FakeAws, Reclaim, State
from tests.contract.aws_clients import client_of

REGION = "us-west-2"
WARNING, HINT, CHANGE = "EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation", "EC2 Instance State-change Notification"


class _Cloud:
    """An account with a queue that every event of EC2 reaches, and one running spot instance."""

    def __init__(self, aws: FakeAws, clock: FakeClock, *kinds: str) -> None:
        self.aws, self.clock, self.ec2, self.sqs = aws, clock, client_of(aws, "ec2"), client_of(aws, "sqs")
        self._queue = self.sqs.create_queue(QueueName="spotd", Attributes={"VisibilityTimeout": "20"})["QueueUrl"]
        events = client_of(aws, "events")
        pattern = {"source": ["aws.ec2", "aws.health"], "detail-type": list(kinds or (WARNING, HINT))}
        events.put_rule(Name="spotd", EventPattern=json.dumps(pattern))
        events.put_targets(Rule="spotd", Targets=[{"Id": "1", "Arn": f"arn:aws:sqs:{REGION}:{aws.account}:spotd"}])
        image = self.ec2.describe_images()["Images"][0]["ImageId"]
        spot = {"MarketType": "spot", "SpotOptions": {"MaxPrice": "1.0"}}
        meta = {"HttpTokens": "required", "InstanceMetadataTags": "enabled"}
        tags = [{"ResourceType": "instance", "Tags": [{"Key": "spotd:job", "Value": "j"}]}]
        [instance] = self.ec2.run_instances(
            ImageId=image,
            InstanceType="g5.xlarge",
            MinCount=1,
            MaxCount=1,
            Placement={"AvailabilityZone": "us-west-2b"},
            InstanceMarketOptions=spot,
            InstanceInitiatedShutdownBehavior="terminate",
            MetadataOptions=meta,
            TagSpecifications=tags,
        )["Instances"]
        self.id = str(instance["InstanceId"])
        clock.step(5)

    def messages(self) -> list[dict[str, Any]]:
        """What is in the queue, taken out of it."""
        found: list[dict[str, Any]] = []
        while rows := self.sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10).get("Messages"):
            for row in rows:
                found.append(json.loads(row["Body"]))
                self.sqs.delete_message(QueueUrl=self._queue, ReceiptHandle=row["ReceiptHandle"])
        return found

    def peek(self) -> int:
        """How many messages are to be had, left where they are."""
        return len(self.sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10).get("Messages", []))

    def request(self) -> tuple[str, str]:
        """State and code of the spot request."""
        [row] = self.ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
        return row["State"], row["Status"]["Code"]

    def state(self) -> tuple[str, str]:
        """State and reason of the instance."""
        [row] = self.ec2.describe_instances(InstanceIds=[self.id])["Reservations"][0]["Instances"]
        return row["State"]["Name"], row.get("StateReason", {}).get("Code", "")

    def metadata(self, path: str) -> str | None:
        """An item of the metadata service; None where there is none."""
        base = self.aws.imds(self.id)
        header = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        with urllib.request.urlopen(urllib.request.Request(f"{base}/latest/api/token", headers=header, method="PUT")) as answer:
            token = answer.read().decode()
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{base}/latest/{path}", headers={"X-aws-ec2-metadata-token": token})) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 404:
                raise
            return None

    def action(self) -> str | None:
        """What it says of a reclaim."""
        return self.metadata("meta-data/spot/instance-action")


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
def cloud(aws: FakeAws, clock: FakeClock) -> _Cloud:
    """With one running spot instance."""
    return _Cloud(aws, clock)


def test_a_full_notice_is_on_every_channel(cloud: _Cloud) -> None:
    """Two minutes ahead metadata, event and spot request say it while the instance runs; then it shuts down, and is terminated (§1.4)."""
    assert (cloud.action(), cloud.messages(), cloud.request()) == (None, [], ("active", "fulfilled"))
    cloud.aws.reclaim(cloud.id)
    assert json.loads(cloud.action() or "") == {"action": "terminate", "time": "2026-01-01T00:02:05Z"}
    assert cloud.metadata("meta-data/spot/termination-time") == "2026-01-01T00:02:05Z"
    assert cloud.request() == ("closed", "instance-terminated-no-capacity")
    assert cloud.state() == ("running", "")
    [event] = cloud.messages()
    assert event == {
        "version": "0",
        "id": event["id"],
        "detail-type": WARNING,
        "source": "aws.ec2",
        "account": cloud.aws.account,
        "time": "2026-01-01T00:00:05Z",
        "region": REGION,
        "resources": [f"arn:aws:ec2:us-west-2b:instance/{cloud.id}"],
        "detail": {"instance-id": cloud.id, "instance-action": "terminate"},
    }
    cloud.clock.step(119)
    assert cloud.state() == ("running", "")
    cloud.clock.step(1)
    assert cloud.state() == ("shutting-down", "Server.SpotInstanceTermination")
    cloud.clock.step(10)
    assert cloud.state() == ("terminated", "Server.SpotInstanceTermination")
    assert cloud.request() == ("closed", "instance-terminated-no-capacity")
    [truth] = cloud.aws.instances
    assert truth.ended_at == cloud.clock.now() - timedelta(seconds=10)


def test_the_agents_own_watcher_sees_it(cloud: _Cloud) -> None:
    """The code that runs on instances reads this metadata service: nothing, then a reclaim with its deadline by the service's clock."""
    watcher = ImdsWatcher(cloud.clock, 120.0, cloud.aws.imds(cloud.id))  # type: ignore[arg-type] # its clock has epoch(), which is not asked here
    assert watcher.look().sightings == ()
    cloud.aws.rebalance(cloud.id)
    cloud.aws.reclaim(cloud.id)
    cloud.clock.step(20)
    reclaim, hint = watcher.look().sightings
    assert (reclaim.kind, hint.kind) == ("reclaim", "rebalance")
    assert reclaim.deadline_at is not None
    assert abs(reclaim.deadline_at - cloud.clock.monotonic() - 100) <= 1


@pytest.mark.parametrize("silent", ["imds", "events", "spot_request"])
def test_channels_can_be_silent(cloud: _Cloud, silent: str) -> None:
    """Each channel alone can be without a word; the instance ends all the same, and its reason is the same."""
    cloud.aws.reclaim(cloud.id, Reclaim(**{silent: False}))  # type: ignore[arg-type] # one of the three flags
    said = {"imds": cloud.action() is not None, "events": bool(cloud.messages()), "spot_request": cloud.request()[0] == "closed"}
    assert said == {"imds": silent != "imds", "events": silent != "events", "spot_request": silent != "spot_request"}
    cloud.clock.step(131)
    assert cloud.state() == ("terminated", "Server.SpotInstanceTermination")
    assert cloud.request() == ("closed", "instance-terminated-no-capacity")


def test_channels_are_late_each_by_its_own(cloud: _Cloud) -> None:
    """Delays are independent; the deadline does not move."""
    cloud.aws.reclaim(cloud.id, Reclaim(imds_delay_s=10, events_delay_s=20, spot_request_delay_s=30))
    seen = []
    for _ in range(4):
        seen.append((cloud.action() is not None, cloud.peek(), cloud.request()[0]))
        cloud.clock.step(10)
    assert [(imds, request) for imds, _, request in seen] == [(False, "active"), (True, "active"), (True, "active"), (True, "closed")]
    assert [count for _, count, _ in seen] == [0, 0, 1, 0]  # taken once, it is invisible for 20 s
    assert json.loads(cloud.action() or "")["time"] == "2026-01-01T00:02:05Z"


def test_events_are_repeated_lost_and_out_of_order(aws: FakeAws, clock: FakeClock) -> None:
    """Two copies have one id; a late warning comes after the state change that it warns of (§0.11)."""
    cloud = _Cloud(aws, clock, WARNING, CHANGE)
    assert [event["detail"]["state"] for event in cloud.messages()] == ["pending", "running"]
    cloud.aws.reclaim(cloud.id, Reclaim(event_copies=2, events_delay_s=125))
    clock.step(122)
    [change] = cloud.messages()
    assert (change["detail-type"], change["detail"]["state"]) == (CHANGE, "shutting-down")
    assert change["resources"] == [f"arn:aws:ec2:{REGION}:{aws.account}:instance/{cloud.id}"]
    clock.step(30)
    rest = cloud.messages()
    assert [event["detail-type"] for event in rest] == [WARNING, WARNING, CHANGE]
    assert rest[0]["id"] == rest[1]["id"]


def test_no_notice_is_none(cloud: _Cloud) -> None:
    """An instance can vanish before anything was said (§0.1)."""
    cloud.aws.reclaim(cloud.id, Reclaim(notice_s=0))
    assert cloud.action() is None
    assert cloud.messages() == []
    assert cloud.state() == ("shutting-down", "Server.SpotInstanceTermination")


def test_a_reclaim_can_be_cancelled(cloud: _Cloud) -> None:
    """The request is fulfilled again, the action gone, the termination time stays where it was, and the instance lives (§1.3)."""
    cloud.aws.reclaim(cloud.id, Reclaim(spot_request_delay_s=60))
    cloud.clock.step(30)
    cloud.aws.cancel_reclaim(cloud.id)
    cloud.clock.step(600)
    assert (cloud.action(), cloud.request(), cloud.state()) == (None, ("active", "fulfilled"), ("running", ""))
    assert cloud.metadata("meta-data/spot/termination-time") == "2026-01-01T00:02:05Z"
    with pytest.raises(ValueError, match="not about to be reclaimed"):
        cloud.aws.cancel_reclaim(cloud.id)


def test_a_hint_has_no_deadline(cloud: _Cloud) -> None:
    """A rebalance recommendation comes by metadata and event, alone or before a notice, and stays."""
    cloud.aws.reclaim(cloud.id, Reclaim(rebalance=True, rebalance_lead_s=600))
    assert json.loads(cloud.metadata("meta-data/events/recommendations/rebalance") or "") == {"noticeTime": "2026-01-01T00:00:05Z"}
    assert [event["detail-type"] for event in cloud.messages()] == [HINT]
    assert cloud.action() is None
    cloud.clock.step(600)
    assert cloud.action() is not None
    assert [event["detail-type"] for event in cloud.messages()] == [WARNING]


def test_hibernation_leaves_no_time(cloud: _Cloud) -> None:
    """The notice is there, the two minutes are not (§0.5); a reclaim that stops leaves a stopped instance and a disabled request."""
    cloud.aws.reclaim(cloud.id, Reclaim(action="hibernate"))
    [event] = cloud.messages()
    assert event["detail"]["instance-action"] == "hibernate"
    assert json.loads(cloud.action() or "") == {"action": "hibernate", "time": "2026-01-01T00:00:05Z"}
    assert cloud.state()[0] == "stopping"
    cloud.clock.step(10)
    assert cloud.state() == ("stopped", "Server.SpotInstanceShutdown")
    assert cloud.request() == ("disabled", "instance-stopped-no-capacity")
    cloud.ec2.terminate_instances(InstanceIds=[cloud.id])
    cloud.clock.step(1)
    assert cloud.state() == ("terminated", "Client.UserInitiatedShutdown")


def test_a_price_above_the_limit_reclaims(cloud: _Cloud) -> None:
    """With the code that says so; a price below it does not."""
    cloud.aws.set_price(REGION, "us-west-2b", "g5.xlarge", "0.9")
    assert cloud.action() is None
    cloud.aws.set_price(REGION, "us-west-2b", "g5.xlarge", "1.1")
    assert cloud.request() == ("closed", "instance-terminated-by-price")
    cloud.clock.step(121)
    assert cloud.state()[1] == "Server.SpotInstanceTermination"


def test_who_ended_it_is_told(cloud: _Cloud) -> None:
    """A terminate after the notice is the user's, for EC2 (§1.9); the request keeps what it said first."""
    cloud.aws.reclaim(cloud.id)
    cloud.aws.end_by_hand(cloud.id)
    cloud.clock.step(130)
    assert cloud.state() == ("terminated", "Client.UserInitiatedShutdown")
    assert cloud.request() == ("closed", "instance-terminated-no-capacity")


def test_a_machine_can_switch_itself_off(cloud: _Cloud) -> None:
    """`Client.InstanceInitiatedShutdown`, and with the behavior `terminate` it is gone."""
    cloud.aws.power_off(cloud.id)
    cloud.clock.step(10)
    assert cloud.state() == ("terminated", "Client.InstanceInitiatedShutdown")


def test_maintenance_is_announced(aws: FakeAws, clock: FakeClock) -> None:
    """By status, metadata and AWS Health, ahead of time; a retirement ends the instance for `Server.ScheduledStop`."""
    cloud = _Cloud(aws, clock, "AWS Health Event")
    aws.maintain(cloud.id, "instance-retirement", in_s=3600)
    [status] = cloud.ec2.describe_instance_status(InstanceIds=[cloud.id])["InstanceStatuses"]
    assert [(event["Code"], event["NotBefore"]) for event in status["Events"]] == [("instance-retirement", clock.now() + timedelta(seconds=3600))]
    [scheduled] = json.loads(cloud.metadata("meta-data/events/maintenance/scheduled") or "")
    assert (scheduled["Code"], scheduled["NotBefore"], scheduled["State"]) == ("instance-retirement", "01 Jan 2026 01:00:05 GMT", "active")
    [health] = cloud.messages()
    assert health["detail"]["affectedEntities"] == [{"entityValue": cloud.id}]
    clock.step(3620)
    assert cloud.state() == ("terminated", "Server.ScheduledStop")


def test_only_running_spot_instances_are_reclaimed(cloud: _Cloud) -> None:
    """A test that reclaims what cannot be is told so."""
    cloud.aws.end_by_hand(cloud.id)
    with pytest.raises(ValueError, match="already"):
        cloud.aws.reclaim(cloud.id)
    with pytest.raises(ValueError, match="one of terminate, stop, hibernate"):
        Reclaim(action="explode")


def test_messages_come_again_as_the_clock_is_stepped(cloud: _Cloud) -> None:
    """A message that was not deleted is visible again after its time-out, which a stepped clock brings on."""
    cloud.aws.reclaim(cloud.id)
    assert [cloud.peek(), cloud.peek()] == [1, 0]
    cloud.clock.step(21)
    assert cloud.peek() == 1


def test_the_metadata_service_wants_a_token(cloud: _Cloud) -> None:
    """401 without, with a foreign or an expired one; 403 through a proxy; 400 without a lifetime; 404 for what is not there; nobody when gone."""

    def status(path: str, method: str = "GET", **headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{cloud.aws.imds(cloud.id)}/{path}", headers=named, method=method)) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    item = "latest/meta-data/instance-id"
    assert status(item) == 401
    assert status(item, X_aws_ec2_metadata_token="nonsense") == 401
    assert status("latest/api/token", "PUT") == 400
    assert status("latest/api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="60", X_Forwarded_For="10.0.0.1") == 403
    assert cloud.metadata("meta-data/instance-id") == cloud.id
    assert cloud.metadata("meta-data/placement/availability-zone-id") == "usw2-az1"
    assert cloud.metadata("meta-data/tags/instance/spotd:job") == "j"
    assert (cloud.metadata("meta-data/placement") or "").split("\n") == ["availability-zone", "availability-zone-id", "region"]
    assert json.loads(cloud.metadata("dynamic/instance-identity/document") or "")["region"] == REGION
    assert cloud.metadata("meta-data/spot") is None
    cloud.aws.metadata.silent.add(cloud.id)
    assert status(item) == 503
    cloud.aws.metadata.silent.clear()
    cloud.aws.end_by_hand(cloud.id)
    cloud.clock.step(10)
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        status(item)


# FIS


def _experiment(fis: Any, arn: str, duration: str = "PT3M") -> str:
    action = {"actionId": "aws:ec2:send-spot-instance-interruptions", "parameters": {"durationBeforeInterruption": duration}}
    template = fis.create_experiment_template(
        clientToken="t",
        description="reclaim",
        roleArn="arn:aws:iam::123456789012:role/fis",
        stopConditions=[{"source": "none"}],
        targets={"one": {"resourceType": "aws:ec2:spot-instance", "resourceArns": [arn], "selectionMode": "ALL"}},
        actions={"take": action | {"targets": {"SpotInstances": "one"}}},
    )["experimentTemplate"]
    return str(fis.start_experiment(clientToken="s", experimentTemplateId=template["id"])["experiment"]["id"])


def test_an_experiment_really_reclaims(cloud: _Cloud) -> None:
    """The hint at once, the notice two minutes before the end, and the code says that it was an experiment (§1.13)."""
    fis = client_of(cloud.aws, "fis")
    experiment = _experiment(fis, f"arn:aws:ec2:{REGION}:{cloud.aws.account}:instance/{cloud.id}")
    assert fis.get_experiment(id=experiment)["experiment"]["state"]["status"] == "initiating"
    cloud.clock.step(3)
    assert fis.get_experiment(id=experiment)["experiment"]["state"]["status"] == "running"
    assert [event["detail-type"] for event in cloud.messages()] == [HINT]
    cloud.clock.step(60)
    assert fis.get_experiment(id=experiment)["experiment"]["state"]["status"] == "completed"
    assert [event["detail-type"] for event in cloud.messages()] == [WARNING]
    assert cloud.request() == ("closed", "instance-terminated-by-experiment")
    cloud.clock.step(130)
    assert cloud.state() == ("terminated", "Server.SpotInstanceTermination")
    template = fis.get_experiment(id=experiment)["experiment"]["experimentTemplateId"]
    fis.delete_experiment_template(id=template)
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        fis.get_experiment_template(id=template)


def test_an_experiment_without_a_target_fails(cloud: _Cloud) -> None:
    """And one that AWS would not take is refused."""
    fis = client_of(cloud.aws, "fis")
    experiment = _experiment(fis, f"arn:aws:ec2:{REGION}:{cloud.aws.account}:instance/i-0123456789abcdef0")
    cloud.clock.step(3)
    state = fis.get_experiment(id=experiment)["experiment"]["state"]
    assert (state["status"], state["reason"]) == ("failed", "Target resolution returned empty set")
    with pytest.raises(ClientError, match="ValidationException"):
        _experiment(fis, f"arn:aws:ec2:{REGION}:{cloud.aws.account}:instance/{cloud.id}", duration="PT1M")


def test_the_levers_work_from_a_shell(cloud: _Cloud) -> None:
    """`/fake/…` over HTTP: reclaim with the fields of Reclaim, prices, pools, a listing; what is wrong is said in a sentence."""

    def post(path: str, method: str = "POST") -> tuple[int, str]:
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{cloud.aws.endpoint}/fake/{path}", method=method)) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    assert post(f"reclaim/{cloud.id}?notice_s=30&imds=false&event_copies=2&action=terminate")[0] == 200
    assert (cloud.action(), len(cloud.messages())) == (None, 2)
    cloud.clock.step(31)
    assert cloud.aws.instance(cloud.id).state is State.SHUTTING_DOWN
    [row] = json.loads(post("instances", "GET")[1])
    assert (row["instance_id"], row["state"]) == (cloud.id, "shutting-down")
    assert post("exhaust/us-west-2/us-west-2a/g5.xlarge/spot")[0] == 200
    assert post("price/us-west-2/us-west-2a/g5.xlarge/0.5")[0] == 200
    assert post("reclaim/i-0")[0] == 400
    assert post(f"reclaim/{cloud.id}?colour=red") == (400, post(f"reclaim/{cloud.id}?colour=red")[1])
    assert "it has notice_s" in post(f"reclaim/{cloud.id}?colour=red")[1]
    assert "POST /fake/reclaim/ID" in post("help")[1]
