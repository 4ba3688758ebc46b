"""The port on a directory, as far as no machine is needed: prices, refusals, listings, notices, damage."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from spotd.core.errors import InvalidRequest, NoCapacity, PriceTooHigh, ProviderUnavailable, Scope
from spotd.core.instance import EndedBy, ObservedState
from spotd.core.notice import NoticeKind, NoticeSource
from spotd.core.offer import Market
from spotd.ports import Launched, OfferQuery, Refused, Unknown
from spotd_local import replay
from spotd_local.processes import identify
from spotd_local.record import InstanceDirectory, Mark, Record, request_document, write_atomic
from tests.unit.local.clouds import KIND, cloud, record, request

if TYPE_CHECKING:
    from pathlib import Path

    from spotd_local.provider import LocalProvider


@dataclass
class Clock:
    """Wall time to step."""

    now: float = 1_796_071_000.0

    def __call__(self) -> float:
        """The time now."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The time the provider sees."""
    return Clock()


@pytest.fixture
def provider(tmp_path: Path, clock: Clock) -> LocalProvider:
    """A local cloud whose market has begun at the clock's time."""
    provider = cloud(tmp_path)
    provider.now = clock
    replay.begin(provider.config.root, provider._replay(), clock())
    return provider


def write(provider: LocalProvider, instance: Record) -> InstanceDirectory:
    """Put a record into the cloud, with this test's own process as its machine."""
    directory = InstanceDirectory(provider.config.root / "instances" / instance.token)
    for folder in (directory.orders, directory.disk, directory.path / "acknowledged"):
        folder.mkdir(parents=True)
    directory.write(instance)
    machine = identify(os.getpid())
    assert machine is not None
    directory.write_machine(machine)
    return directory


def prices(provider: LocalProvider, region: str, market: Market) -> dict[str, Decimal]:
    """Price by zone."""
    sheet = provider.offers(OfferQuery(frozenset({KIND, "p5.48xlarge"}), frozenset({region})))
    return {o.key.zone: o.price_usd_per_hour for o in sheet.offers if o.key.market is market}


def test_prices_follow_the_recording(provider: LocalProvider, clock: Clock) -> None:
    """Spot prices are those of the sample in force, on-demand prices stand, and a zone without capacity has its price, too."""
    assert prices(provider, "west", Market.SPOT) == {"west-a": Decimal("0.90"), "west-b": Decimal("0.90")}
    assert prices(provider, "east", Market.ON_DEMAND) == {"east-a": Decimal("3.10")}
    clock.now += 300
    assert prices(provider, "west", Market.SPOT) == {"west-a": Decimal("1.10"), "west-b": Decimal("1.10")}


def test_an_offer_says_when_its_price_was_seen(provider: LocalProvider, clock: Clock) -> None:
    """Now, in UTC."""
    sheet = provider.offers(OfferQuery(frozenset({KIND}), frozenset({"east"})))
    assert {offer.seen_at for offer in sheet.offers} == {datetime.fromtimestamp(clock(), UTC)}


def test_a_region_that_is_not_in_the_market_is_a_failure_not_silence(provider: LocalProvider) -> None:
    """Unknown is a value."""
    sheet = provider.offers(OfferQuery(frozenset({KIND}), frozenset({"moon", "east"})))
    assert set(sheet.failures) == {"moon"}
    assert {offer.key.region for offer in sheet.offers} == {"east"}


def test_the_market_stands_still_until_the_first_launch(tmp_path: Path, clock: Clock) -> None:
    """However long the daemon takes to start, a demonstration begins at its start; afterwards nothing begins it anew."""
    provider = cloud(tmp_path, speed=100)
    provider.now = clock
    clock.now += 1000
    assert prices(provider, "west", Market.SPOT)["west-a"] == Decimal("0.90")
    with pytest.raises(NoCapacity):
        provider.launch(request("west-b"), "")
    clock.now += 3
    assert prices(provider, "west", Market.SPOT)["west-a"] == Decimal("1.10")
    again = cloud(tmp_path, speed=100)
    again.now = clock
    assert prices(again, "west", Market.SPOT)["west-a"] == Decimal("1.10")


def test_a_zone_that_is_down_has_no_capacity(provider: LocalProvider) -> None:
    """The whole zone is meant, with EC2's code, and nothing was made (facts/reclaim.md §1.10)."""
    wanted = request("west-b")
    with pytest.raises(NoCapacity) as refused:
        provider.launch(wanted, "true")
    assert (refused.value.scope, refused.value.code) == (Scope.ZONE, "InsufficientInstanceCapacity")
    assert provider.outcome(wanted) == Unknown()
    assert provider.instances("west") == []


def test_a_price_above_the_limit_is_refused(provider: LocalProvider) -> None:
    """Before capacity is looked at, as EC2 does."""
    with pytest.raises(PriceTooHigh) as refused:
        provider.launch(request("west-b", max_price_usd_per_hour=Decimal("0.89")), "true")
    assert refused.value.code == "SpotMaxPriceTooLow"


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (request("east-z"), "zone"),
        (replace(request(), offer=replace(request().offer, region="west")), "zone"),
        (replace(request(), offer=replace(request().offer, instance_type="p9.big")), "instance_type"),
        (request(token="../../etc/passwd"), "token"),
    ],
)
def test_a_wrong_request_names_its_field(provider: LocalProvider, wrong: object, field: str) -> None:
    """It will never succeed, so the loop must not repeat it."""
    with pytest.raises(InvalidRequest) as refused:
        provider.launch(wrong, "true")  # type: ignore[arg-type] # pytest's parameters have no types
    assert refused.value.field == field


def test_an_outcome_is_not_another_requests(provider: LocalProvider) -> None:
    """A token alone names no request: one for another zone learns that it will never be launched, not that it has been."""
    made = request("east-a")
    directory = write(provider, record(token=made.token))
    write_atomic(directory.path / "request.json", json.dumps(request_document(made)))
    assert isinstance(provider.outcome(made), Launched)
    elsewhere = provider.outcome(replace(made, offer=request("west-a").offer))
    assert isinstance(elsewhere, Refused)
    assert isinstance(elsewhere.error, InvalidRequest)
    assert elsewhere.error.code == "IdempotentParameterMismatch"


def test_calls_take_turns_whoever_makes_them(provider: LocalProvider) -> None:
    """Two objects (an old daemon and its successor) that launch the same at once must not both begin: the lock is the cloud's, not the object's."""
    done = threading.Event()

    def call() -> None:
        provider.instances("east")
        done.set()

    caller = threading.Thread(target=call)
    with (provider.config.root / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        caller.start()
        assert not done.wait(0.1)
    assert done.wait(10)
    caller.join()


def test_only_our_deployments_instances_of_the_region_are_listed(provider: LocalProvider) -> None:
    """Foreign instances are neither seen nor touched."""
    ours = record(token="a" * 16, provider_id="local-a")
    write(provider, ours)
    write(provider, record(token="b" * 16, provider_id="local-b", region="west", zone="west-a"))
    foreign = write(provider, record(token="c" * 16, provider_id="local-c", deployment="theirs"))
    assert [(o.provider_id, o.token) for o in provider.instances("east")] == [("local-a", ours.token)]
    provider.terminate("east", "local-c")
    provider.terminate("east", "local-nobody")
    assert list(foreign.orders.iterdir()) == []


@pytest.mark.parametrize("name", ["state.json", "machine.json"])
@pytest.mark.parametrize("content", ["", '{"pid": 1', "[]", '{"pid": 1}'])
def test_a_damaged_record_is_an_error_that_names_the_file(provider: LocalProvider, name: str, content: str) -> None:
    """Never a shorter list: the row that is skipped would be an instance that nobody ends."""
    directory = write(provider, record())
    (directory.path / name).write_text(content)
    with pytest.raises(ProviderUnavailable, match=name):
        provider.instances("east")
    with pytest.raises(ProviderUnavailable, match=name):
        provider.terminate("east", record().provider_id)


def test_a_directory_without_a_record_is_an_error(provider: LocalProvider) -> None:
    """Directories appear whole; one without its record was damaged."""
    (provider.config.root / "instances" / "empty-directory").mkdir()
    with pytest.raises(ProviderUnavailable, match=r"empty-directory/state\.json"):
        provider.instances("east")


def test_an_ended_instance_is_listed_for_an_hour(provider: LocalProvider, clock: Clock) -> None:
    """As on EC2; then its record goes, too (facts/reclaim.md §1.9)."""
    ended = record(state=ObservedState.GONE, ended_at=clock(), ended_by=EndedBy.RECLAIM, end_code="Server.X")
    directory = write(provider, ended)
    clock.now += 3599
    assert [o.end_code for o in provider.instances("east")] == ["Server.X"]
    clock.now += 2
    provider.instances("east")
    assert not directory.path.exists()
    assert provider.instances("east") == []


def test_a_notice_comes_again_until_it_is_acknowledged(provider: LocalProvider) -> None:
    """The provider's channel tells of marks with their deadline, and of hints without; each once it is taken note of no more."""
    running = record(state=ObservedState.RUNNING, mark=Mark(marked_at=1000.0, deadline=1006.0), rebalance_at=900.0)
    write(provider, running)
    stop = threading.Event()
    stop.set()
    assert len(provider.notices(stop)) == 2
    reclaim, hint = provider.notices(stop)
    assert (reclaim.notice.kind, reclaim.notice.source) == (NoticeKind.RECLAIM, NoticeSource.PROVIDER)
    assert reclaim.notice.deadline == datetime.fromtimestamp(1006, UTC)
    assert (hint.notice.kind, hint.notice.deadline) == (NoticeKind.REBALANCE, None)
    reclaim.acknowledge()
    assert [n.notice.kind for n in provider.notices(stop)] == [NoticeKind.REBALANCE]
    hint.acknowledge()
    assert provider.notices(stop) == []


def test_a_mark_that_only_the_instance_sees_is_no_notice_here(provider: LocalProvider) -> None:
    """Channels fail separately (facts/reclaim.md §0.1)."""
    write(provider, record(state=ObservedState.RUNNING, mark=Mark(1000.0, 1006.0, provider=False)))
    stop = threading.Event()
    stop.set()
    assert provider.notices(stop) == []


def test_building_a_provider_imports_nothing_heavy() -> None:
    """`import spotd_local` alone costs next to nothing: the daemon imports it to see whether it is configured."""
    import subprocess  # noqa: PLC0415 - only this test looks at another interpreter
    import sys  # noqa: PLC0415

    code = "import sys, spotd_local; print('pydantic' in sys.modules, 'spotd_local.provider' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
