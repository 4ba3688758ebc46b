"""Watching providers: what is not known is never taken for nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from spotd.core.errors import NoCapacity, ProviderUnavailable
from spotd.core.events import Event, LaunchSucceeded, Listed, NoticeSeen
from spotd.core.instance import ObservedInstance, ObservedState
from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd.core.offer import Market, Offer, OfferKey
from spotd.core.world import World
from spotd.daemon.clock import SystemClock
from spotd.daemon.observer import Observer
from spotd.ports import Capabilities, DeliveredNotice, MetadataKind, OfferQuery, OfferSheet
from tests.unit.core.stage import START, Stage, default_prices, offer_key, policy

_CAPABILITIES = Capabilities(
    notice=timedelta(minutes=2),
    boot_timeout=timedelta(minutes=10),
    heartbeat=timedelta(seconds=10),
    metadata_poll=timedelta(seconds=2),
    metadata=MetadataKind.IMDS,
    listing_lag=timedelta(0),
    billing_rule="aws",
    notice_channel=True,
)


class Cloud:
    """A provider with two regions, one of which can be made to fail."""

    name = "cloud"
    capabilities = _CAPABILITIES

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.sheet = OfferSheet(())
        self.asked: list[OfferQuery] = []
        self.delivered: list[DeliveredNotice] = []

    def regions(self) -> Sequence[str]:
        """Both."""
        return ("east", "west")

    def instances(self, region: str) -> Sequence[ObservedInstance]:
        """Nothing, or a failure."""
        if region in self.broken:
            raise ProviderUnavailable("down")
        return ()

    def offers(self, query: OfferQuery) -> OfferSheet:
        """What it was told to answer."""
        self.asked.append(query)
        return self.sheet

    def notices(self, stop: threading.Event) -> Sequence[DeliveredNotice]:
        """What it was told to deliver, once; then it waits to be stopped."""
        found, self.delivered = self.delivered, []
        if not found:
            stop.wait(5)
        return found


class Recorder:
    """Stands where the loop stands, and keeps what it is told."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told: list[Event] = []
        self.failing = False
        self.recorded = threading.Event()

    def tell(self, events: Sequence[Event]) -> None:
        """Keep them."""
        self.told += events

    def record(self, events: Sequence[Event]) -> None:
        """Keep them, or fail."""
        if self.failing:
            self.recorded.set()
            raise OSError("disk full")
        self.told += events
        self.recorded.set()

    def wake(self) -> None:
        """Nothing steps on this stage."""


def _observer(stage: Stage, cloud: Cloud, recorder: Recorder, record_prices: Callable[[Sequence[Offer]], None] | None = None) -> Observer:
    return Observer(
        cloud,  # type: ignore[arg-type]
        stage.engine,
        recorder,  # type: ignore[arg-type]
        SystemClock(),
        policies=lambda: {"p": policy()},
        record_prices=record_prices or (lambda _: None),
    )


def _offer(key: OfferKey, price: str, seen_at: datetime) -> Offer:
    return Offer(key, Decimal(price), seen_at)


def test_a_region_that_cannot_be_listed_is_not_listed_as_empty() -> None:
    """A failed listing says nothing; the other region is listed all the same (rule 5)."""
    stage, cloud = Stage(), Cloud()
    cloud.broken = {"east"}
    recorder = Recorder(stage.engine.world)
    observer = _observer(stage, cloud, recorder)

    observer._list()

    assert [(e.region, e.instances) for e in recorder.told if isinstance(e, Listed)] == [("west", ())]
    assert "east" in observer.health.last_error


def test_a_sweep_asks_for_what_policies_name_and_records_what_it_hears() -> None:
    """Types and regions come from the policies; new prices are stored, with their age."""
    stage, cloud = Stage(), Cloud()
    now = SystemClock().now()
    cloud.sheet = OfferSheet((_offer(offer_key("east"), "0.90", now),))
    stored: list[Offer] = []

    _observer(stage, cloud, Recorder(stage.engine.world), stored.extend)._sweep()

    assert cloud.asked == [OfferQuery(frozenset({"gpu"}), frozenset({"east", "west"}))]
    assert [o.price_usd_per_hour for o in stored] == [Decimal("0.90")]
    assert stage.engine.offers[offer_key("east")].price_usd_per_hour == Decimal("0.90")


def test_a_region_whose_prices_failed_keeps_its_old_ones_and_a_swept_one_drops_what_is_not_sold() -> None:
    """A failed refresh keeps old data with its age; an offer that a complete answer lacks is gone (known-faults A.90)."""
    stage, cloud = Stage(), Cloud()
    stage.now = SystemClock().now()
    stage.price(default_prices())
    cloud.sheet = OfferSheet((_offer(offer_key("east"), "0.90", stage.now),), {"west": NoCapacity("x")})

    _observer(stage, cloud, Recorder(stage.engine.world))._sweep()

    assert set(stage.engine.offers) == {offer_key("east"), offer_key("west"), offer_key("west", Market.ON_DEMAND)}
    assert stage.engine.offers[offer_key("west")].seen_at == stage.now


def test_a_notice_about_a_launch_that_is_still_open_waits_for_its_instance() -> None:
    """Reclaimed within the seconds between RunInstances and its recorded answer: acknowledged as foreign it would be lost."""
    stage, cloud = Stage(), Cloud()
    recorder = Recorder(stage.engine.world)
    acknowledged: list[str] = []
    notice = Notice(NoticeKind.RECLAIM, NoticeSource.PROVIDER, START, START)
    delivered = DeliveredNotice("i-new", notice, lambda: acknowledged.append("i-new"))
    stage.submit()
    recorder.world = stage.engine.world
    observer = _observer(stage, cloud, recorder)
    assert not observer._take(delivered)
    token = stage.effects[0].request.token  # type: ignore[union-attr]
    stage.step(lambda at: LaunchSucceeded(at, token, "i-new", at))
    recorder.world = stage.engine.world
    assert observer._take(delivered)
    assert acknowledged == ["i-new"]
    assert [e.instance_id for e in recorder.told if isinstance(e, NoticeSeen)] == [token]


def test_a_notice_is_acknowledged_only_after_it_was_recorded() -> None:
    """A notice that could not be stored comes again (facts/reclaim.md §1.7); a foreign one is acknowledged and dropped."""
    stage, cloud = Stage(), Cloud()
    recorder = Recorder(stage.engine.world)
    acknowledged: list[str] = []
    notice = Notice(NoticeKind.RECLAIM, NoticeSource.PROVIDER, START, START)
    observer = _observer(stage, cloud, recorder)

    def handle(provider_id: str) -> None:
        observer._take(DeliveredNotice(provider_id, notice, lambda: acknowledged.append(provider_id)))

    stage.submit()
    token = stage.effects[0].request.token  # type: ignore[union-attr]
    row = ObservedInstance("i-ours", token, "east", "easta", ObservedState.RUNNING, None)
    stage.step(lambda at: Listed(at, at, "cloud", "east", (row,)))
    recorder.world = stage.engine.world
    recorder.failing = True
    handle("i-ours")
    before = list(acknowledged)
    recorder.failing = False
    handle("i-ours")
    handle("i-foreign")

    assert before == []
    assert acknowledged == ["i-ours", "i-foreign"]
    assert [e.instance_id for e in recorder.told if isinstance(e, NoticeSeen)] == [token]


def test_what_a_sweep_left_out_is_kept_for_people() -> None:
    """Why a type is not offered is shown by `spotd status`, until a later sweep has nothing to say."""
    stage, cloud = Stage(), Cloud()
    observer = _observer(stage, cloud, Recorder(stage.engine.world))
    cloud.sheet = OfferSheet((), remarks=("the quota is 0",))
    observer._sweep()
    first = list(observer.health.remarks)
    cloud.sheet = OfferSheet(())
    observer._sweep()
    assert (first, list(observer.health.remarks)) == (["the quota is 0"], [])
