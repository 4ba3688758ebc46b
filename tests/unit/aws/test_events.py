"""What the events in the queue are: notices, and everything else that lies there (facts/reclaim.md §1.5)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotd.core.notice import NoticeKind, NoticeSource
from spotd_aws.events import Verdict, canary_of, read_message

NOW = datetime(2022, 8, 11, 14, 0, 3, tzinfo=UTC)
AT = "2022-08-11T14:00:00Z"
WARNING = "EC2 Spot Instance Interruption Warning"


def _event(kind: str = WARNING, detail: Any = None, **changes: Any) -> dict[str, Any]:
    if detail is None:
        detail = {"instance-id": "i-0123456789abcdef0", "instance-action": "terminate"}
    event = {
        "version": "0",
        "id": "1e5527d7-bb36-4607-3370-4164db56a40e",
        "detail-type": kind,
        "source": "aws.ec2",
        "account": "123456789012",
        "time": AT,
        "region": "us-east-2",
        "resources": ["arn:aws:ec2:us-east-2a:instance/i-0123456789abcdef0"],
        "detail": detail,
    }
    return {key: value for key, value in (event | changes).items() if value is not None}


def _health(**changes: Any) -> dict[str, Any]:
    detail = {
        "eventArn": "arn:aws:health:us-east-1::event/x",
        "service": "EC2",
        "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
        "eventTypeCategory": "scheduledChange",
        "startTime": "Sat, 13 Aug 2022 15:10:09 GMT",
        "affectedEntities": [{"entityValue": "i-12345678", "tags": {"stage": "prod"}}],
    }
    return _event("AWS Health Event", detail | changes, source="aws.health", resources=["i-12345678"])


def _verdict(event: Any) -> Verdict:
    return read_message(event if isinstance(event, str) else json.dumps(event), NOW).verdict


@pytest.mark.parametrize("kind", [WARNING, "EC2 Capacity Reservation Instance Interruption Warning"])
def test_a_warning_is_a_reclaim_two_minutes_after_it_was_given(kind: str) -> None:
    """Facts §1.4: from the event's own time, not from when we read it; the id stands in the detail, not in the odd ARN (§0.9)."""
    read = read_message(json.dumps(_event(kind)), NOW)
    assert read.verdict is Verdict.NOTICE
    [(instance, notice)] = read.notices
    assert instance == "i-0123456789abcdef0"
    assert (notice.kind, notice.source, notice.seen_at) == (NoticeKind.RECLAIM, NoticeSource.PROVIDER, NOW)
    assert notice.deadline == datetime(2022, 8, 11, 14, 2, tzinfo=UTC)


def test_hibernation_leaves_no_two_minutes() -> None:
    """Facts §0.5: with `hibernate` the freezing starts at once."""
    [(_, notice)] = read_message(json.dumps(_event(detail={"instance-id": "i-12345678", "instance-action": "hibernate"})), NOW).notices
    assert notice.deadline == datetime(2022, 8, 11, 14, tzinfo=UTC)


def test_a_warning_without_a_time_counts_from_now() -> None:
    """A warning is too precious to be dropped for a time that cannot be read."""
    [(_, notice)] = read_message(json.dumps(_event(time="soon")), NOW).notices
    assert notice.deadline == NOW + timedelta(seconds=120)


def test_a_rebalance_recommendation_has_no_deadline() -> None:
    """It is a hint: it never stops a job."""
    [(instance, notice)] = read_message(json.dumps(_event("EC2 Instance Rebalance Recommendation", {"instance-id": "i-12345678"})), NOW).notices
    assert (instance, notice.kind, notice.deadline) == ("i-12345678", NoticeKind.REBALANCE, None)


def test_scheduled_maintenance_names_each_instance_and_its_time() -> None:
    """One message may tell of several; its `startTime` is the deadline, whatever weekday it claims, and however old the message is."""
    rows = [{"entityValue": "i-12345678"}, {"entityValue": "arn:aws:ec2:us-east-1:1:instance/i-87654321"}, {"entityValue": "h-1"}, {"x": 1}, None]
    event = _health(affectedEntities=rows, startTime="Mon, 13 Aug 2022 15:10:09 GMT") | {"time": "2022-08-09T00:00:00Z"}
    read = read_message(json.dumps(event), NOW)
    assert [name for name, _ in read.notices] == ["i-12345678", "i-87654321"]
    assert {(n.kind, n.deadline) for _, n in read.notices} == {(NoticeKind.MAINTENANCE, datetime(2022, 8, 13, 15, 10, 9, tzinfo=UTC))}


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"startTime": "Sat, 06 Aug 2022 15:10:09 GMT"}, Verdict.STALE),
        ({"startTime": "2022-08-13T15:10:09Z"}, Verdict.NOTICE),
        ({"startTime": None}, Verdict.GARBAGE),
        ({"startTime": "tomorrow"}, Verdict.GARBAGE),
        ({"statusCode": "closed"}, Verdict.FOREIGN),
        ({"eventTypeCategory": "issue"}, Verdict.FOREIGN),
        ({"service": "RDS"}, Verdict.FOREIGN),
        ({"affectedEntities": [{"entityValue": "vol-1"}]}, Verdict.FOREIGN),
        ({"affectedEntities": None}, Verdict.FOREIGN),
    ],
)
def test_health_events_that_are_no_maintenance_to_come(changes: dict[str, Any], verdict: Verdict) -> None:
    """Without its time a maintenance would mean "now" and stop a job that has days left, so it is no notice."""
    assert _verdict(_health(**changes)) is verdict


@pytest.mark.parametrize(
    ("event", "verdict"),
    [
        (_event("EC2 Instance State-change Notification", {"instance-id": "i-12345678", "state": "shutting-down"}), Verdict.STATE_CHANGE),
        (_event("spotd canary warnings", {"canary": "x"}, source="spotd.canary"), Verdict.CANARY),
        (_event("EC2 Spot Instance Request Fulfillment", {"instance-id": "i-12345678"}), Verdict.FOREIGN),
        (_event("EC2 Instance-terminate Lifecycle Action", {}, source="aws.autoscaling"), Verdict.FOREIGN),
        (_event(source="com.example"), Verdict.FOREIGN),
        (_event(version="1"), Verdict.FOREIGN),
        (_event(time="2022-08-11T13:49:00Z"), Verdict.STALE),
        (_event(time="2022-08-11T13:51:00Z"), Verdict.NOTICE),
        (_event(time="2022-08-11T14:05:00+00:00"), Verdict.NOTICE),
        (_event(account=None, resources=None, id=None), Verdict.NOTICE),
        (_event(detail={"instance-id": "vol-1"}), Verdict.GARBAGE),
        (_event(detail={"instance-id": 7}), Verdict.GARBAGE),
        (_event(detail={}), Verdict.GARBAGE),
        (_event(detail="text"), Verdict.GARBAGE),
        ({"Event": "autoscaling:TEST_NOTIFICATION", "Service": "AWS Auto Scaling"}, Verdict.GARBAGE),
        ({"detail": {}}, Verdict.GARBAGE),
        (["x"], Verdict.GARBAGE),
        ("", Verdict.GARBAGE),
        ("{", Verdict.GARBAGE),
        ("[" * 100_000, Verdict.GARBAGE),
        ("NaN", Verdict.GARBAGE),
    ],
)
def test_every_message_has_a_verdict(event: Any, verdict: Verdict) -> None:
    """Foreign, old and broken messages are told apart from notices (facts/known-faults.md A 13, 16), also without the keys that we do not need."""
    assert _verdict(event) is verdict


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([WARNING, "aws.ec2", "aws.health", "AWS Health Event", "0", AT, "EC2"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["source", "detail-type", "version", "detail", "time", "instance-id", "affectedEntities"]), inner)
    ),
)


@given(_JSON | st.text())
def test_no_message_raises(value: Any) -> None:
    """Whatever lies in a queue, it never stops the messages beside it."""
    body = value if isinstance(value, str) else json.dumps(value)
    assert read_message(body, NOW).verdict in Verdict
    canary_of(body)


def test_a_canary_is_known_by_its_name() -> None:
    """Only from its own source: EC2 sends none."""
    assert canary_of(json.dumps(_event("spotd canary states", {"canary": "a b"}, source="spotd.canary"))) == "a b"
    assert canary_of(json.dumps(_event("spotd canary states", {"canary": "a b"}))) is None
    assert canary_of(json.dumps(_event("spotd canary states", {"canary": 3}, source="spotd.canary"))) is None
