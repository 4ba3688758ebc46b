"""The on-demand price out of all the rows that the price list has for a type (facts/cloud-api.md §1.3)."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from spotd.core.errors import ProviderUnavailable
from spotd_aws.on_demand import by_region

KIND = "g5.xlarge"


def _product(usd: str = "1.0060000000", *, unit: str = "Hrs", currency: str = "USD", **attributes: str) -> dict[str, Any]:
    usual = {
        "instanceType": KIND,
        "regionCode": "us-west-2",
        "locationType": "AWS Region",
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "licenseModel": "No License required",
        "marketoption": "OnDemand",
    }
    price = {"unit": unit, "beginRange": "0", "endRange": "Inf", "pricePerUnit": {currency: usd}}
    return {
        "product": {"productFamily": "Compute Instance", "attributes": usual | attributes},
        "terms": {"OnDemand": {"SKU.JRTCKXETXF": {"priceDimensions": {"SKU.JRTCKXETXF.6YS6EN2CT7": price}}}},
    }


def test_rows_are_json_in_strings_or_already_read() -> None:
    """The model says that the SDK reads them, and it does not: both are taken."""
    for row in (json.dumps(_product()), _product()):
        assert by_region([row], KIND) == {"us-west-2": Decimal("1.006")}


def test_every_region_has_its_own_price() -> None:
    """One question is for all regions."""
    rows = [_product(), _product("1.1230000000", regionCode="eu-west-1")]
    assert by_region(rows, KIND) == {"us-west-2": Decimal("1.006"), "eu-west-1": Decimal("1.123")}


@pytest.mark.parametrize(
    "other",
    [
        _product("0.0000000000", capacitystatus="AllocatedCapacityReservation"),
        _product("9", capacitystatus="UnusedCapacityReservation"),
        _product("9", tenancy="Dedicated"),
        _product("9", tenancy="Host"),
        _product("9", operatingSystem="Windows"),
        _product("9", preInstalledSw="SQL Web"),
        _product("9", licenseModel="Bring your own license"),
        _product("9", marketoption="CapacityBlock"),
        _product("9", instanceType="g5.2xlarge"),
        _product("9", locationType="AWS Local Zone"),
        _product("9", unit="Quantity"),
        _product("9", currency="CNY"),
        _product("0.0000000000"),
        {"product": None, "terms": []},
        {},
        "[]",
    ],
)
def test_rows_that_are_not_meant_do_not_count(other: Any) -> None:
    """Whatever a filter let through, a price of nothing included: it neither is the price nor makes it doubtful."""
    for rows in ([_product(), other], [other, _product()]):
        assert by_region(rows, KIND) == {"us-west-2": Decimal("1.006")}
    assert by_region([other], KIND) == {}


def test_two_prices_are_none() -> None:
    """Which of them is meant cannot be known; the same one twice is one."""
    assert by_region([_product("1.0"), _product("2.0"), _product("3.0", regionCode="eu-west-1")], KIND) == {"eu-west-1": Decimal(3)}
    assert by_region([_product("1.0"), _product("1.000")], KIND) == {"us-west-2": Decimal(1)}


def test_a_row_that_is_no_json_is_no_answer() -> None:
    """It says nothing about what a type costs, so it must not pass for "not sold"."""
    with pytest.raises(ProviderUnavailable, match="no JSON"):
        by_region(["<html>"], KIND)
