"""Make in each region what `wiring` wants there: ask what is there, do what is missing, and see that an event arrives. Repeating is harmless."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from spotd.core.errors import ProviderError, ProviderUnavailable
from spotd_aws.errors import reads
from spotd_aws.events import canary_of
from spotd_aws.queue import NO_QUEUE
from spotd_aws.tags import DEPLOYMENT
from spotd_aws.wiring import (
    Account,
    Action,
    CloseGroup,
    CreateGroup,
    CreateQueue,
    Fate,
    Found,
    FoundGroup,
    FoundQueue,
    FoundRule,
    PutRule,
    PutTarget,
    SetQueue,
    Step,
    Wanted,
    canary_event,
    plan,
    wanted,
)

if TYPE_CHECKING:
    from spotd_aws.clients import Clients
    from spotd_aws.config import AwsConfig

#: Rules take "a short time" to become effective (facts/reclaim.md §1.6): canaries are sent again meanwhile.
CANARY_WAIT_S = 60.0
_RESEND_S = 10.0
_LISTEN_S = 5
#: What else is received beside a canary is hidden from the daemon for so long, in seconds.
_HIDE_S = 2
_AT_A_TIME = 8
_Thing = TypeVar("_Thing")


@unique
class Outcome(StrEnum):
    """What became of a step, as it is printed."""

    CREATED = "created"
    REPAIRED = "repaired"
    UNCHANGED = "unchanged"
    WOULD_CREATE = "would create"
    WOULD_REPAIR = "would repair"
    SKIPPED = "skipped"
    ARRIVED = "arrived"
    FAILED = "FAILED"

    @property
    def failed(self) -> bool:
        """Whether somebody has to do something."""
        return self is Outcome.FAILED


@dataclass(frozen=True, slots=True)
class Done:
    """One line of the report."""

    region: str
    what: str
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Orders:
    """How the set-up is to go."""

    dry_run: bool = False
    canary: bool = True
    canary_wait_s: float = CANARY_WAIT_S


def account_of(clients: Clients) -> Account:
    """Whose credentials these are. Raises ProviderError."""
    home = clients.home_region()
    with reads("asking whose credentials these are", home):
        answer = clients.get("sts", home).get_caller_identity()
    number, arn = str(answer.get("Account") or ""), str(answer.get("Arn") or "")
    if not number.isdecimal():
        raise ProviderUnavailable("AWS did not say whose credentials these are")
    return Account(number, arn.split(":")[1] if arn.count(":") > 1 else "aws")


def enabled_regions(clients: Clients) -> tuple[str, ...]:
    """Every region that the account has enabled. Raises ProviderError."""
    home = clients.home_region()
    with reads("listing the regions", home):
        answer = clients.get("ec2", home).describe_regions()
    return tuple(sorted(str(row["RegionName"]) for row in answer.get("Regions") or [] if row.get("RegionName")))


def set_up(
    clients: Clients, config: AwsConfig, deployment: str, regions: Sequence[str], orders: Orders, stop: threading.Event
) -> Iterator[Sequence[Done]]:
    """Region by region, several at a time, each told when it is finished, in the given order. Raises ProviderError where no region can be asked."""
    account = account_of(clients)

    def one(region: str) -> list[Done]:
        want = wanted(deployment, region, account, own_groups=bool(config.place(region).security_groups), queue=config.queue)
        return list(_region(clients, want, orders, stop))

    pool = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="aws-setup")
    try:
        yield from pool.map(one, regions)
    finally:
        # Also when somebody pressed Ctrl-C: what is begun is finished, the rest is left for the next time.
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _region(clients: Clients, want: Wanted, orders: Orders, stop: threading.Event) -> Iterator[Done]:
    what = f"queue {want.queue}"
    try:
        found = observe(clients, want)
        for step in plan(want, found):
            what = step.what
            if stop.is_set():
                return
            for action in () if orders.dry_run else step.actions:
                carry_out(clients, want, action)
            yield Done(want.region, step.what, _outcome(step, orders), step.because)
        what = "canary"
        if want.with_queue and orders.canary and not orders.dry_run:
            yield send_canary(clients, want, orders.canary_wait_s, stop)
    except ProviderError as error:
        yield Done(want.region, what, Outcome.FAILED, str(error))


def _outcome(step: Step, orders: Orders) -> Outcome:
    match step.fate:
        case Fate.KEEP:
            return Outcome.UNCHANGED
        case Fate.CREATE:
            return Outcome.WOULD_CREATE if orders.dry_run else Outcome.CREATED
        case Fate.REPAIR:
            return Outcome.WOULD_REPAIR if orders.dry_run else Outcome.REPAIRED
        case Fate.SKIP:
            return Outcome.SKIPPED
        case _:
            assert_never(step.fate)


# What is there


def observe(clients: Clients, want: Wanted) -> Found:
    """What a region has. Raises ProviderError."""
    region = want.region
    queue = _found_queue(clients, want) if want.with_queue else None
    rules = {rule.name: found for rule in want.rules if (found := _found_rule(clients, region, rule.name)) is not None}
    if want.group is None:
        return Found(queue, rules)
    vpc = default_vpc(clients, region)
    group = _found_group(clients, region, want.group, vpc) if vpc else None
    return Found(queue, rules, vpc, group)


def _found_queue(clients: Clients, want: Wanted) -> FoundQueue | None:
    sqs = clients.get("sqs", want.region)

    def look() -> FoundQueue:
        with reads(f"looking at queue {want.queue}", want.region):
            url = str(sqs.get_queue_url(QueueName=want.queue).get("QueueUrl") or "")
            attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"]).get("Attributes") or {}
        return FoundQueue(url, {str(key): str(value) for key, value in attributes.items()})

    return _if_there(look, NO_QUEUE)


def _found_rule(clients: Clients, region: str, name: str) -> FoundRule | None:
    events = clients.get("events", region)

    def look() -> FoundRule:
        targets: list[Mapping[str, Any]] = []
        page: dict[str, str] = {}
        with reads(f"looking at rule {name}", region):
            rule = events.describe_rule(Name=name)
            while True:
                answer = events.list_targets_by_rule(Rule=name, **page)
                targets += answer.get("Targets") or []
                if not answer.get("NextToken"):
                    break
                page = {"NextToken": str(answer["NextToken"])}
        return FoundRule(str(rule.get("EventPattern") or ""), str(rule.get("State", "")).startswith("ENABLED"), tuple(targets))

    return _if_there(look, {"ResourceNotFoundException"})


def default_vpc(clients: Clients, region: str) -> str | None:
    """The default VPC of a region, if it has one. Raises ProviderError."""
    with reads("looking for the default VPC", region):
        answer = clients.get("ec2", region).describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])
    return next((str(row["VpcId"]) for row in answer.get("Vpcs") or [] if row.get("VpcId")), None)


def _found_group(clients: Clients, region: str, name: str, vpc: str) -> FoundGroup | None:
    filters = [{"Name": "group-name", "Values": [name]}, {"Name": "vpc-id", "Values": [vpc]}]
    with reads(f"looking for security group {name}", region):
        rows = clients.get("ec2", region).describe_security_groups(Filters=filters).get("SecurityGroups") or []
    return next((FoundGroup(str(row["GroupId"]), tuple(row.get("IpPermissions") or ())) for row in rows if row.get("GroupId")), None)


def _if_there(look: Callable[[], _Thing], codes: Collection[str]) -> _Thing | None:
    """What is not there is no error."""
    try:
        return look()
    except ProviderError as error:
        if error.code in codes:
            return None
        raise


# What is done


def carry_out(clients: Clients, want: Wanted, action: Action) -> None:
    """One change. Raises ProviderError."""
    region, tags = want.region, {DEPLOYMENT: want.deployment}
    with reads(_doing(action), region):
        match action:
            case CreateQueue(name, attributes):
                clients.get("sqs", region).create_queue(QueueName=name, Attributes=dict(attributes), tags=tags)
            case SetQueue(url, attributes):
                clients.get("sqs", region).set_queue_attributes(QueueUrl=url, Attributes=dict(attributes))
            case PutRule(rule, new):
                # Tags are taken from a new rule only.
                extra = {"Tags": _pairs(tags)} if new else {}
                pattern = json.dumps(rule.pattern)
                clients.get("events", region).put_rule(Name=rule.name, EventPattern=pattern, State="ENABLED", Description=rule.description, **extra)
            case PutTarget(rule_name, target_id, arn):
                answer = clients.get("events", region).put_targets(Rule=rule_name, Targets=[{"Id": target_id, "Arn": arn}])
                if answer.get("FailedEntryCount"):
                    raise _refused(answer.get("FailedEntries"), f"rule {rule_name} does not take the queue as its target")
            case CreateGroup(name, vpc):
                clients.get("ec2", region).create_security_group(
                    GroupName=name,
                    VpcId=vpc,
                    Description=f"spotd {want.deployment}: nothing comes in",
                    TagSpecifications=[{"ResourceType": "security-group", "Tags": _pairs(tags)}],
                )
            case CloseGroup(group_id, ingress):
                clients.get("ec2", region).revoke_security_group_ingress(GroupId=group_id, IpPermissions=list(ingress))
            case _:
                assert_never(action)


def _doing(action: Action) -> str:
    match action:
        case CreateQueue(name):
            return f"creating queue {name}"
        case SetQueue():
            return "changing the queue"
        case PutRule(rule):
            return f"writing rule {rule.name}"
        case PutTarget(rule_name):
            return f"giving rule {rule_name} its target"
        case CreateGroup(name):
            return f"creating security group {name}"
        case CloseGroup(group_id):
            return f"closing security group {group_id}"
        case _:
            assert_never(action)


def _pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _refused(entries: Any, otherwise: str) -> ProviderError:
    """EventBridge says 200 and refuses all the same, entry by entry."""
    row = next((one for one in entries or [] if isinstance(one, dict) and one.get("ErrorCode")), {})
    return ProviderUnavailable(str(row.get("ErrorMessage") or otherwise), str(row.get("ErrorCode") or ""))


# Whether it works


def send_canary(clients: Clients, want: Wanted, wait_s: float, stop: threading.Event, monotonic: Callable[[], float] = time.monotonic) -> Done:
    """Send an event through each rule and wait until all have arrived: what forbids it is silent otherwise. Raises ProviderError."""
    begun = monotonic()
    name = secrets.token_hex(8)
    missing = {f"{name} {rule.name}": rule for rule in want.rules}
    sqs, events = clients.get("sqs", want.region, read_timeout_s=_LISTEN_S + 10), clients.get("events", want.region)
    with reads("waiting for the canary", want.region):
        url = str(sqs.get_queue_url(QueueName=want.queue).get("QueueUrl") or "")
    sent_at = float("-inf")
    while missing and monotonic() - begun < wait_s and not stop.is_set():
        if monotonic() - sent_at >= _RESEND_S:
            sent_at = monotonic()
            with reads("sending the canary", want.region):
                answer = events.put_events(Entries=[canary_event(rule, canary) for canary, rule in missing.items()])
            if answer.get("FailedEntryCount"):
                raise _refused(answer.get("Entries"), "the canary was refused")
        with reads("waiting for the canary", want.region):
            for heard in _canaries(sqs, url, min(_LISTEN_S, wait_s)):
                missing.pop(heard, None)
    took = monotonic() - begun
    if not missing:
        return Done(want.region, "canary", Outcome.ARRIVED, f"through every rule, in {took:.1f} s")
    if stop.is_set():
        return Done(want.region, "canary", Outcome.SKIPPED, "interrupted")
    rules = ", ".join(rule.name for rule in missing.values())
    reason = (
        f"nothing sent through {rules} has arrived in {took:.0f} s. Rules that are new need a minute: run it again. Else something else forbids it: "
        "another statement in the queue's policy, the queue's own key, an organisation's policy"
    )
    return Done(want.region, "canary", Outcome.FAILED, reason)


def _canaries(sqs: Any, url: str, wait_s: float) -> Iterator[str]:
    """The names of canaries that are there, taken out of the queue. Warnings that lie among them are left to the daemon, at once nearly."""
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=int(wait_s), VisibilityTimeout=_HIDE_S)
    for message in answer.get("Messages") or []:
        name = canary_of(str(message.get("Body") or ""))
        if name is not None:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message.get("ReceiptHandle"))
            yield name
