"""Which limit a type counts against, and what it takes of it (facts/cloud-api.md §1.7)."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from spotd.core.offer import Market
from spotd_aws.quotas import Quotas

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
HERE = "us-west-2"


class _Service:
    """Service Quotas, with these values and no others; and the clients that lead to it."""

    def __init__(self, applied: dict[str, float], default: dict[str, float] | None = None, listed: dict[str, float] | None = None) -> None:
        self.applied = applied
        self.default = default or {}
        self.listed = listed or {}

    def get(self, service: str, region: str) -> _Service:
        assert (service, region) == ("service-quotas", HERE)
        return self

    def get_service_quota(self, **question: str) -> dict[str, Any]:
        return self._one(self.applied, question)

    def get_aws_default_service_quota(self, **question: str) -> dict[str, Any]:
        return self._one(self.default, question)

    def list_service_quotas(self, **question: str) -> dict[str, Any]:
        assert question["ServiceCode"] == "ec2"
        return {"Quotas": [{"QuotaName": name, "QuotaCode": "L-X", "Value": value} for name, value in self.listed.items()]}

    @staticmethod
    def _one(values: dict[str, float], question: dict[str, str]) -> dict[str, Any]:
        if question["QuotaCode"] not in values:
            raise ClientError({"Error": {"Code": "NoSuchResourceException", "Message": ""}}, "GetServiceQuota")
        return {"Quota": {"QuotaCode": question["QuotaCode"], "Value": values[question["QuotaCode"]]}}


def _short(service: _Service, kind: str, vcpus: dict[str, int] | None = None) -> set[Market]:
    """In which markets nothing can be had."""
    quotas = Quotas(service, lambda: NOW)  # type: ignore[arg-type]
    quotas.refresh(HERE, [kind], threading.Event())
    return {one.market for one in quotas.shortages(HERE, [kind], vcpus or {})}


@pytest.mark.parametrize(
    ("kind", "spot", "on_demand"),
    [
        ("g5.xlarge", "L-3819A6DF", "L-DB2E81BA"),
        ("g4dn.xlarge", "L-3819A6DF", "L-DB2E81BA"),
        ("gr6.4xlarge", "L-3819A6DF", "L-DB2E81BA"),
        ("vt1.3xlarge", "L-3819A6DF", "L-DB2E81BA"),
        ("p3dn.24xlarge", "L-7212CCBC", "L-417A185B"),
        ("p4d.24xlarge", "L-7212CCBC", "L-417A185B"),
        ("p5.48xlarge", "L-C4BD4855", "L-417A185B"),
        ("p5en.48xlarge", "L-C4BD4855", "L-417A185B"),
        ("c7i.large", "L-34B43A08", "L-1216C47A"),
        ("trn1.32xlarge", "L-6B0D517C", None),
        ("inf2.xlarge", "L-B5D1601B", None),
        ("dl1.24xlarge", "L-85EED4F7", None),
        ("x2idn.16xlarge", "L-E3A00192", None),
    ],
)
def test_a_type_counts_against_its_own_familys_limit(kind: str, spot: str, on_demand: str | None) -> None:
    """In each market one; a limit of another family, or one that is not known, keeps nothing from being tried."""
    assert _short(_Service({spot: 0.0}), kind) == {Market.SPOT}
    if on_demand is not None:
        assert _short(_Service({on_demand: 0.0}), kind) == {Market.ON_DEMAND}
    everything = {"L-3819A6DF", "L-DB2E81BA", "L-7212CCBC", "L-417A185B", "L-C4BD4855", "L-34B43A08", "L-1216C47A", "L-6B0D517C", "L-B5D1601B"}
    assert _short(_Service(dict.fromkeys(everything - {spot, on_demand}, 0.0)), kind) == set()


def test_p6_is_found_by_the_name_of_its_limit() -> None:
    """Public code disagrees about its code; where no name fits, nothing is known."""
    assert _short(_Service({}, listed={"All P6 Spot Instance Requests": 0.0, "All P5 Spot Instance Requests": 9.0}), "p6-b200.48xlarge") == {
        Market.SPOT
    }
    assert _short(_Service({"L-C4BD4855": 0.0, "L-7212CCBC": 0.0}), "p6-b200.48xlarge") == set()


def test_what_was_never_applied_is_the_default() -> None:
    """And what is nowhere is unknown."""
    assert _short(_Service({}, default={"L-3819A6DF": 0.0}), "g5.xlarge") == {Market.SPOT}
    assert _short(_Service({"L-3819A6DF": 64.0}, default={"L-3819A6DF": 0.0}), "g5.xlarge") == set()
    assert _short(_Service({}), "g5.xlarge") == set()


@pytest.mark.parametrize(("limit", "needed", "short"), [(4, 4, False), (3, 4, True), (0, None, True), (3, None, False)])
def test_not_even_one_machine_fits(limit: float, needed: int | None, short: bool) -> None:
    """A type takes its vCPUs of it; where these are not known, only a limit of nothing says so."""
    vcpus = {} if needed is None else {"g5.xlarge": needed}
    assert (_short(_Service({"L-3819A6DF": limit}), "g5.xlarge", vcpus) == {Market.SPOT}) is short
