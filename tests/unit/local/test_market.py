"""A recorded market is read as it was recorded, and the shipped one is the recording it says it is."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotd_local.market import DATA, MarketError, encode, load, parse
from tests.unit.local.clouds import KIND, market_document

if TYPE_CHECKING:
    from pathlib import Path


@given(st.lists(st.integers(0, 1), min_size=1, max_size=60))
def test_run_length_encoding_loses_nothing(samples: list[int]) -> None:
    """A series reads the same sample by sample whether it was written as a list or as runs."""
    documents = [market_document(west_a=form) for form in (samples, encode(samples))]
    for document in documents:
        document["samples"] = len(samples)
        for zone in document["zones"].values():
            zone["price"] = {KIND: "1"}
    markets = [parse(document, "here") for document in documents]
    for market in markets:
        assert [market.up("west-a", i * 60) for i in range(len(samples))] == [bool(v) for v in samples]


def test_a_sample_holds_until_the_next_and_the_end_is_the_begin() -> None:
    """Sample i holds for the seconds from i to i + 1 gaps; behind the last comes the first again."""
    market = parse(market_document(), "here")
    seen = {t: (market.up("west-a", t), market.spot_price("west-a", KIND, t)) for t in (0, 299.9, 300, 599.9, 600)}
    cheap, dear = (True, Decimal("0.90")), (False, Decimal("1.10"))
    assert seen == {0: cheap, 299.9: cheap, 300: dear, 599.9: dear, 600: cheap}


def test_one_value_stands_for_all_samples_and_samples_may_be_left_out() -> None:
    """A zone that is always down needs one digit; how long the market is can be told from any zone that has runs."""
    document = market_document()
    del document["samples"]
    market = parse(document, "here")
    assert market.samples == 10
    assert not any(market.up("west-b", t) for t in range(0, 600, 60))


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (["gap_seconds"], 0, "gap_seconds"),
        (["types"], [], "types"),
        (["format"], 2, "format"),
        (["zones"], [], "zones"),
        (["zones", "west-a", "available"], [[1, 4]], "zones.west-a.available: 4 samples where the market has 10"),
        (["zones", "west-a", "available"], [[2, 10]], "zones.west-a.available: 0 or 1"),
        (["zones", "west-a", "available"], None, "zones.west-a.available"),
        (["zones", "west-a", "price", KIND], "cheap", f"zones.west-a.price.{KIND}: 'cheap' is not a price"),
        (["zones", "west-a", "price"], {}, "zones.west-a: lacks prices"),
        (["zones", "west-a", "region"], None, "zones.west-a: lacks its region"),
        (["on_demand", "west", KIND], "-1", f"on_demand.west.{KIND}"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(path: list[str], value: object, place: str) -> None:
    """Whoever writes a market file learns which file and which key in it is wrong."""
    document = market_document()
    target = document
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(MarketError, match=r"^here: ") as refused:
        parse(document, "here")
    assert place in str(refused.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """A missing file names the markets there are; a broken one is named itself."""
    with pytest.raises(MarketError, match=r"no-such: no market of this name and no such file \(shipped: v100-2023-02\)"):
        load("no-such")
    broken = tmp_path / "broken.json.gz"
    broken.write_bytes(gzip.compress(b"{}")[:-4])
    with pytest.raises(MarketError, match=r"broken\.json\.gz: not a readable"):
        load(str(broken))


def test_the_shipped_market_is_the_nine_zone_recording() -> None:
    """9 zones, 13,290 samples of 195 s = 30 days, the known shares of time with capacity, on-demand at 3.06."""
    market = load("v100-2023-02")
    shares = {zone.name: round(sum(n for up, n in zone.available.runs(market.samples) if up) / market.samples, 3) for zone in market.zones.values()}
    assert (market.gap_seconds, market.samples, market.types) == (195, 13_290, (KIND,))
    assert market.regions == ("us-east-1", "us-east-2", "us-west-2")
    assert shares == {
        "us-east-1a": 0.155,
        "us-east-1c": 0.420,
        "us-east-1d": 0.410,
        "us-east-1f": 0.516,
        "us-east-2a": 0.755,
        "us-east-2b": 0.678,
        "us-west-2a": 0.849,
        "us-west-2b": 0.879,
        "us-west-2c": 0.853,
    }
    assert {region: prices[KIND] for region, prices in market.on_demand.items()} == dict.fromkeys(market.regions, Decimal("3.06"))
    assert market.spot_price("us-west-2a", KIND, 0) == Decimal("0.918")
    assert market.spot_price("us-east-1a", KIND, 0) == Decimal("1.6703")


def test_the_shipped_market_carries_its_licence() -> None:
    """Data under Apache-2.0 goes nowhere without the licence's text, the notice, and where it is from."""
    assert "Apache License" in (DATA / "LICENSE").read_text()
    assert "Sky Computing Lab" in (DATA / "NOTICE").read_text()
    assert "skypilot-org/spot-traces" in (DATA / "SOURCE.md").read_text()


def test_the_shipped_file_is_small_and_run_length_encoded() -> None:
    """30 days of nine zones are some kilobytes, so that they can ship with every installation."""
    path = DATA / "v100-2023-02.json.gz"
    document = json.loads(gzip.decompress(path.read_bytes()))
    assert path.stat().st_size < 20_000
    assert all(isinstance(zone["available"][0], list) for zone in document["zones"].values())
