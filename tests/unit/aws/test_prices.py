"""Spot prices out of rows as EC2 sends them (facts/cloud-api.md §0.4, §1.1)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from spotd_aws.prices import amount, newest, parse
from spotd_aws.zones import Zone, looks_usual, usable

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


def _row(**changes: object) -> dict[str, Any]:
    row = {
        "AvailabilityZone": "us-west-2a",
        "AvailabilityZoneId": "usw2-az1",
        "InstanceType": "g5.xlarge",
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": "0.452800",
        "Timestamp": NOW - timedelta(days=2),
    }
    return {name: value for name, value in (row | changes).items() if value is not None}


def test_the_newest_change_is_the_price_in_whatever_order_rows_come() -> None:
    """Neither the first nor the last row of a place counts, nor the cheapest: the one that changed last."""
    changes = [_row(SpotPrice=usd, Timestamp=NOW - timedelta(hours=ago)) for usd, ago in (("0.50", 30), ("0.60", 2), ("0.40", 90))]
    for rows in (changes, changes[::-1], [changes[1], changes[0], changes[2]]):
        found = newest(parse(rows))
        assert {place: price.usd_per_hour for place, price in found.items()} == {("g5.xlarge", "usw2-az1"): Decimal("0.6")}


def test_a_place_is_a_zone_id() -> None:
    """Two rows of one id are one place, whatever the zone is called; without an id the name has to do."""
    rows = [_row(), _row(AvailabilityZone="us-west-2c", SpotPrice="0.5", Timestamp=NOW), _row(AvailabilityZoneId=None)]
    assert set(newest(parse(rows))) == {("g5.xlarge", "usw2-az1"), ("g5.xlarge", "us-west-2a")}


def test_both_linux_products_are_one_price_and_others_none() -> None:
    """Accounts of the classic era list newer types as (Amazon VPC) only; Windows, SUSE and Red Hat cost something else."""
    assert len(newest(parse([_row(ProductDescription="Linux/UNIX (Amazon VPC)")]))) == 1
    merged = newest(parse([_row(), _row(ProductDescription="Linux/UNIX (Amazon VPC)", SpotPrice="0.3", Timestamp=NOW)]))
    assert [price.usd_per_hour for price in merged.values()] == [Decimal("0.3")]
    for product in ("Windows", "Windows (Amazon VPC)", "SUSE Linux", "Red Hat Enterprise Linux", None):
        assert newest(parse([_row(ProductDescription=product)])) == {}


def test_of_two_prices_of_one_instant_the_dearer_is_believed() -> None:
    """A tie is not left to the order of rows."""
    rows = [_row(SpotPrice="0.5"), _row(SpotPrice="0.4")]
    assert [p.usd_per_hour for p in newest(parse(rows)).values()] == [p.usd_per_hour for p in newest(parse(rows[::-1])).values()] == [Decimal("0.5")]


@pytest.mark.parametrize(
    "changes",
    [
        {"SpotPrice": None},
        {"SpotPrice": "0.000000"},
        {"SpotPrice": "-1"},
        {"SpotPrice": "NaN"},
        {"SpotPrice": "Infinity"},
        {"SpotPrice": "much"},
        {"InstanceType": None},
        {"Timestamp": None},
        {"Timestamp": "yesterday"},
        {"AvailabilityZone": None, "AvailabilityZoneId": None},
    ],
)
def test_a_row_that_is_no_price_is_none(changes: dict[str, object]) -> None:
    """It costs its own place the price, and nobody else."""
    assert set(newest(parse([_row(**changes), _row(InstanceType="g6.xlarge")]))) == {("g6.xlarge", "usw2-az1")}


@pytest.mark.parametrize(("text", "shown"), [("1.0060000000", "1.006"), ("55.0400000000", "55.04"), ("3.0000000000", "3"), ("120.000000", "120")])
def test_amounts_are_shown_without_trailing_noughts(text: str, shown: str) -> None:
    """The same number, as people write it."""
    assert str(amount(text)) == shown


def test_only_zones_that_machines_can_start_in_are_used() -> None:
    """Local and wavelength zones are left out, and zones that are not available; what an account cannot see was never there."""
    rows: list[dict[str, str]] = [
        {"ZoneName": "us-west-2a", "ZoneId": "usw2-az1", "ZoneType": "availability-zone", "State": "available"},
        {"ZoneName": "us-west-2b", "ZoneId": "usw2-az2", "ZoneType": "availability-zone", "State": "unavailable"},
        {"ZoneName": "us-west-2c", "ZoneId": "usw2-az3", "ZoneType": "availability-zone", "State": "constrained"},
        {"ZoneName": "us-west-2-lax-1a", "ZoneId": "usw2-lax1-az1", "ZoneType": "local-zone", "State": "available"},
        {"ZoneName": "us-west-2-wl1-den-wlz-1", "ZoneId": "x", "ZoneType": "wavelength-zone", "State": "available"},
        {"ZoneId": "usw2-az4"},
        {"ZoneName": "us-west-2d"},
    ]
    assert usable(rows) == (Zone("us-west-2a", "usw2-az1"), Zone("us-west-2d", ""))
    assert [looks_usual("us-west-2", name) for name in ("us-west-2a", "us-west-2-lax-1a", "us-west-1a", "us-west-2")] == [True, False, False, False]
