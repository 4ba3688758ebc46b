"""What the tests of the contract do again and again."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from spotd.core.instance import LaunchRequest, ObservedInstance, ObservedState
from spotd.core.offer import Market, OfferKey
from spotd.ports import DeliveredNotice, Launched, LaunchOutcome, Provider, Refused, Unknown
from spotd.testing.harness import ProviderUnderTest, eventually

#: A limit that no spot market is below, and that clouds do not refuse for being too small (facts/reclaim.md §1.10).
NEXT_TO_NOTHING = Decimal("0.0011")
#: How long (real seconds) a call of `notices` may look before it is told to stop, where it waits in real time; and where none is expected.
_LISTENS_S = 1.5
GLANCE_S = 0.3


def request(cloud: ProviderUnderTest, offer: OfferKey | None = None, **changes: object) -> LaunchRequest:
    """A request with a token of its own, for this offer (default: the first of the goods)."""
    offer = offer or cloud.goods.spot
    limit = cloud.goods.limit if offer.market is Market.SPOT else None
    made = LaunchRequest(
        token=str(uuid.uuid4()),
        deployment=cloud.deployment,
        job_id="job-1",
        job_name="contract",
        attempt=1,
        rank=0,
        offer=offer,
        max_price_usd_per_hour=limit,
        expires_at=cloud.clock.now().replace(microsecond=0) + timedelta(hours=6),
        labels={"project": "contract"},
    )
    return replace(made, **changes)  # type: ignore[arg-type] # named by keyword in the tests


def launch(cloud: ProviderUnderTest, provider: Provider, wanted: LaunchRequest) -> str:
    """Launch it; the instance's id."""
    launched = provider.launch(wanted, cloud.traits.user_data)
    assert isinstance(launched, Launched)
    assert launched.provider_id
    assert launched.launched_at is None or aware(launched.launched_at)
    return launched.provider_id


def listed(provider: Provider, region: str, provider_id: str) -> ObservedInstance | None:
    """The row of this instance in a listing of the region."""
    rows = [row for row in provider.instances(region) if row.provider_id == provider_id]
    assert len(rows) <= 1, f"{provider_id} is listed {len(rows)} times"
    return rows[0] if rows else None


def reaches(cloud: ProviderUnderTest, provider: Provider, region: str, provider_id: str, *states: ObservedState) -> ObservedInstance:
    """The row of this instance once it is in one of these states."""

    def look() -> ObservedInstance | None:
        row = listed(provider, region, provider_id)
        return row if row is not None and row.state in states else None

    return eventually(cloud, look)


def runs(cloud: ProviderUnderTest, provider: Provider, wanted: LaunchRequest) -> str:
    """Launch it and wait until it runs; the instance's id."""
    provider_id = launch(cloud, provider, wanted)
    reaches(cloud, provider, wanted.offer.region, provider_id, ObservedState.RUNNING)
    return provider_id


def settle(cloud: ProviderUnderTest, provider: Provider) -> None:
    """Let so much time pass that a listing shows whatever was made before (`listing_lag`)."""
    lag = provider.capabilities.listing_lag.total_seconds()
    if lag > 0:
        cloud.pass_time(lag + cloud.traits.step_s)


def with_token(provider: Provider, region: str, token: str) -> list[ObservedInstance]:
    """Every row of the region that carries this token."""
    return [row for row in provider.instances(region) if row.token == token]


def nothing_launched(cloud: ProviderUnderTest, provider: Provider, wanted: LaunchRequest) -> None:
    """Assert that this request has made nothing: neither now nor when listings have caught up."""
    settle(cloud, provider)
    assert isinstance(provider.outcome(wanted), Unknown | Refused)
    for region in provider.regions():
        assert with_token(provider, region, wanted.token) == []


def found(cloud: ProviderUnderTest, provider: Provider, wanted: LaunchRequest) -> Launched:
    """The outcome of a request that has made an instance, once it can be seen."""

    def look() -> LaunchOutcome | None:
        answer = provider.outcome(wanted)
        assert not isinstance(answer, Refused), f"{answer} of a request that has made an instance"
        return answer if isinstance(answer, Launched) else None

    answer = eventually(cloud, look)
    assert isinstance(answer, Launched)
    return answer


def hear(provider: Provider, seconds: float = _LISTENS_S) -> Sequence[DeliveredNotice]:
    """One call of `notices`, told to stop after a while."""
    stop = threading.Event()
    timer = threading.Timer(seconds, stop.set)
    timer.start()
    try:
        return provider.notices(stop)
    finally:
        timer.cancel()


def hears(cloud: ProviderUnderTest, provider: Provider, provider_id: str) -> DeliveredNotice:
    """The notice about this instance, once it is delivered."""
    return eventually(cloud, lambda: next((told for told in hear(provider) if told.provider_id == provider_id), None))


@contextlib.contextmanager
def at_once(cloud: ProviderUnderTest) -> Iterator[None]:
    """Assert that what is done within takes no time to speak of: neither real nor the cloud's."""
    began, cloud_began = time.monotonic(), cloud.clock.monotonic()
    yield
    took = max(time.monotonic() - began, cloud.clock.monotonic() - cloud_began)
    assert took <= cloud.traits.at_once_s, f"It took {took:.1f} s."


@contextlib.contextmanager
def overheard() -> Iterator[list[str]]:
    """Every line that is logged within, at any level."""
    lines: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.name}: {record.getMessage()} {vars(record)}")

    root, ear = logging.getLogger(), Ear(logging.NOTSET)
    level = root.level
    root.addHandler(ear)
    root.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        root.setLevel(level)
        root.removeHandler(ear)


def aware(moment: datetime | None) -> bool:
    """Whether it is an instant, and not a time of day somewhere."""
    return moment is not None and moment.utcoffset() is not None
