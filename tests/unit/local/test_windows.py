"""The search for demonstration windows finds what the demonstration relies on."""

from __future__ import annotations

from spotd_local.market import load, parse
from spotd_local.windows import Trace, Wanted, choose, follow, search
from tests.unit.local.clouds import KIND


def test_the_demonstrations_window_holds_under_both_readings_with_seconds_to_spare() -> None:
    """From 1,262,040 s on at k = 400 there are reclaims in us-west-2, us-east-2 and us-east-1, then spot holds for 20 s."""
    market = load("v100-2023-02")
    trace = Trace.of(market)
    start = 1_262_040 // 195
    for all_regions in (True, False):
        window = follow(trace, start, 400, Wanted(latest=3.0), all_regions=all_regions)
        assert window is not None
        assert [stint.zone for stint in window.stints] == ["us-west-2b", "us-east-2a", "us-east-1c", "us-east-2b"]
        notices = [round(stint.notice, 1) for stint in window.stints if stint.notice is not None]
        assert notices == [9.8, 28.3, 36.6, 74.1]


def test_other_regions_come_before_those_that_reclaimed() -> None:
    """Cheapest first among zones that are up; a reclaimed zone never, its region last."""
    document = {
        "gap_seconds": 1,
        "types": [KIND],
        "zones": {
            name: {"region": name[:-1], "available": [[1, 2]], "price": {KIND: price}}
            for name, price in {"us-west-2a": "1", "us-west-2b": "1", "us-east-2a": "1", "us-east-1a": "9"}.items()
        },
    }
    trace = Trace.of(parse(document, "here"))

    def chosen(*reclaimed: str, all_regions: bool = True) -> str | None:
        return choose(trace, 0, reclaimed, reclaimed, all_regions=all_regions)[0]

    assert chosen() == "us-west-2a"
    assert chosen("us-west-2a") == "us-east-2a"
    assert chosen("us-west-2a", "us-east-2a") == "us-east-1a"
    assert chosen("us-west-2a", "us-east-2a", all_regions=False) == "us-west-2b"


def test_a_zone_that_refused_is_not_asked_again() -> None:
    """The daemon leaves a zone without capacity alone for minutes, so a window must not count on its coming up."""
    document = {
        "gap_seconds": 1,
        "types": [KIND],
        "zones": {
            "us-west-2a": {"region": "us-west-2", "available": [[0, 1], [1, 99]], "price": {KIND: "1"}},
            "us-west-2b": {"region": "us-west-2", "available": [[1, 20], [0, 80]], "price": {KIND: "2"}},
            "us-east-2a": {"region": "us-east-2", "available": [[1, 40], [0, 60]], "price": {KIND: "3"}},
            "us-east-1a": {"region": "us-east-1", "available": [[1, 49], [0, 51]], "price": {KIND: "4"}},
            "us-east-1b": {"region": "us-east-1", "available": [[1, 100]], "price": {KIND: "9"}},
        },
    }
    trace = Trace.of(parse(document, "here"))
    assert choose(trace, 0, (), (), all_regions=True) == ("us-west-2b", {"us-west-2a"})
    window = follow(trace, 0, 1, Wanted(latest=0.0, longest_stint=25.0, shortest_stint=5.0))
    assert window is not None
    assert [stint.zone for stint in window.stints] == ["us-west-2b", "us-east-2a", "us-east-1a", "us-east-1b"]


def test_a_market_without_reclaims_has_no_windows() -> None:
    """Nothing is found where nothing happens."""
    document = {
        "gap_seconds": 1,
        "types": [KIND],
        "zones": {"us-west-2a": {"region": "us-west-2", "available": [[1, 500]], "price": {KIND: "1"}}},
    }
    assert list(search(parse(document, "here"), [1], Wanted())) == []
