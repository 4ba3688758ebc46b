"""EventBridge's events about instances, as they lie in the queue: which of them are notices (facts/reclaim.md §1.5).

Pure, and tolerant: whatever is in a message becomes a verdict about that message, never an error, so that none of them stops the others.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum, unique
from typing import Any

from spotd.core.notice import Notice, NoticeKind, NoticeSource

EC2, AWS_HEALTH, CANARY = "aws.ec2", "aws.health", "spotd.canary"


@unique
class Kind(StrEnum):
    """`detail-type` of the events that our rules let through."""

    SPOT_WARNING = "EC2 Spot Instance Interruption Warning"
    RESERVATION_WARNING = "EC2 Capacity Reservation Instance Interruption Warning"
    REBALANCE = "EC2 Instance Rebalance Recommendation"
    STATE_CHANGE = "EC2 Instance State-change Notification"
    HEALTH = "AWS Health Event"
    #: What `spotd aws setup` sends through its own rules to see whether they deliver.
    CANARY = "spotd canary"


#: From the warning to the end, where instances are terminated or stopped; hibernation begins with the warning (facts/reclaim.md §0.5).
_LEAD = timedelta(seconds=120)
#: What is older says nothing any more: the instance is gone, or its reclaim was taken back.
STALE_AFTER = timedelta(minutes=10)
_INSTANCE = re.compile(r"i-[0-9a-f]{8,32}")


@unique
class Verdict(StrEnum):
    """What a message is to us."""

    NOTICE = "notice"
    #: One that our rules let through and that is no notice: an instance has changed its state.
    STATE_CHANGE = "state change"
    CANARY = "canary"
    STALE = "stale"
    #: An event, but none of those we know.
    FOREIGN = "foreign"
    GARBAGE = "garbage"


@dataclass(frozen=True, slots=True)
class Read:
    """A message that was read."""

    verdict: Verdict
    #: Instance by instance; only where the verdict is NOTICE.
    notices: tuple[tuple[str, Notice], ...] = ()
    #: When it happened, by the event; None where it does not say.
    at: datetime | None = None


def read_message(body: str, now: datetime) -> Read:
    """What one message says. `now` is AWS's time, so that a wrong clock on this host cannot make every warning look stale."""
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        return Read(Verdict.GARBAGE)
    if not isinstance(event, dict) or not isinstance(event.get("detail"), dict):
        return Read(Verdict.GARBAGE)
    return _route(event, event["detail"], _iso(event.get("time")), now)


def canary_of(body: str) -> str | None:
    """The name in a canary's message; None if it is none."""
    try:
        event = json.loads(body)
        name = event["detail"]["canary"] if event["source"] == CANARY else None
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) else None


def _route(event: dict[str, Any], detail: dict[str, Any], at: datetime | None, now: datetime) -> Read:
    """By source, kind and version, as these events are told apart (facts/reclaim.md §1.5)."""
    match event.get("source"), event.get("detail-type"), event.get("version"):
        case ("aws.ec2", Kind.SPOT_WARNING | Kind.RESERVATION_WARNING, "0"):
            begun = at or now
            deadline = begun if detail.get("instance-action") == "hibernate" else begun + _LEAD
            return _of_instance(detail, Notice(NoticeKind.RECLAIM, NoticeSource.PROVIDER, now, deadline), at, now)
        case ("aws.ec2", Kind.REBALANCE, "0"):
            return _of_instance(detail, Notice(NoticeKind.REBALANCE, NoticeSource.PROVIDER, now, None), at, now)
        case ("aws.health", Kind.HEALTH, "0"):
            return _health(detail, at, now)
        case ("aws.ec2", Kind.STATE_CHANGE, _):
            return Read(Verdict.STATE_CHANGE, at=at)
        case ("spotd.canary", _, _):
            return Read(Verdict.CANARY, at=at)
        case (str(), str(), _):
            return Read(Verdict.FOREIGN, at=at)
        case _:
            return Read(Verdict.GARBAGE, at=at)


def _of_instance(detail: dict[str, Any], notice: Notice, at: datetime | None, now: datetime) -> Read:
    # The id stands in the detail: the ARN in `resources` is odd and documented in two ways (facts/reclaim.md §0.9).
    instance = detail.get("instance-id")
    if not isinstance(instance, str) or not _INSTANCE.fullmatch(instance):
        return Read(Verdict.GARBAGE, at=at)
    if at is not None and now - at > STALE_AFTER:
        return Read(Verdict.STALE, at=at)
    return Read(Verdict.NOTICE, ((instance, notice),), at)


def _health(detail: dict[str, Any], at: datetime | None, now: datetime) -> Read:
    if (detail.get("service"), detail.get("eventTypeCategory")) != ("EC2", "scheduledChange") or detail.get("statusCode") == "closed":
        return Read(Verdict.FOREIGN, at=at)
    begins = _http_date(detail.get("startTime"))
    rows = detail.get("affectedEntities")
    named = [str(row.get("entityValue")).rpartition("/")[2] for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    instances = [name for name in named if _INSTANCE.fullmatch(name)]
    if begins is None:
        # Without its time it would mean "now" and stop a job that has days left; the agent's own metadata service tells the time too.
        return Read(Verdict.GARBAGE, at=at)
    if not instances:
        return Read(Verdict.FOREIGN, at=at)  # of hosts, reservations, volumes
    # Announced days ahead and told again: what counts is whether it is still to come.
    if now - begins > STALE_AFTER:
        return Read(Verdict.STALE, at=at)
    notice = Notice(NoticeKind.MAINTENANCE, NoticeSource.PROVIDER, now, begins)
    return Read(Verdict.NOTICE, tuple((name, notice) for name in dict.fromkeys(instances)), at)


def _iso(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        return _utc(datetime.fromisoformat(value))
    except (ValueError, OverflowError):
        return None


def _http_date(value: object) -> datetime | None:
    """`Sat, 05 Jun 2016 15:10:09 GMT`, as AWS Health writes times; its weekday may be wrong."""
    if not isinstance(value, str):
        return None
    try:
        return _utc(parsedate_to_datetime(value))
    except (ValueError, OverflowError):
        return _iso(value)


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
