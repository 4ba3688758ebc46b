"""`spotd aws setup`: what it plans, what it does, and whether events then arrive."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from spotd.testing.fake_aws import FakeAws, Reclaim
from spotd_aws.clients import Clients
from spotd_aws.config import read
from spotd_aws.queue import Pace, Warnings
from spotd_aws.setup import Done, Orders, Outcome, carry_out, observe, send_canary, set_up
from spotd_aws.wiring import (
    Account,
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
    plan,
    queue_name,
    wanted,
)

WEST, EAST = "us-west-2", "us-east-1"
ACCOUNT = Account("123456789012")
WANT = wanted("lab", WEST, ACCOUNT, own_groups=False)
ARN = "arn:aws:sqs:us-west-2:123456789012:spotd-lab"


def _attributes(**changes: str) -> Mapping[str, str]:
    policy = json.dumps({"Version": "2012-10-17", "Statement": list(WANT.statements)})
    return {**WANT.attributes, "Policy": policy, "QueueArn": ARN} | changes


def _rules(**changes: Any) -> dict[str, FoundRule]:
    given: dict[str, Any] = {"enabled": True, "targets": ({"Id": "spotd", "Arn": ARN},)} | changes
    return {rule.name: FoundRule(**({"pattern": json.dumps(rule.pattern)} | given)) for rule in WANT.rules}


def _found(**changes: Any) -> Found:
    given: dict[str, Any] = {"queue": FoundQueue("https://q", _attributes()), "rules": _rules(), "vpc": "vpc-1", "group": FoundGroup("sg-1")}
    return Found(**(given | changes))


def _step(found: Found, what: str) -> Step:
    return next(step for step in plan(WANT, found) if step.what.startswith(what))


def test_an_empty_region_gets_everything() -> None:
    """Queue with its policy in one call, three rules with their target, and a group into which nothing comes (facts §1.6)."""
    steps = plan(WANT, Found(vpc="vpc-1"))
    assert [(step.what, step.fate) for step in steps] == [
        ("queue spotd-lab", Fate.CREATE),
        ("policy of queue spotd-lab", Fate.CREATE),
        ("rule spotd-lab-warnings", Fate.CREATE),
        ("rule spotd-lab-states", Fate.CREATE),
        ("rule spotd-lab-health", Fate.CREATE),
        ("security group spotd-lab", Fate.CREATE),
    ]
    [create] = steps[0].actions
    assert isinstance(create, CreateQueue)
    assert {key: value for key, value in create.attributes.items() if key != "Policy"} == {
        "ReceiveMessageWaitTimeSeconds": "20",
        "MessageRetentionPeriod": "300",
        "VisibilityTimeout": "30",
        "DelaySeconds": "0",
        "SqsManagedSseEnabled": "true",
    }
    allow, deny = json.loads(create.attributes["Policy"])["Statement"]
    assert allow["Principal"] == {"Service": "events.amazonaws.com"}
    assert allow["Condition"] == {"ArnLike": {"aws:SourceArn": "arn:aws:events:us-west-2:123456789012:rule/spotd-lab-*"}}
    assert (deny["Effect"], deny["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert steps[2].actions == (PutRule(WANT.rules[0], new=True), PutTarget("spotd-lab-warnings", "spotd", ARN))
    assert steps[5].actions == (CreateGroup("spotd-lab", "vpc-1"),)


def test_the_rules_let_through_what_is_read() -> None:
    """The patterns of facts §1.6, each with a canary of its own."""
    warnings, states, health = (rule.pattern for rule in WANT.rules)
    assert warnings["source"] == ["aws.ec2", "spotd.canary"]
    assert {"EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation"} < set(warnings["detail-type"])
    assert states["detail"] == {"state": ["stopping", "stopped", "shutting-down", "terminated"]}
    assert health["detail"] == {"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]}


def test_what_is_there_is_left_alone() -> None:
    """Idempotent: nothing to do the second time, whatever the order of keys and lists in what AWS tells."""
    shuffled = {
        name: FoundRule(json.dumps(dict(reversed(json.loads(rule.pattern).items()))), rule.enabled, rule.targets) for name, rule in _rules().items()
    }
    for rules in (_rules(), shuffled):
        steps = plan(WANT, _found(rules=rules))
        assert {step.fate for step in steps} == {Fate.KEEP}
        assert [action for step in steps for action in step.actions] == []


@pytest.mark.parametrize(
    ("attributes", "changes"),
    [
        ({"DelaySeconds": "90"}, {"DelaySeconds": "0"}),
        ({"MessageRetentionPeriod": "345600", "VisibilityTimeout": "0"}, {"MessageRetentionPeriod": "300", "VisibilityTimeout": "30"}),
        ({"SqsManagedSseEnabled": "false"}, {"SqsManagedSseEnabled": "true"}),
        ({"SqsManagedSseEnabled": "false", "KmsMasterKeyId": "alias/aws/sqs"}, {"SqsManagedSseEnabled": "true", "KmsMasterKeyId": ""}),
    ],
)
def test_a_queue_that_differs_is_repaired_where_it_differs(attributes: dict[str, str], changes: dict[str, str]) -> None:
    """A delay eats up the notice (facts §1.6); AWS's own key for queues can never be used by EventBridge."""
    step = _step(_found(queue=FoundQueue("https://q", _attributes(**attributes))), "queue")
    assert (step.fate, step.actions) == (Fate.REPAIR, (SetQueue("https://q", changes),))
    assert all(key in step.because for key in changes)


def test_a_key_of_the_accounts_own_is_somebodys_decision() -> None:
    """Encryption by KMS with a customer's key stays."""
    attributes = _attributes(SqsManagedSseEnabled="false", KmsMasterKeyId="arn:aws:kms:us-west-2:1:key/x")
    assert _step(_found(queue=FoundQueue("https://q", attributes)), "queue").fate is Fate.KEEP


@pytest.mark.parametrize("policy", ["", "{", '{"Statement": 3}', '{"Version": "2012-10-17", "Statement": {"Sid": "Other", "Effect": "Allow"}}'])
def test_a_policy_without_ours_gets_it_and_keeps_others(policy: str) -> None:
    """What others allowed is not ours to take away."""
    step = _step(_found(queue=FoundQueue("https://q", _attributes(Policy=policy))), "policy")
    [action] = step.actions
    assert isinstance(action, SetQueue)
    names = [one["Sid"] for one in json.loads(action.attributes["Policy"])["Statement"]]
    assert names == [*(["Other"] if "Other" in policy else []), "EventsToQueue", "DenyHTTP"]
    assert "EventsToQueue" in step.because


def test_a_statement_of_ours_that_was_changed_is_put_right() -> None:
    """Under our name there is nothing else."""
    changed = [dict(WANT.statements[0], Resource="*"), WANT.statements[1]]
    step = _step(_found(queue=FoundQueue("https://q", _attributes(Policy=json.dumps({"Statement": changed})))), "policy")
    [action] = step.actions
    assert isinstance(action, SetQueue)
    assert json.loads(action.attributes["Policy"])["Statement"] == list(WANT.statements)


@pytest.mark.parametrize(
    ("changes", "because", "kinds"),
    [
        ({"pattern": "{}"}, "pattern", [PutRule]),
        ({"pattern": "{"}, "pattern", [PutRule]),
        ({"enabled": False}, "disabled", [PutRule]),
        ({"targets": ()}, "does not send", [PutTarget]),
        ({"targets": ({"Id": "spotd", "Arn": ARN + "-old"},)}, "does not send", [PutTarget]),
        ({"targets": ({"Id": "spotd", "Arn": ARN, "InputPath": "$.detail"},)}, "does not send", [PutTarget]),
        ({"pattern": "{}", "targets": ()}, "pattern", [PutRule, PutTarget]),
    ],
)
def test_a_rule_that_differs_is_repaired(changes: dict[str, Any], because: str, kinds: list[type]) -> None:
    """Pattern, state and target, each for itself; a target that rewrites the event is none."""
    step = _step(_found(rules=_rules(**changes)), "rule")
    assert step.fate is Fate.REPAIR
    assert because in step.because
    assert [type(action) for action in step.actions] == kinds


def test_the_group_lets_nothing_in() -> None:
    """Or is not wanted, or cannot be had: both are said."""
    ingress = ({"IpProtocol": "tcp", "FromPort": 22},)
    step = _step(_found(group=FoundGroup("sg-1", ingress)), "security")
    assert (step.fate, step.actions) == (Fate.REPAIR, (CloseGroup("sg-1", ingress),))
    step = _step(_found(vpc=None, group=None), "security")
    assert (step.fate, step.actions) == (Fate.SKIP, ())
    assert "no default VPC in us-west-2" in step.because
    assert plan(wanted("lab", WEST, ACCOUNT, own_groups=True), _found())[-1].fate is Fate.SKIP


@pytest.mark.parametrize("deployment", ["a" * 63, "two.words", "b.c" * 20, "two-words"])
def test_names_fit_and_differ(deployment: str) -> None:
    """Rules have 64 characters, queues no dots; two deployments never share a queue."""
    name = queue_name(deployment)
    assert all(len(rule.name) <= 64 for rule in wanted(deployment, WEST, ACCOUNT, own_groups=True).rules)
    assert "." not in name
    assert len({queue_name(one) for one in ("two.words", "two-words", "a" * 63, "a" * 62)}) == 4


# On the fake


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    """An account with two regions."""
    with FakeAws(regions=(WEST, EAST)) as made:
        yield made


@pytest.fixture
def clients(aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clients]:
    """Its clients."""
    for name, value in aws.environment().items():
        monkeypatch.setenv(name, value)
    made = Clients(read({"endpoint_url": aws.endpoint}))
    yield made
    made.close()


def _set_up(clients: Clients, deployment: str, *regions: str, **orders: Any) -> list[Done]:
    config = read({})
    return [one for report in set_up(clients, config, deployment, regions or (WEST,), Orders(**orders), threading.Event()) for one in report]


def _outcomes(done: list[Done]) -> set[Outcome]:
    return {one.outcome for one in done}


def test_setting_up_twice_changes_nothing_the_second_time(clients: Clients) -> None:
    """First everything is created, and the canaries arrive; then all is unchanged, and they arrive again."""
    first = _set_up(clients, "twice", WEST, EAST)
    assert [one.region for one in first] == [WEST] * 7 + [EAST] * 7
    assert _outcomes(first) == {Outcome.CREATED, Outcome.ARRIVED}
    second = _set_up(clients, "twice", WEST, EAST)
    assert _outcomes(second) == {Outcome.UNCHANGED, Outcome.ARRIVED}


def test_a_dry_run_does_nothing(clients: Clients) -> None:
    """It says what would be done."""
    assert _outcomes(_set_up(clients, "dry", dry_run=True)) == {Outcome.WOULD_CREATE}
    assert observe(clients, wanted("dry", WEST, ACCOUNT, own_groups=False)).queue is None


def test_what_somebody_changed_is_repaired(clients: Clients) -> None:
    """Each difference is named, the rest stays."""
    _set_up(clients, "mend", canary=False)
    want = wanted("mend", WEST, ACCOUNT, own_groups=False)
    found = observe(clients, want)
    assert found.queue is not None
    carry_out(clients, want, SetQueue(found.queue.url, {"DelaySeconds": "90", "Policy": ""}))
    events = clients.get("events", WEST)
    events.disable_rule(Name="spotd-mend-warnings")
    events.remove_targets(Rule="spotd-mend-states", Ids=["spotd"])
    would = _set_up(clients, "mend", dry_run=True)
    assert [one.outcome for one in would] == [Outcome.WOULD_REPAIR] * 4 + [Outcome.UNCHANGED] * 2
    done = _set_up(clients, "mend")
    assert [one.outcome for one in done] == [Outcome.REPAIRED] * 4 + [Outcome.UNCHANGED] * 2 + [Outcome.ARRIVED]
    assert "DelaySeconds is 90, not 0" in done[0].detail


def test_a_reclaim_reaches_the_queue(aws: FakeAws, clients: Clients) -> None:
    """What is set up is what warnings come by."""
    _set_up(clients, "real", canary=False)
    ec2, sqs = clients.get("ec2", WEST), clients.get("sqs", WEST)
    image = ec2.describe_images()["Images"][0]["ImageId"]
    spot = {"MarketType": "spot"}
    row = ec2.run_instances(ImageId=image, InstanceType="g5.xlarge", MinCount=1, MaxCount=1, InstanceMarketOptions=spot)["Instances"][0]
    aws.reclaim(row["InstanceId"], Reclaim())
    url = sqs.get_queue_url(QueueName="spotd-real")["QueueUrl"]
    [message] = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
    assert json.loads(message["Body"])["detail"]["instance-id"] == row["InstanceId"]


def test_a_canary_that_does_not_arrive_is_a_failure(clients: Clients) -> None:
    """It names the rule, and leaves warnings that lie in the queue where they are."""
    _set_up(clients, "deaf", canary=False)
    want = wanted("deaf", WEST, ACCOUNT, own_groups=False)
    clients.get("events", WEST).remove_targets(Rule="spotd-deaf-states", Ids=["spotd"])
    sqs = clients.get("sqs", WEST)
    url = sqs.get_queue_url(QueueName="spotd-deaf")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="a warning")
    done = send_canary(clients, want, 1.0, threading.Event())
    assert done.outcome is Outcome.FAILED
    assert "spotd-deaf-states" in done.detail
    assert "spotd-deaf-warnings" not in done.detail
    [message] = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
    assert message["Body"] == "a warning"


def test_a_canary_arrives_beside_a_daemon_that_listens(clients: Clients) -> None:
    """Both read the same queue: the daemon puts canaries back and steps aside, and setup leaves warnings to the daemon."""
    _set_up(clients, "both", canary=False)
    want = wanted("both", WEST, ACCOUNT, own_groups=False)
    config = read({"queue_wait": "1s"})
    warnings = Warnings(clients, config, "both", lambda: (WEST,), pace=Pace(aside=1.0))
    stop, heard = threading.Event(), threading.Event()

    def _listen() -> None:
        while not stop.is_set():
            if warnings.notices(stop):
                heard.set()

    listener = threading.Thread(target=_listen)
    listener.start()
    try:
        for _ in range(3):
            assert send_canary(clients, want, 20.0, threading.Event()).outcome is Outcome.ARRIVED
        event = {"version": "0", "source": "aws.ec2", "detail-type": "EC2 Instance Rebalance Recommendation", "detail": {"instance-id": "i-00000001"}}
        sqs = clients.get("sqs", WEST)
        sqs.send_message(QueueUrl=sqs.get_queue_url(QueueName="spotd-both")["QueueUrl"], MessageBody=json.dumps(event))
        assert heard.wait(10)
    finally:
        stop.set()
        listener.join()
        warnings.close()


def test_one_region_that_refuses_does_not_stop_the_others(aws: FakeAws, clients: Clients) -> None:
    """It is named with what is missing; running it again goes on from there."""
    aws.refuse(WEST, "sqs:CreateQueue", "AccessDenied", 403)
    try:
        done = _set_up(clients, "half", WEST, EAST)
    finally:
        aws.allow(WEST, "sqs:CreateQueue")
    [failed] = [one for one in done if one.region == WEST]
    assert failed.outcome is Outcome.FAILED
    assert "CreateQueue" in failed.detail
    assert _outcomes([one for one in done if one.region == EAST]) == {Outcome.CREATED, Outcome.ARRIVED}
    assert _outcomes(_set_up(clients, "half", WEST)) == {Outcome.CREATED, Outcome.ARRIVED}


def test_interrupted_before_it_begins_it_does_nothing(clients: Clients) -> None:
    """Ctrl-C between two regions leaves the second as it was."""
    stop = threading.Event()
    stop.set()
    assert [list(one) for one in set_up(clients, read({}), "never", (WEST,), Orders(), stop)] == [[]]
    assert observe(clients, wanted("never", WEST, ACCOUNT, own_groups=False)).queue is None


def test_a_group_that_lets_something_in_is_closed() -> None:
    """The rules that are there are taken away, and no others."""
    calls: list[dict[str, Any]] = []

    class _Ec2:
        def revoke_security_group_ingress(self, **call: Any) -> dict[str, Any]:
            calls.append(call)
            return {}

    class _Clients:
        def get(self, *_: Any) -> _Ec2:
            return _Ec2()

    rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}
    carry_out(_Clients(), WANT, CloseGroup("sg-1", (rule,)))  # type: ignore[arg-type]
    assert calls == [{"GroupId": "sg-1", "IpPermissions": [rule]}]
