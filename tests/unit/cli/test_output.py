"""What verbs print."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from spotd.cli.output import age, length, offer, plain, print_table, size, usd, when

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0s"),
        (0.25, "0.2s"),
        (3.14, "3.1s"),
        (42.9, "42s"),
        (60, "1m"),
        (125, "2m 5s"),
        (3600, "1h"),
        (7_500, "2h 5m"),
        (90_061, "1d 1h"),
        (None, "-"),
    ],
)
def test_lengths_have_two_units(seconds: float | None, expected: str) -> None:
    """A length of time is shown in its two largest units."""
    assert length(seconds) == expected


@pytest.mark.parametrize(("offset", "expected"), [(0, "now"), (180, "3m ago"), (-7200, "in 2h"), (0.4, "now"), (86_400 * 3, "3d ago")])
def test_ages_look_both_ways(offset: float, expected: str) -> None:
    """A time is so long ago, or lies so far ahead."""
    assert age((NOW - timedelta(seconds=offset)).isoformat(), NOW) == expected


def test_times_are_local_and_dated_when_they_must_be() -> None:
    """The clock of here, its date only on another day, always its age."""
    local = NOW.astimezone()

    assert when(NOW.isoformat(), NOW + timedelta(minutes=3)) == f"{local:%H:%M:%S} (3m ago)"
    assert when(NOW.isoformat(), NOW + timedelta(days=3)) == f"{local:%Y-%m-%d %H:%M:%S} (3d ago)"
    assert (when(None), when("nonsense"), age(None)) == ("-", "-", "-")


@pytest.mark.parametrize(("value", "expected"), [("1.2", "$1.2000"), ("0.00005", "$0.0001"), (None, "-"), ("-3", "$-3.0000"), ("x", "x")])
def test_money_has_four_places(value: str | None, expected: str) -> None:
    """Amounts are rounded only when they are shown."""
    assert usd(value) == expected


@pytest.mark.parametrize(("value", "expected"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 KB"), (2.5e9, "2.5 GB"), (3e15, "3000.0 TB"), (None, "-")])
def test_sizes_take_the_unit_that_fits(value: float | None, expected: str) -> None:
    """Bytes are shown in powers of ten."""
    assert size(value) == expected


def test_text_from_elsewhere_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Escapes, bells and reversed writing are shown as a sign; a table's cells stay on their line."""
    assert plain("a\x1b[31mb\u202ec\x07") == "a\ufffd[31mb\ufffdc\ufffd"
    print_table(("A", "B"), [("x\x1b[2J\ny", 3), ("z", 12)], right=("B",))

    assert capsys.readouterr().out.splitlines() == ["A         B", "x\ufffd[2J y   3", "z        12"]


def test_a_zone_that_holds_its_region_is_enough() -> None:
    """Offers are one line, with the region where the zone does not name it."""
    parts = {"provider": "aws", "region": "us-west-2", "zone": "us-west-2a", "instance_type": "p5.48xlarge", "market": "spot"}

    assert offer(parts) == "aws us-west-2a p5.48xlarge spot"
    assert offer({**parts, "zone": "b"}) == "aws us-west-2/b p5.48xlarge spot"
    assert offer(None) == "-"
