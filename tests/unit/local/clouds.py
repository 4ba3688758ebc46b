"""Small markets, requests and clouds for the tests of the local provider."""

from __future__ import annotations

import json
import time
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from spotd.core.instance import LaunchRequest
from spotd.core.offer import Market, OfferKey
from spotd_local import build
from spotd_local.provider import LocalProvider
from spotd_local.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

KIND = "p3.2xlarge"


def market_document(**zones: Any) -> dict[str, Any]:
    """Ten samples of 60 s in two regions: `west_a` is up and then down, `west_b` always down, `east_a` always up."""
    shapes = {"west_a": [[1, 5], [0, 5]], "west_b": 0, "east_a": 1, **zones}
    return {
        "format": 1,
        "name": "two-regions",
        "gap_seconds": 60,
        "samples": 10,
        "types": [KIND],
        "on_demand": {"west": {KIND: "3.06"}, "east": {KIND: "3.10"}},
        "zones": {
            name.replace("_", "-"): {
                "region": name.partition("_")[0],
                "available": available,
                "price": {KIND: [["0.90", 5], ["1.10", 5]]},
            }
            for name, available in shapes.items()
        },
    }


def cloud(folder: Path, *, document: dict[str, Any] | None = None, deployment: str = "dep", **table: Any) -> LocalProvider:
    """A local cloud below this folder; its market goes at real speed unless told otherwise."""
    market = folder / "market-file.json"
    market.write_text(json.dumps(document or market_document()))
    defaults = {"root": str(folder / "cloud"), "market": str(market), "speed": 1, "boot_delay": "0s", "notice": "1s"}
    provider = build({**defaults, **table}, deployment)
    assert isinstance(provider, LocalProvider)
    return provider


def request(zone: str = "east-a", market: Market = Market.SPOT, **changes: Any) -> LaunchRequest:
    """A launch request with a token of its own."""
    fields: dict[str, Any] = {
        "token": str(uuid.uuid4()),
        "deployment": "dep",
        "job_id": "job-1",
        "job_name": "llama",
        "attempt": 1,
        "rank": 0,
        "offer": OfferKey("local", zone.partition("-")[0], zone, KIND, market),
        "max_price_usd_per_hour": Decimal(2),
        "expires_at": datetime.now(UTC) + timedelta(hours=1),
    }
    return LaunchRequest(**{**fields, **changes})


def record(**changes: Any) -> Record:
    """A spot instance in east-a, launched at 1000."""
    fields: dict[str, Any] = {
        "provider_id": "local-0123456789ab",
        "token": "0123456789abcdef",
        "deployment": "dep",
        "region": "east",
        "zone": "east-a",
        "instance_type": KIND,
        "market": Market.SPOT,
        "max_price_usd_per_hour": "2",
        "launched_at": 1000.0,
        "expires_at": 1e12,
        "boot_delay_s": 0.0,
        "notice_s": 6.0,
    }
    return Record(**{**fields, **changes})


def until(what: Callable[[], T], seconds: float = 10.0) -> T:
    """What `what` answers as soon as that is true. For processes, which have no clock to step."""
    end = time.monotonic() + seconds
    while not (answer := what()):
        assert time.monotonic() < end, f"still {answer!r} after {seconds} s"
        time.sleep(0.02)
    return answer
