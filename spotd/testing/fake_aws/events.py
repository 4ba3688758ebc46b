"""EventBridge: what EC2 puts on the default bus of a region, delivered to the queues that rules name (facts/reclaim.md §1.5)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from spotd.testing.fake_aws.fleet import Fleet
from spotd.testing.fake_aws.instances import FakeInstance, Maintenance

#: Puts an event on a region's bus.
Deliver = Callable[[str, Mapping[str, object]], None]


class Bus:
    """Says what happens to instances, each thing so long after it happened."""

    def __init__(self, account: str, fleet: Fleet, deliver: Deliver) -> None:
        self._account = account
        self._fleet = fleet
        self._deliver = deliver
        fleet.watchers.append(self._state_changed)

    def warn(self, instance: FakeInstance, at: datetime, action: str, *, delay_s: float, copies: int) -> None:
        """The interruption warning, so often (0: it is lost). Its ARN names the zone in place of the region, and no account (§0.9)."""
        arn = f"arn:aws:ec2:{instance.zone}:instance/{instance.instance_id}"
        detail = {"instance-id": instance.instance_id, "instance-action": action}
        event = self._event(instance, at, "EC2 Spot Instance Interruption Warning", arn, detail)
        for _ in range(copies):
            self._put(instance, at, delay_s, event)

    def hint(self, instance: FakeInstance, at: datetime) -> None:
        """The rebalance recommendation."""
        arn = f"arn:aws:ec2:{instance.zone}:instance/{instance.instance_id}"
        event = self._event(instance, at, "EC2 Instance Rebalance Recommendation", arn, {"instance-id": instance.instance_id})
        self._put(instance, at, 0.0, event)

    def maintain(self, instance: FakeInstance, at: datetime, planned: Maintenance) -> None:
        """AWS Health tells of a scheduled change."""
        words = planned.code.upper().replace("-", "_")
        detail = {
            "eventArn": f"arn:aws:health:{instance.region}::event/EC2/AWS_EC2_{words}_SCHEDULED/{planned.id}",
            "service": "EC2",
            "eventTypeCode": f"AWS_EC2_{words}_SCHEDULED",
            "eventTypeCategory": "scheduledChange",
            "startTime": planned.not_before.strftime("%a, %d %b %Y %H:%M:%S GMT"),
            "endTime": planned.not_after.strftime("%a, %d %b %Y %H:%M:%S GMT"),
            "eventDescription": [{"language": "en_US", "latestDescription": planned.description}],
            "affectedEntities": [{"entityValue": instance.instance_id}],
        }
        event = self._event(instance, at, "AWS Health Event", instance.instance_id, detail, source="aws.health")
        self._put(instance, at, 0.0, event)

    def _state_changed(self, instance: FakeInstance, at: datetime) -> None:
        arn = f"arn:aws:ec2:{instance.region}:{self._account}:instance/{instance.instance_id}"
        detail = {"instance-id": instance.instance_id, "state": instance.state.value}
        event = self._event(instance, at, "EC2 Instance State-change Notification", arn, detail)
        self._put(instance, at, self._fleet.lags.state_change_s, event)

    def _event(
        self, instance: FakeInstance, at: datetime, kind: str, resource: str, detail: Mapping[str, object], source: str = "aws.ec2"
    ) -> Mapping[str, object]:
        return {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": kind,
            "source": source,
            "account": self._account,
            "time": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": instance.region,
            "resources": [resource],
            "detail": detail,
        }

    def _put(self, instance: FakeInstance, at: datetime, delay_s: float, event: Mapping[str, object]) -> None:
        if delay_s <= 0:
            self._deliver(instance.region, event)
        else:
            self._fleet.agenda.at(at + timedelta(seconds=delay_s), lambda _: self._deliver(instance.region, event))


def as_text(event: Mapping[str, object]) -> str:
    """The body of the message in the queue."""
    return json.dumps(event)
