"""Our instances in a region as the listing shows them, and the reclaims that their spot requests tell of: against EC2 over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from spotd.core.errors import NotAuthorized, ProviderUnavailable, Throttled
from spotd.core.instance import EndedBy, LaunchRequest, ObservedInstance, ObservedState
from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd.core.offer import Market, OfferKey
from spotd.testing import FakeClock
from spotd.testing.fake_aws import FakeAws, Lags, Pool, Reclaim
from spotd_aws.clients import Clients
from spotd_aws.config import read
from spotd_aws.launch import Launcher
from spotd_aws.listing import Listing

REGION, ELSEWHERE = "us-west-2", "eu-west-1"
SPOT = OfferKey("aws", REGION, f"{REGION}a", "g5.xlarge", Market.SPOT)
ON_DEMAND = replace(SPOT, market=Market.ON_DEMAND)
#: Seconds until one runs, and until it has gone.
BOOTS, ENDS = 5.0, 10.0


class _Account:
    """An account with a listing on it, and what that passed on."""

    def __init__(self, aws: FakeAws, clock: FakeClock) -> None:
        self.aws, self.clock = aws, clock
        self.config = read({"endpoint_url": aws.endpoint})
        self.clients = Clients(self.config)
        self.seen: list[tuple[str, Notice]] = []
        self.listing = Listing(self.clients, "lab", lambda provider_id, notice: self.seen.append((provider_id, notice)), clock.now)
        self._count = 0

    def launch(self, offer: OfferKey = SPOT, deployment: str = "lab") -> str:
        self._count += 1
        request = LaunchRequest(f"try-{self._count:04}", deployment, "job-1", "llama", 1, 0, offer, None, self.clock.now() + timedelta(days=1))
        return Launcher(self.clients, self.config, deployment, self.clock.now).launch(request, "#!/bin/bash\n").provider_id

    def runs(self, offer: OfferKey = SPOT) -> str:
        provider_id = self.launch(offer)
        self.pass_time(BOOTS)
        return provider_id

    def pass_time(self, seconds: float) -> datetime:
        self.clock.step(seconds)
        self.aws.tick()
        return self.clock.now()

    def row(self, provider_id: str) -> ObservedInstance:
        (found,) = (row for row in self.listing.instances(REGION) if row.provider_id == provider_id)
        return found


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Account]:
    """An empty account with two regions, and pages of two rows."""
    clock = FakeClock()
    with FakeAws(clock, (REGION, ELSEWHERE), lags=Lags(boot_s=BOOTS, shutdown_s=ENDS)) as aws:
        aws.world.page_rows = 2
        for name, value in aws.environment().items():
            monkeypatch.setenv(name, value)
        yield _Account(aws, clock)


def test_everything_of_ours_and_nothing_else(account: _Account) -> None:
    """Page after page; of one deployment, of one region."""
    ours = {account.launch(offer) for offer in (SPOT, SPOT, SPOT, ON_DEMAND, ON_DEMAND)}
    account.launch(deployment="theirs")
    account.launch(replace(SPOT, region=ELSEWHERE, zone=f"{ELSEWHERE}a"))
    rows = account.listing.instances(REGION)
    assert {row.provider_id for row in rows} == ours
    assert {row.token for row in rows} == {f"try-{number:04}" for number in range(1, 6)}
    assert {(row.region, row.zone) for row in rows} == {(REGION, f"{REGION}a")}


def test_a_page_that_is_missing_makes_no_listing(account: _Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partial list would prove absences that are none."""
    for _ in range(3):
        account.launch()
    ec2 = account.clients.get("ec2", REGION)
    ask = ec2.describe_instances

    def second_fails(**parameters: Any) -> Any:
        if "NextToken" in parameters:
            account.aws.refuse(REGION, "DescribeInstances", "RequestLimitExceeded", 503, times=1)
        return ask(**parameters)

    monkeypatch.setattr(ec2, "describe_instances", second_fails)
    with pytest.raises(Throttled):
        account.listing.instances(REGION)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({}, "unexpected KeyError"),
        ({"Reservations": [{"Instances": [{"InstanceId": "i-1"}]}]}, "unexpected KeyError"),
        ({"Reservations": [{"Instances": [{"InstanceId": "i-1", "State": {"Name": "dreaming"}}]}]}, "a state that spotd does not know: dreaming"),
        ({"Reservations": [], "NextToken": "again"}, "same page for ever"),
    ],
)
def test_an_answer_that_is_not_understood_makes_no_listing(
    account: _Account, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], says: str
) -> None:
    """Whatever it lacks or holds."""
    monkeypatch.setattr(account.clients.get("ec2", REGION), "describe_instances", lambda **_: answer)
    with pytest.raises(ProviderUnavailable, match=says):
        account.listing.instances(REGION)


def test_billing_begins_when_it_runs(account: _Account) -> None:
    """Pending is free (facts/reclaim.md §1.11): until then there is no time to bill from."""
    provider_id = account.launch()
    row = account.row(provider_id)
    assert (row.state, row.launched_at) == (ObservedState.PENDING, None)
    account.pass_time(BOOTS)
    row = account.row(provider_id)
    assert row.state is ObservedState.RUNNING
    assert row.launched_at == account.aws.instance(provider_id).launched_at
    assert (row.ended_at, row.ended_by, row.end_code) == (None, None, "")


def test_a_launch_that_failed_while_it_started_cost_nothing(account: _Account) -> None:
    """Accepted, and then there was none to be had."""
    account.aws.fail_launches(Pool(*SPOT.parts()[1:4], Market.SPOT), "Server.InsufficientInstanceCapacity")
    provider_id = account.runs()
    row = account.row(provider_id)
    assert (row.state, row.launched_at, row.ended_by) == (ObservedState.GONE, None, EndedBy.NEVER_RAN)
    assert row.end_code == "Server.InsufficientInstanceCapacity"


def test_a_reclaim_is_seen_in_the_spot_request_first(account: _Account) -> None:
    """The third channel: the request says so while the instance runs on for two minutes (facts/reclaim.md §0.3)."""
    provider_id = account.runs()
    account.listing.instances(REGION)
    assert account.seen == []
    marked_at = account.clock.now()
    account.aws.reclaim(provider_id, Reclaim(imds=False, events=False))
    seen_at = account.pass_time(15)
    assert account.row(provider_id).state is ObservedState.RUNNING
    expected = Notice(NoticeKind.RECLAIM, NoticeSource.PROVIDER, seen_at, marked_at + timedelta(seconds=120))
    assert account.seen == [(provider_id, expected)]


def test_a_reclaim_that_was_cancelled_is_told_no_more(account: _Account) -> None:
    """The request is fulfilled again (facts/reclaim.md §1.3)."""
    provider_id = account.runs()
    account.aws.reclaim(provider_id)
    account.listing.instances(REGION)
    account.aws.cancel_reclaim(provider_id)
    account.seen.clear()
    assert account.row(provider_id).ended_by is None
    assert account.seen == []


@pytest.mark.parametrize("code", ["instance-terminated-no-capacity", "instance-terminated-by-price", "instance-terminated-by-experiment"])
def test_a_reclaim_ends_two_minutes_after_its_notice(account: _Account, code: str) -> None:
    """EC2 has no field for the end of an instance; the request's own time tells it, however late the listing is."""
    provider_id = account.runs()
    marked_at = account.clock.now()
    account.aws.reclaim(provider_id, Reclaim(code=code))
    account.pass_time(120)
    account.pass_time(600)
    row = account.row(provider_id)
    assert (row.state, row.ended_by, row.ended_at) == (ObservedState.GONE, EndedBy.RECLAIM, marked_at + timedelta(seconds=120))
    assert row.end_code == "Server.SpotInstanceTermination"
    assert account.seen == []


def test_a_reclaim_without_notice_is_one(account: _Account) -> None:
    """No notice is guaranteed (facts/reclaim.md §0.1): the reason of the state says what it was."""
    provider_id = account.runs()
    account.aws.reclaim(provider_id, Reclaim(notice_s=0))
    now = account.pass_time(ENDS)
    row = account.row(provider_id)
    assert (row.state, row.ended_by) == (ObservedState.GONE, EndedBy.RECLAIM)
    assert row.ended_at is not None
    assert row.ended_at <= now


def test_somebody_elses_call_ends_when_it_was_made(account: _Account) -> None:
    """The transition's text has the time in it; on the way down it is said already."""
    provider_id = account.runs(ON_DEMAND)
    ended_at = account.clock.now()
    account.aws.end_by_hand(provider_id)
    going = account.row(provider_id)
    assert (going.state, going.ended_by) == (ObservedState.ENDING, EndedBy.EXTERNAL)
    account.pass_time(600)
    gone = account.row(provider_id)
    assert (gone.state, gone.ended_by, gone.end_code) == (ObservedState.GONE, EndedBy.EXTERNAL, "Client.UserInitiatedShutdown")
    assert gone.ended_at is not None
    assert gone.ended_at == ended_at.replace(microsecond=0)


def test_a_shutdown_from_inside_ends_when_the_spot_request_says(account: _Account) -> None:
    """No time in the reason; the request was closed at that moment."""
    provider_id = account.runs()
    ended_at = account.clock.now()
    account.aws.power_off(provider_id)
    account.pass_time(600)
    row = account.row(provider_id)
    assert (row.state, row.ended_by, row.ended_at) == (ObservedState.GONE, EndedBy.GUEST, ended_at.replace(microsecond=0))


def test_an_end_without_a_time_is_no_later_than_now(account: _Account) -> None:
    """An on-demand machine that switched itself off: nothing tells when, so it is when it was seen."""
    provider_id = account.runs(ON_DEMAND)
    account.aws.power_off(provider_id)
    now = account.pass_time(600)
    row = account.row(provider_id)
    assert (row.ended_by, row.ended_at) == (EndedBy.GUEST, now)


def test_maintenance_is_told_apart(account: _Account) -> None:
    """Nobody's fault, and no preemption (facts/reclaim.md §1.9)."""
    provider_id = account.runs(ON_DEMAND)
    account.aws.maintain(provider_id, in_s=60)
    account.pass_time(60)
    account.pass_time(ENDS)
    assert account.row(provider_id).ended_by is EndedBy.MAINTENANCE


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "InternalError"])
def test_without_spot_requests_the_listing_stands(account: _Account, code: str) -> None:
    """The reason of the state says most; what only the request would say is not known."""
    running, reclaimed = account.runs(), account.runs()
    account.aws.reclaim(reclaimed)
    account.pass_time(120)
    account.pass_time(ENDS)
    account.aws.reclaim(running)
    account.aws.refuse(REGION, "DescribeSpotInstanceRequests", code)
    assert account.row(reclaimed).ended_by is EndedBy.RECLAIM
    assert account.row(running).state is ObservedState.RUNNING
    assert account.seen == []
    account.aws.allow(REGION, "DescribeSpotInstanceRequests")
    account.row(running)
    assert [provider_id for provider_id, _ in account.seen] == [running]


def test_on_demand_machines_have_no_spot_requests_to_ask_for(account: _Account) -> None:
    """One call less, and one permission less."""
    account.runs(ON_DEMAND)
    account.aws.refuse(REGION, "DescribeSpotInstanceRequests", "InternalError")
    before = account.clients.get("ec2", REGION)
    asked: list[str] = []
    before.meta.events.register("before-call.ec2.*", lambda model, **_: asked.append(model.name))
    account.listing.instances(REGION)
    assert asked == ["DescribeInstances"]


def test_a_missing_permission_is_said(account: _Account) -> None:
    """It is no empty listing."""
    account.aws.refuse(REGION, "DescribeInstances", "UnauthorizedOperation", 403, message="You are not authorized to perform this operation.")
    with pytest.raises(NotAuthorized, match=r"listing instances in us-west-2: DescribeInstances is not permitted"):
        account.listing.instances(REGION)


def test_a_machine_whose_tags_are_gone_is_not_listed(account: _Account) -> None:
    """They vanish before the row does; by then its end has been recorded, or its absence proves it."""
    provider_id = account.runs()
    account.aws.end_by_hand(provider_id)
    account.pass_time(ENDS)
    assert account.row(provider_id).state is ObservedState.GONE
    account.pass_time(account.aws.world.fleet.lags.tags_kept_s)
    assert account.listing.instances(REGION) == []
