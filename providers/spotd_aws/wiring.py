"""What has to be in a region so that its warnings reach the daemon: what is wanted, what is there, and what is to be done about the difference.

Values and one pure function; `setup` asks and acts, `doctor` asks and tells. Facts: facts/reclaim.md §1.6, §1.7.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, unique
from types import MappingProxyType
from typing import Any

from spotd_aws.config import PREFIX
from spotd_aws.events import AWS_HEALTH, CANARY, EC2, Kind

#: A rule's name has 64 characters at most, and `-warnings` has to fit behind.
_LONGEST = 48
_TARGET = "spotd"
#: Of the queue. Five minutes: an older warning is worthless. No delay: a queue with one eats up the notice.
_ATTRIBUTES = MappingProxyType(
    {
        "ReceiveMessageWaitTimeSeconds": "20",
        "MessageRetentionPeriod": "300",
        "VisibilityTimeout": "30",
        "DelaySeconds": "0",
        "SqsManagedSseEnabled": "true",
    }
)
#: AWS's own key for queues: its policy cannot be changed, so that EventBridge can never use it.
_OWN_KEY = "alias/aws/sqs"


def queue_name(deployment: str) -> str:
    """The name of a deployment's queue, the same in every region, and the beginning of its rules' names."""
    if re.fullmatch(rf"[A-Za-z0-9_-]{{1,{_LONGEST}}}", deployment):
        return f"{PREFIX}-{deployment}"
    # Too long, or with a dot, which queues may not have: another deployment must not come to the same name.
    digest = hashlib.sha256(deployment.encode()).hexdigest()[:8]
    return f"{PREFIX}-{re.sub('[^A-Za-z0-9_-]', '-', deployment)[: _LONGEST - 9]}-{digest}"


def group_name(deployment: str) -> str:
    """The name of a deployment's security group."""
    return f"{PREFIX}-{deployment}"


@dataclass(frozen=True, slots=True)
class Account:
    """Whose account it is. `partition` is `aws`, `aws-cn` or `aws-us-gov`."""

    id: str
    partition: str = "aws"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule on the default bus that sends what it matches to the queue, as it is."""

    name: str
    pattern: Mapping[str, Any]
    description: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a region should have."""

    region: str
    deployment: str
    queue: str
    queue_arn: str
    attributes: Mapping[str, str]
    statements: tuple[Mapping[str, Any], ...]
    rules: tuple[Rule, ...]
    #: None: the configuration names groups of its own.
    group: str | None
    #: False: the configuration has the warnings come without one (`queue = false`), and there are no rules either.
    with_queue: bool = True


@dataclass(frozen=True, slots=True)
class FoundQueue:
    """A queue that is there."""

    url: str
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FoundRule:
    """A rule that is there. `targets` as EventBridge tells them."""

    pattern: str
    enabled: bool
    targets: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class FoundGroup:
    """A security group that is there, and what it lets in."""

    id: str
    ingress: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """What a region has."""

    queue: FoundQueue | None = None
    rules: Mapping[str, FoundRule] = field(default_factory=lambda: MappingProxyType({}))
    #: The default VPC.
    vpc: str | None = None
    group: FoundGroup | None = None


@dataclass(frozen=True, slots=True)
class CreateQueue:
    """Make the queue, with its policy."""

    name: str
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SetQueue:
    """Change these attributes of the queue."""

    url: str
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PutRule:
    """Make or overwrite a rule; it is enabled."""

    rule: Rule
    new: bool


@dataclass(frozen=True, slots=True)
class PutTarget:
    """Let a rule send to the queue."""

    rule: str
    target_id: str
    arn: str


@dataclass(frozen=True, slots=True)
class CreateGroup:
    """Make the security group: as EC2 makes them, nothing comes in and everything may go out."""

    name: str
    vpc: str


@dataclass(frozen=True, slots=True)
class CloseGroup:
    """Take away everything that the group lets in."""

    id: str
    ingress: tuple[Mapping[str, Any], ...]


Action = CreateQueue | SetQueue | PutRule | PutTarget | CreateGroup | CloseGroup


@unique
class Fate(StrEnum):
    """What is to become of a thing."""

    KEEP = "keep"
    CREATE = "create"
    REPAIR = "repair"
    #: It cannot be had here, and what that means is said.
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing of a region. `because` is for people: what differs."""

    what: str
    fate: Fate
    actions: tuple[Action, ...] = ()
    because: str = ""


def wanted(deployment: str, region: str, account: Account, *, own_groups: bool, queue: bool = True) -> Wanted:
    """What a region should have. `own_groups`: the configuration names security groups, so none is needed; `queue`: as it says there."""
    name = queue_name(deployment)
    arn = f"arn:{account.partition}:sqs:{region}:{account.id}:{name}"
    rules = f"arn:{account.partition}:events:{region}:{account.id}:rule/{name}-*"
    statements: tuple[dict[str, Any], ...] = (
        {
            "Sid": "EventsToQueue",
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": arn,
            "Condition": {"ArnLike": {"aws:SourceArn": rules}},
        },
        {
            "Sid": "DenyHTTP",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "sqs:*",
            "Resource": arn,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
    )
    group = None if own_groups else group_name(deployment)
    return Wanted(region, deployment, name, arn, _ATTRIBUTES, statements, _rules(name) if queue else (), group, queue)


def _rules(name: str) -> tuple[Rule, ...]:
    # Each lets the canary through as well, so that it proves this rule and no other: the detail of a canary fits all of them.
    warnings = {
        "source": [EC2, CANARY],
        "detail-type": [Kind.SPOT_WARNING.value, Kind.REBALANCE.value, Kind.RESERVATION_WARNING.value, f"{Kind.CANARY.value} warnings"],
    }
    states = {
        "source": [EC2, CANARY],
        "detail-type": [Kind.STATE_CHANGE.value, f"{Kind.CANARY.value} states"],
        "detail": {"state": ["stopping", "stopped", "shutting-down", "terminated"]},
    }
    health = {
        "source": [AWS_HEALTH, CANARY],
        "detail-type": [Kind.HEALTH.value, f"{Kind.CANARY.value} health"],
        "detail": {"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]},
    }
    return (
        Rule(f"{name}-warnings", warnings, "spotd: instances that will be taken away"),
        Rule(f"{name}-states", states, "spotd: instances that stop or end"),
        Rule(f"{name}-health", health, "spotd: scheduled maintenance of instances"),
    )


def canary_event(rule: Rule, name: str) -> dict[str, str]:
    """An event that this rule lets through, and none of the others: an entry of PutEvents."""
    kind = next(kind for kind in rule.pattern["detail-type"] if kind.startswith(Kind.CANARY.value))
    detail = {"canary": name, "state": "terminated", "service": "EC2", "eventTypeCategory": "scheduledChange"}
    return {"Source": CANARY, "DetailType": kind, "Detail": json.dumps(detail)}


def plan(want: Wanted, found: Found) -> tuple[Step, ...]:
    """What is to be done so that the region has what it should. What others have added stays."""
    return (*_queue(want, found.queue), *(_rule(want, rule, found.rules.get(rule.name)) for rule in want.rules), _group(want, found))


def _queue(want: Wanted, found: FoundQueue | None) -> tuple[Step, ...]:
    thing, policy = f"queue {want.queue}", f"policy of queue {want.queue}"
    if not want.with_queue:
        return (Step(thing, Fate.SKIP, because="queue = false under [providers.aws]: nothing would read it"),)
    if found is None:
        attributes = {**want.attributes, "Policy": _document(want.statements)}
        # Its policy comes with it: a queue without one would swallow nothing and say nothing.
        return Step(thing, Fate.CREATE, (CreateQueue(want.queue, attributes),)), Step(policy, Fate.CREATE)
    changes = _changes(want.attributes, found.attributes)
    because = ", ".join(f"{key} is {found.attributes.get(key, 'not set')}, not {value or 'empty'}" for key, value in changes.items())
    first = Step(thing, Fate.REPAIR, (SetQueue(found.url, changes),), because) if changes else Step(thing, Fate.KEEP)
    theirs, missing = _policy(want.statements, found.attributes.get("Policy", ""))
    if not missing:
        return first, Step(policy, Fate.KEEP)
    document = _document((*theirs, *want.statements))
    return first, Step(policy, Fate.REPAIR, (SetQueue(found.url, {"Policy": document}),), f"{', '.join(missing)} missing or different")


def _changes(want: Mapping[str, str], have: Mapping[str, str]) -> dict[str, str]:
    changes = {key: value for key, value in want.items() if have.get(key, "").lower() != value}
    key = have.get("KmsMasterKeyId", "")
    if key and not key.endswith(_OWN_KEY):
        # A key of the account's own is somebody's decision; whether EventBridge may use it shows the canary.
        changes.pop("SqsManagedSseEnabled", None)
    elif key:
        changes |= {"SqsManagedSseEnabled": "true", "KmsMasterKeyId": ""}
    return changes


def _policy(want: Sequence[Mapping[str, Any]], text: str) -> tuple[list[Mapping[str, Any]], list[str]]:
    """The statements that are not ours, and the names of ours that are not there as wanted."""
    try:
        rows = json.loads(text)["Statement"] if text else []
    except (ValueError, KeyError, TypeError):
        rows = []
    statements = [row for row in (rows if isinstance(rows, list) else [rows]) if isinstance(row, dict)]
    names = [str(one["Sid"]) for one in want]
    have = {row.get("Sid"): _normal(row) for row in statements}
    missing = [str(one["Sid"]) for one in want if have.get(one["Sid"]) != _normal(one)]
    return [row for row in statements if row.get("Sid") not in names], missing


def _document(statements: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def _rule(want: Wanted, rule: Rule, found: FoundRule | None) -> Step:
    thing = f"rule {rule.name}"
    target = PutTarget(rule.name, _TARGET, want.queue_arn)
    if found is None:
        return Step(thing, Fate.CREATE, (PutRule(rule, new=True), target))
    actions: list[Action] = []
    because: list[str] = []
    try:
        same = _normal(json.loads(found.pattern)) == _normal(rule.pattern)
    except ValueError:
        same = False
    if not same:
        because.append("its pattern differs")
    if not found.enabled:
        because.append("it is disabled")
    if because:
        actions.append(PutRule(rule, new=False))
    # One that rewrites the event on its way makes it unreadable for us.
    if not any(one.get("Arn") == want.queue_arn and not {"Input", "InputPath", "InputTransformer"} & one.keys() for one in found.targets):
        because.append("it does not send to the queue")
        actions.append(target)
    return Step(thing, Fate.REPAIR, tuple(actions), ", ".join(because)) if actions else Step(thing, Fate.KEEP)


def _group(want: Wanted, found: Found) -> Step:
    if want.group is None:
        return Step("security group", Fate.SKIP, because="the configuration names its own")
    thing = f"security group {want.group}"
    if found.vpc is None:
        return Step(
            thing, Fate.SKIP, because=f"no default VPC in {want.region}: name subnets and security_groups under [providers.aws.in.{want.region}]"
        )
    if found.group is None:
        return Step(thing, Fate.CREATE, (CreateGroup(want.group, found.vpc),))
    if found.group.ingress:
        because = "it lets something in; a group with rules of your own is named in security_groups"
        return Step(thing, Fate.REPAIR, (CloseGroup(found.group.id, found.group.ingress),), because)
    return Step(thing, Fate.KEEP)


def _normal(value: Any) -> Any:
    """JSON without what means nothing: the order of keys and of lists, and lists of one."""
    if isinstance(value, Mapping):
        return {key: _normal(one) for key, one in sorted(value.items())}
    if isinstance(value, list | tuple):
        parts = sorted((_normal(one) for one in value), key=lambda one: json.dumps(one, sort_keys=True))
        return parts[0] if len(parts) == 1 else parts
    return value
