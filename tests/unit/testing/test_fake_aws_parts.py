"""Parts of the fake AWS account that need no server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from spotd.core.offer import Market
from spotd.testing.fake_aws.catalogue import Catalogue, region_code, zones_of
from spotd.testing.fake_aws.faults import Faults, Reset
from spotd.testing.fake_aws.instances import Past
from spotd.testing.fake_aws.market import QUOTAS, SpotMarket, quota_of
from spotd.testing.fake_aws.routing import Unsigned, route
from spotd.testing.fake_aws.timekeeping import Agenda
from spotd.testing.fake_aws.wire import AwsError, Call, Form, page

T0 = datetime(2026, 1, 1, tzinfo=UTC)
_SIGNED = "AWS4-HMAC-SHA256 Credential=AKIAX/20260101/{}/{}/aws4_request, SignedHeaders=host, Signature=0"


def _call(action: str = "RunInstances", region: str = "us-west-2", service: str = "ec2") -> Call:
    return Call(service, region, action, "POST", "/", "", {}, b"")


@pytest.mark.parametrize(
    ("region", "code"),
    [("us-east-1", "use1"), ("ap-southeast-2", "apse2"), ("ap-northeast-1", "apne1"), ("eu-central-1", "euc1"), ("us-gov-west-1", "usgw1")],
)
def test_zone_ids_begin_as_awss_do(region: str, code: str) -> None:
    """`use1-az6` and its like."""
    assert region_code(region) == code
    assert zones_of(region)[0].id == f"{code}-az6"


def test_forms_are_lists_and_groups() -> None:
    """`Name.N` are lists in the order of their numbers, `Name.N.x` groups, `Name.x` a form of its own."""
    form = Form.parse(b"A.2=two&A.10=ten&A.1=one&F.1.Name=x&F.1.Value.1=y&S.T.U=z&Flag=true")
    assert form.listed("A") == ["one", "two", "ten"]
    assert [(group.text("Name"), group.listed("Value")) for group in form.groups("F")] == [("x", ["y"])]
    assert form.sub("S").sub("T").text("U") == "z"
    assert form.flag("Flag")
    with pytest.raises(AwsError, match="MissingParameter"):
        form.required("B")


def test_pages_hold_every_row_once() -> None:
    """However small they are; a token from elsewhere is refused."""
    rows, token, seen = list(range(23)), "", list[int]()
    while True:
        part, token = page(Form({"Action": "X", "NextToken": token}), rows, 5)
        seen += part
        if not token:
            break
    assert seen == rows
    with pytest.raises(AwsError, match="InvalidNextToken"):
        page(Form({"NextToken": "nonsense"}), rows, 5)
    with pytest.raises(AwsError, match="InvalidParameterValue"):
        page(Form({"MaxResults": "4"}), rows, 5)


def test_an_agenda_keeps_to_its_times() -> None:
    """What is due happens in the order of its times, told its own time; what that adds happens, too, if it is due."""
    agenda, told = Agenda(), list[tuple[str, datetime]]()

    def first(at: datetime) -> None:
        told.append(("first", at))
        agenda.at(at + timedelta(seconds=1), lambda then: told.append(("second", then)))

    agenda.at(T0 + timedelta(seconds=5), lambda at: told.append(("third", at)))
    agenda.at(T0, first)
    agenda.at(T0 + timedelta(seconds=60), lambda at: told.append(("later", at)))
    agenda.catch_up(T0 + timedelta(seconds=10))
    assert [name for name, _ in told] == ["first", "second", "third"]
    assert [(at - T0).total_seconds() for _, at in told] == [0, 1, 5]


def test_the_past_is_remembered() -> None:
    """What it was then; before its beginning, what it began as."""
    past = Past(T0, "a")
    past.set(T0 + timedelta(seconds=10), "b")
    assert [past.at(T0 + timedelta(seconds=s)) for s in (-5, 0, 9, 10, 99)] == ["a", "a", "a", "b", "b"]
    assert past.now == "b"


@pytest.mark.parametrize(
    ("kind", "market", "code"),
    [
        ("g5.xlarge", Market.SPOT, "L-3819A6DF"),
        ("p4d.24xlarge", Market.SPOT, "L-7212CCBC"),
        ("p5.48xlarge", Market.SPOT, "L-C4BD4855"),
        ("p5en.48xlarge", Market.ON_DEMAND, "L-417A185B"),
        ("m5.large", Market.SPOT, "L-34B43A08"),
        ("vt1.3xlarge", Market.ON_DEMAND, "L-DB2E81BA"),
        ("inf1.xlarge", Market.SPOT, None),
    ],
)
def test_types_count_against_their_quota(kind: str, market: Market, code: str | None) -> None:
    """By family: p5 has one of its own on the spot market, none on demand."""
    quota = quota_of(kind, market)
    assert (quota.code if quota else None) == code


def test_prices_have_a_past() -> None:
    """A window gives its changes and the one before; where a type is not sold there is no price; a quota that nobody knows is a mistake."""
    market = SpotMarket(Catalogue(("us-west-2",)), T0)
    market.set("us-west-2a", "g5.xlarge", Decimal("0.5"), T0)
    market.set("us-west-2a", "g5.xlarge", Decimal("0.6"), T0 + timedelta(hours=1))
    assert market.price("us-west-2a", "g5.xlarge", T0 + timedelta(minutes=59)) == Decimal("0.5")
    assert market.price("us-west-2a", "x9.large", T0) is None
    half = T0 + timedelta(minutes=30)
    assert sorted(usd for _, usd in market.changes("us-west-2a", "g5.xlarge", half, T0 + timedelta(hours=2))) == [Decimal("0.5"), Decimal("0.6")]
    assert market.limit("us-west-2", QUOTAS[0]) > 0
    with pytest.raises(ValueError, match="no quota"):
        market.grant("us-west-2", "L-0", 1)


def test_requests_name_service_and_region_in_their_scope() -> None:
    """In the header or in a presigned address; the action in form, header or path."""
    ec2 = route("POST", "/", "", {"authorization": _SIGNED.format("us-west-2", "ec2")}, b"Action=RunInstances&Version=2016-11-15")
    assert (ec2.service, ec2.region, ec2.action) == ("ec2", "us-west-2", "RunInstances")
    sqs = route("POST", "/", "", {"authorization": _SIGNED.format("eu-west-1", "sqs"), "x-amz-target": "AmazonSQS.ReceiveMessage"}, b"{}")
    assert (sqs.service, sqs.region, sqs.action) == ("sqs", "eu-west-1", "ReceiveMessage")
    query = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAX%2F20260101%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Signature=0"
    s3 = route("PUT", "/bucket/key", query, {}, b"")
    assert (s3.service, s3.region, s3.action) == ("s3", "us-east-1", "PutObject")
    assert route("PUT", "/bucket/key", query + "&partNumber=1&uploadId=u", {}, b"").action == "UploadPart"
    assert route("GET", "/experiments/EXP1", "", {"authorization": _SIGNED.format("us-east-1", "fis")}, b"").action == "GetExperiment"
    with pytest.raises(Unsigned, match="AuthFailure"):
        route("POST", "/", "", {"content-type": "application/x-www-form-urlencoded"}, b"Action=DescribeRegions&Version=2016-11-15")


def test_faults_meet_only_whom_they_name() -> None:
    """By action, service:action, region or star; so often."""
    faults = Faults()
    faults.refuse("us-west-2", "sqs:*", AwsError("X", ""), None)
    faults.before(_call())
    faults.before(_call("ReceiveMessage", "eu-west-1", "sqs"))
    with pytest.raises(AwsError):
        faults.before(_call("ReceiveMessage", service="sqs"))
    faults.lose("*", "RunInstances", 1)
    with pytest.raises(Reset):
        faults.after(_call())
    faults.after(_call())
    with faults.broken("us-west-2"):
        with pytest.raises(Reset):
            faults.before(_call())
        faults.before(_call(service="iam"))
    faults.before(_call())
