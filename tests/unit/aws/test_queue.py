"""The consumer of the warnings' queues, against SQS over HTTP."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from spotd.core.errors import ProviderError
from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd.ports import DeliveredNotice
from spotd.testing import FakeClock
from spotd.testing.fake_aws import FakeAws
from spotd_aws.clients import Clients
from spotd_aws.config import read
from spotd_aws.events import Verdict
from spotd_aws.queue import Pace, Warnings

WEST, EAST = "us-west-2", "us-east-1"
ONE = "i-0123456789abcdef0"


class _Cloud:
    """An account, and the means to put messages into its queues."""

    def __init__(self, aws: FakeAws) -> None:
        self.aws = aws
        assert isinstance(aws.clock, FakeClock)
        self.clock = aws.clock
        #: Each test has queues of its own.
        self.deployment = uuid.uuid4().hex[:12]
        self.name = f"spotd-{self.deployment}"
        self.made: list[Warnings] = []
        self.clients = Clients(read({"endpoint_url": aws.endpoint}))

    def queue(self, region: str = WEST) -> None:
        self.sqs(region).create_queue(QueueName=self.name, Attributes={"VisibilityTimeout": "30"})

    def pass_time(self, seconds: float) -> None:
        self.clock.step(seconds)
        self.aws.tick()

    def warning(self, instance: str = ONE, kind: str = "EC2 Spot Instance Interruption Warning", age_s: float = 0, **changes: Any) -> dict[str, Any]:
        at = (self.clock.now() - timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        detail = {"instance-id": instance, "instance-action": "terminate"}
        return {"version": "0", "source": "aws.ec2", "detail-type": kind, "time": at, "detail": detail} | changes

    def sqs(self, region: str = WEST) -> Any:
        return self.clients.get("sqs", region)

    def url(self, region: str = WEST) -> str:
        return f"{self.aws.endpoint}/{self.aws.account}/{self.name}"

    def send(self, body: Any, region: str = WEST) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        self.sqs(region).send_message(QueueUrl=self.url(region), MessageBody=text)

    def send_warnings(self, count: int) -> None:
        bodies = [json.dumps(self.warning(f"i-{number:08x}")) for number in range(count)]
        for first in range(0, count, 10):
            entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(bodies[first : first + 10])]
            self.sqs().send_message_batch(QueueUrl=self.url(), Entries=entries)

    def left(self, region: str = WEST) -> int:
        """How many messages are in the queue, also those that are hidden."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs(region).get_queue_attributes(QueueUrl=self.url(region), AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)

    def warnings(self, *regions: str, pace: Pace | None = None, **table: Any) -> Warnings:
        config = read({"endpoint_url": self.aws.endpoint, "queue_wait": "1s"} | table)
        made = Warnings(Clients(config), config, self.deployment, lambda: regions or (WEST,), pace=pace)
        self.made.append(made)
        return made

    def close(self) -> None:
        for one in self.made:
            one.close()
            one._clients.close()
        self.clients.close()


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    """An account with two regions, whose time passes when it is told to: messages that were read are hidden until then."""
    with FakeAws(FakeClock(), regions=(WEST, EAST)) as made:
        yield made


@pytest.fixture
def cloud(aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Cloud]:
    """The account, with nothing in the way and no queue of this test's yet."""
    for name, value in aws.environment().items():
        monkeypatch.setenv(name, value)
    made = _Cloud(aws)
    yield made
    made.close()
    for action in ("sqs:ReceiveMessage", "sqs:DeleteMessageBatch"):
        aws.allow(WEST, action)


def _hear(warnings: Warnings, seconds: float = 5.0) -> Sequence[DeliveredNotice]:
    stop = threading.Event()
    timer = threading.Timer(seconds, stop.set)
    timer.start()
    try:
        return warnings.notices(stop)
    finally:
        timer.cancel()


def _trouble(warnings: Warnings) -> str:
    with pytest.raises(ProviderError) as raised:
        _hear(warnings)
    return str(raised.value)


def _until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it has not come to pass"
        time.sleep(0.02)


def test_a_warning_is_delivered_and_deleted_only_when_acknowledged(cloud: _Cloud) -> None:
    """Facts §1.7: acknowledged after the commit, message by message, never one because another succeeded."""
    cloud.queue()
    cloud.send(cloud.warning())
    cloud.send(cloud.warning("i-00000002"))
    warnings = cloud.warnings()
    told: list[DeliveredNotice] = []
    while len(told) < 2:
        told += _hear(warnings)
    by_id = {one.provider_id: one for one in told}
    notice = by_id[ONE].notice
    assert (notice.kind, notice.source) == (NoticeKind.RECLAIM, NoticeSource.PROVIDER)
    assert notice.deadline is not None
    assert timedelta(seconds=110) < notice.deadline - cloud.clock.now() < timedelta(seconds=121)
    assert cloud.left() == 2
    by_id[ONE].acknowledge()
    by_id[ONE].acknowledge()
    _until(lambda: cloud.left() == 1)


def test_what_was_not_acknowledged_comes_again(cloud: _Cloud) -> None:
    """After its visibility timeout, to the same daemon or to one that was started anew."""
    cloud.queue()
    cloud.send(cloud.warning())
    warnings = cloud.warnings()
    [first] = _hear(warnings)
    cloud.pass_time(31)
    [again] = _hear(warnings)
    assert again.provider_id == first.provider_id
    assert again.notice.deadline == first.notice.deadline
    warnings.close()
    other = cloud.warnings()
    cloud.pass_time(31)
    [anew] = _hear(other)
    anew.acknowledge()
    _until(lambda: cloud.left() == 0)


def test_what_is_no_notice_is_deleted_and_counted(cloud: _Cloud) -> None:
    """Foreign, stale, garbage: each would come back for ever, and none keeps the warning among them from being heard (facts/known-faults.md A 16)."""
    cloud.queue()
    cloud.send(cloud.warning(kind="EC2 Instance State-change Notification"))
    cloud.send({"Event": "autoscaling:TEST_NOTIFICATION"})
    cloud.send("}{")
    cloud.send(cloud.warning(age_s=660))
    cloud.send(cloud.warning(source="com.example"))
    cloud.send(cloud.warning())
    warnings = cloud.warnings()
    [one] = _hear(warnings)
    assert one.provider_id == ONE
    _until(lambda: cloud.left() == 1)
    wanted = {Verdict.STATE_CHANGE: 1, Verdict.GARBAGE: 2, Verdict.STALE: 1, Verdict.FOREIGN: 1, Verdict.NOTICE: 1}
    assert warnings.counted == wanted


def test_two_hundred_warnings_at_once_are_all_delivered_and_deleted(cloud: _Cloud) -> None:
    """One fleet taken back in one second (facts/known-faults.md A 19): more than a batch, and acknowledging waits for no deletion."""
    cloud.queue()
    cloud.send_warnings(200)
    warnings = cloud.warnings()
    heard: set[str] = set()
    while len(heard) < 200:
        for one in _hear(warnings):
            heard.add(one.provider_id)
            one.acknowledge()
    _until(lambda: cloud.left() == 0)


def test_a_deletion_that_fails_is_tried_again_and_told_to_nobody(cloud: _Cloud) -> None:
    """The notice is not handed out again for that: it was acknowledged."""
    cloud.queue()
    cloud.aws.refuse(WEST, "sqs:DeleteMessageBatch", "InternalFailure", 500, times=1)
    cloud.send(cloud.warning())
    warnings = cloud.warnings()
    [one] = _hear(warnings)
    one.acknowledge()
    assert _hear(warnings, 0.3) == []
    assert cloud.left() == 1
    cloud.pass_time(31)
    assert _hear(warnings, 0.3) == []
    _until(lambda: cloud.left() == 0)


def test_a_region_without_a_queue_degrades_alone_and_is_told_once(cloud: _Cloud) -> None:
    """It is asked again rarely; the other region's warnings come all the same."""
    cloud.queue(WEST)
    warnings = cloud.warnings(WEST, EAST)
    said = _trouble(warnings)
    assert EAST in said
    assert WEST not in said
    assert "spotd aws setup" in said
    cloud.send(cloud.warning())
    [one] = _hear(warnings)
    assert one.provider_id == ONE
    assert _hear(warnings, 0.3) == []


def test_a_queue_that_is_made_later_is_found(cloud: _Cloud) -> None:
    """No restart is needed after `spotd aws setup`."""
    warnings = cloud.warnings(pace=Pace(rarely=0.1))
    assert f"no queue {cloud.name}" in _trouble(warnings)
    cloud.queue()
    cloud.send(cloud.warning())
    assert [one.provider_id for one in _hear(warnings)] == [ONE]


def test_a_refusal_is_told_once_and_again_after_it_was_well(cloud: _Cloud) -> None:
    """A missing permission is a sentence in the log, never a loop of them."""
    cloud.queue()
    cloud.aws.refuse(WEST, "sqs:ReceiveMessage", "AccessDenied", 403)
    warnings = cloud.warnings(pace=Pace(rarely=0.05))
    assert "AccessDenied" in _trouble(warnings)
    assert _hear(warnings, 0.3) == []
    cloud.aws.allow(WEST, "sqs:ReceiveMessage")
    cloud.send(cloud.warning())
    [one] = _hear(warnings)
    one.acknowledge()
    cloud.aws.refuse(WEST, "sqs:ReceiveMessage", "AccessDenied", 403)
    assert "AccessDenied" in _trouble(warnings)


def test_one_lost_question_is_no_trouble_two_in_a_row_are(cloud: _Cloud) -> None:
    """A connection breaks now and then. What lay in the queue meanwhile is heard when the region answers again."""
    cloud.queue()
    cloud.aws.refuse(WEST, "sqs:ReceiveMessage", "InternalFailure", 500, times=1)
    warnings = cloud.warnings(pace=Pace(first=0.05, longest=0.1))
    assert _hear(warnings, 0.6) == []
    with cloud.aws.break_region(WEST):
        assert WEST in _trouble(warnings)
        assert _hear(warnings, 0.4) == []
    cloud.send(cloud.warning())
    assert [one.provider_id for one in _hear(warnings)] == [ONE]


def test_stopping_takes_no_twenty_seconds(cloud: _Cloud) -> None:
    """The long poll that is under way is left alone."""
    cloud.queue()
    warnings = cloud.warnings(queue_wait="20s")
    began = time.monotonic()
    assert _hear(warnings, 0.3) == []
    warnings.close()
    assert time.monotonic() - began < 2.0


def test_nothing_is_taken_out_of_a_queue_that_nobody_listens_to(cloud: _Cloud) -> None:
    """A daemon that cannot commit, or is about to stop, leaves warnings to be heard by whoever comes next."""
    cloud.queue()
    warnings = cloud.warnings(queue_wait="100ms")
    assert _hear(warnings, 0.3) == []
    time.sleep(0.4)
    cloud.send(cloud.warning())
    time.sleep(0.4)
    assert warnings.counted == {}
    assert [one.provider_id for one in _hear(warnings)] == [ONE]


def test_listening_without_a_queue_asks_nobody(cloud: _Cloud) -> None:
    """`queue = false`: no threads, no questions; what the listing shows still comes through."""
    warnings = cloud.warnings(queue=False)
    assert _hear(warnings, 0.3) == []
    seen = datetime.now(UTC)
    notice = Notice(NoticeKind.RECLAIM, NoticeSource.PROVIDER, seen, seen + timedelta(seconds=100))
    warnings.saw(ONE, notice)
    warnings.saw(ONE, notice)
    [one] = _hear(warnings)
    assert one.notice == notice
    one.acknowledge()
    warnings.saw(ONE, notice)
    assert _hear(warnings, 0.3) == []


def test_a_listing_wakes_a_listener(cloud: _Cloud) -> None:
    """The third channel is as quick as the others."""
    warnings = cloud.warnings(queue=False)
    seen = datetime.now(UTC)
    threading.Timer(0.2, warnings.saw, (ONE, Notice(NoticeKind.RECLAIM, NoticeSource.PROVIDER, seen, seen))).start()
    began = time.monotonic()
    assert len(_hear(warnings)) == 1
    assert time.monotonic() - began < 1.0


def test_a_canary_is_left_to_who_sent_it(cloud: _Cloud) -> None:
    """`spotd aws setup` runs beside the daemon, on the same queue: the daemon steps aside. One that is old is nobody's any more."""
    cloud.queue()
    canary = cloud.warning(kind="spotd canary warnings", source="spotd.canary", detail={"canary": "x"})
    old = cloud.warning(kind="spotd canary warnings", source="spotd.canary", detail={"canary": "x"}, age_s=100)
    warnings = cloud.warnings()
    cloud.send(old)
    cloud.send(canary)
    assert _hear(warnings, 0.6) == []
    answer = cloud.sqs().receive_message(QueueUrl=cloud.url(), WaitTimeSeconds=1)
    assert [json.loads(one["Body"])["time"] for one in answer["Messages"]] == [canary["time"]]


def test_regions_that_cannot_be_listed_are_told_and_asked_again(cloud: _Cloud) -> None:
    """Where none are configured, AWS says which there are."""
    cloud.queue()
    config = read({"endpoint_url": cloud.aws.endpoint, "queue_wait": "1s"})
    answers: list[Any] = [RuntimeError("boom"), ClientError({"Error": {"Code": "AuthFailure"}}, "DescribeRegions"), (WEST,)]

    def _regions() -> Sequence[str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return tuple(answer)

    warnings = Warnings(Clients(config), config, cloud.deployment, _regions, pace=Pace(longest=0.1))
    cloud.made.append(warnings)
    assert "RuntimeError" in _trouble(warnings)
    cloud.send(cloud.warning())
    assert [one.provider_id for one in _hear(warnings)] == [ONE]


def test_a_listener_that_comes_after_the_end_is_sent_away(cloud: _Cloud) -> None:
    """Closed is closed: no thread begins again."""
    cloud.queue()
    before = set(threading.enumerate())
    warnings = cloud.warnings()
    warnings.close()
    began = time.monotonic()
    assert _hear(warnings) == []
    assert time.monotonic() - began < 1.0
    assert not [one for one in threading.enumerate() if one.name.startswith("aws-") and one not in before]
