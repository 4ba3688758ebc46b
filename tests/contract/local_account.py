"""A local cloud to hold to the contract: two regions, one empty zone, a market that stands still for as long as the tests take."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from spotd.core.instance import LaunchRequest, ObservedState
from spotd.core.offer import Market, OfferKey
from spotd.daemon.clock import SystemClock
from spotd.ports import Provider
from spotd.testing import Goods, Traits, eventually
from spotd_local import build, control, processes
from spotd_local.record import MARKER, Record, directories

KIND = "p3.2xlarge"
ZONES = {"north-a": 1, "north-b": 1, "north-c": 0, "south-a": 1}


def _market() -> dict[str, object]:
    zones = {z: {"region": z.partition("-")[0], "available": up, "price": {KIND: "0.90"}} for z, up in ZONES.items()}
    on_demand = {"north": {KIND: "3.06"}, "south": {KIND: "3.10"}}
    return {"format": 1, "name": "contract", "gap_seconds": 3600, "samples": 24, "types": [KIND], "on_demand": on_demand, "zones": zones}


def _offer(zone: str, market: Market = Market.SPOT) -> OfferKey:
    return OfferKey("local", zone.partition("-")[0], zone, KIND, market)


class LocalAccount:
    """Implements `ProviderUnderTest`. Instances are processes, so time is real: everything is set to be short."""

    deployment = "ours"

    def __init__(self, folder: Path) -> None:
        self.clock = SystemClock()
        self.goods = Goods(_offer("north-a"), _offer("north-a", Market.ON_DEMAND), _offer("north-b"), _offer("south-a"), limit=Decimal(2))
        self.traits = Traits(absent_id="local-0123456789ab", step_s=0.1, patience_s=30.0, many=2, regions_fail_apart=False)
        self.root = folder / "cloud"
        self._market = folder / "market-file.json"
        self._market.write_text(json.dumps(_market()))

    def provider(self) -> Provider:  # noqa: D102 - here and below: as in the protocol
        return self._provider(self.deployment)

    def _provider(self, deployment: str) -> Provider:
        table = {"root": str(self.root), "market": str(self._market), "speed": 1, "boot_delay": "100ms", "notice": "2s"}
        return build(table, deployment)

    def pass_time(self, seconds: float) -> None:  # noqa: D102
        time.sleep(seconds)

    def foreign(self, offer: OfferKey) -> str:  # noqa: D102
        request = LaunchRequest("theirs-000000000", "theirs", "job", "job", 1, 0, offer, None, self.clock.now() + timedelta(hours=1))
        return self._provider("theirs").launch(request, "exit 0").provider_id

    def reclaim(self, provider_id: str) -> None:  # noqa: D102
        control.reclaim(self.root, self._record(provider_id).token)

    def exhaust(self) -> OfferKey:
        """The recording has a zone without capacity."""
        return _offer("north-c")

    @contextlib.contextmanager
    def break_region(self, region: str) -> Iterator[None]:
        """Damage what is read of all regions: the market's position, and one record. Machines read the former as they boot."""
        del region
        eventually(self, lambda: all(r.state is not ObservedState.PENDING for r in control.records(self.root)))
        position, damaged = self.root / "market.json", self.root / "instances" / "damaged"
        content = position.read_bytes() if position.exists() else None
        position.write_text("{")
        damaged.mkdir()
        try:
            yield
        finally:
            damaged.rmdir()
            if content is None:
                position.unlink()
            else:
                position.write_bytes(content)

    def expiry_of(self, provider_id: str) -> datetime:  # noqa: D102
        return datetime.fromtimestamp(self._record(provider_id).expires_at, UTC)

    def _record(self, provider_id: str) -> Record:
        [record] = [record for record in control.records(self.root) if record.provider_id == provider_id]
        return record

    def clean_up(self) -> None:
        """End everything; AssertionError when a process is left."""
        control.power_cut(self.root)
        left = {pid for directory in directories(self.root) for pid in processes.marked(MARKER, str(directory.path))}
        assert not left
