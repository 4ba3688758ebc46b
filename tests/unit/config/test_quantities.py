"""Durations, prices and sizes as people write them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from spotd.config.quantities import NotQuantity, duration, price, show_duration, show_size, size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", timedelta(seconds=30)),
        ("15m", timedelta(minutes=15)),
        ("2h", timedelta(hours=2)),
        ("7d", timedelta(days=7)),
        ("1h30m", timedelta(minutes=90)),
        ("1d2h3m4s", timedelta(days=1, hours=2, minutes=3, seconds=4)),
        ("200ms", timedelta(milliseconds=200)),
        ("1.5h", timedelta(minutes=90)),
        (" 5m ", timedelta(minutes=5)),
    ],
)
def test_durations_as_written(text: str, expected: timedelta) -> None:
    """A duration is numbers with units, the larger units first."""
    assert expected == duration(text)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("15 min", "did you mean 15m?"),
        ("2 hours", "did you mean 2h?"),
        ("3 Days", "did you mean 3d?"),
        ("40", "40s or 40m"),
        (41, "41s or 41m"),
        (Decimal("1.5"), "1.5s or 1.5m"),
        ("", "30s, 15m, 2h"),
        ("h", "30s, 15m, 2h"),
        ("-5m", "30s, 15m, 2h"),
        ("30m1h", "larger units first"),
        ("1h1h", "larger units first"),
        ("1w", "30s, 15m, 2h"),
        ("\u0661m", "30s, 15m, 2h"),
        (True, "30s, 15m, 2h"),
        (None, "30s, 15m, 2h"),
        ([1], "30s, 15m, 2h"),
        ("9999999d", "at most 3650d"),
        ("999999999d", "at most 3650d"),
    ],
)
def test_what_is_no_duration_hears_what_is(value: object, says: str) -> None:
    """A wrong unit is answered with what is accepted, and with the right spelling where it can be guessed."""
    with pytest.raises(NotQuantity) as caught:
        duration(value)

    assert says in caught.value.hint


@pytest.mark.parametrize("text", ["30s", "15m", "7d", "1h30m", "1d1s", "200ms", "0s"])
def test_durations_are_shown_as_they_are_written(text: str) -> None:
    """What is shown can be written in a file again."""
    assert text == show_duration(duration(text))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (40, Decimal(40)),
        ("40.00", Decimal("40.00")),
        (Decimal("3.0600"), Decimal("3.0600")),
        (".5", Decimal("0.5")),
        ("0.000001", Decimal("0.000001")),
    ],
)
def test_prices_are_exact(value: object, expected: Decimal) -> None:
    """A price is a decimal number, digit by digit what was written."""
    assert expected == price(value)
    assert str(expected) == str(price(value))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("$40", "did you mean 40?"),
        ("40 USD", "did you mean 40?"),
        ("40/h", "did you mean 40?"),
        ("USD 3.5 / hour", "did you mean 3.5?"),
        ("forty", "such as 40.00"),
        ("nan", "such as 40.00"),
        ("1e3", "such as 40.00"),
        ("1" * 30, "such as 40.00"),
        (0, "more than 0"),
        (-1, "more than 0"),
        (100_001, "at most 100000"),
        ("1.1234567", "at most six"),
        (True, "such as 40.00"),
        (None, "such as 40.00"),
        ({}, "such as 40.00"),
    ],
)
def test_what_is_no_price_hears_what_is(value: object, says: str) -> None:
    """A price with a sign, without a number or out of range is answered with what is accepted."""
    with pytest.raises(NotQuantity) as caught:
        price(value)

    assert says in caught.value.hint


@pytest.mark.parametrize(
    ("text", "expected"), [("500MB", 500_000_000), ("2GB", 2 * 10**9), ("512MiB", 512 * 2**20), ("1.5 gb", 1_500_000_000), ("7B", 7)]
)
def test_sizes_as_written(text: str, expected: int) -> None:
    """MB counts in powers of ten, MiB in powers of two."""
    assert expected == size(text)


@pytest.mark.parametrize("value", ["500", 501, "5 XB", "", None, "-1MB", True])
def test_what_is_no_size_hears_what_is(value: object) -> None:
    """A size needs its unit."""
    with pytest.raises(NotQuantity, match=r"unit|size"):
        size(value)


@pytest.mark.parametrize(("value", "expected"), [(500_000_000, "500MB"), (512 * 2**20, "512MiB"), (7, "7B"), (0, "0B"), (1500, "1500B")])
def test_sizes_are_shown_in_the_unit_that_divides_them(value: int, expected: str) -> None:
    """A size is shown exactly, in the largest unit of which it is a multiple."""
    assert expected == show_size(value)
