"""docs/provider-guide.md is true: its skeleton passes the contract, its table names every error, its harness table every part of a harness."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from spotd.core import errors
from spotd.core.instance import EndedBy, LaunchRequest, ObservedState
from spotd.core.offer import Market, OfferKey
from spotd.ports import OfferQuery, Provider
from spotd.testing import FakeCloud, ProviderUnderTest
from spotd.testing.contract import ProviderContract
from spotd.testing.fake_cloud import NAME, ZONES, FakeProvider

GUIDE = Path(__file__).parents[2] / "docs" / "provider-guide.md"
CODES = {
    errors.NoCapacity: "OutOfStock",
    errors.PriceTooHigh: "BidTooLow",
    errors.InvalidRequest: "BadRequest",
}
STATES = {
    ObservedState.PENDING: "booting",
    ObservedState.RUNNING: "up",
    ObservedState.ENDING: "stopping",
    ObservedState.GONE: "deleted",
}


@pytest.fixture(scope="session")
def acme(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The skeleton as a module."""
    [code] = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    path = tmp_path_factory.mktemp("guide") / "spotd_acme.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location("spotd_acme", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["spotd_acme"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class Sdk:
    """The SDK that the skeleton is written for, on a cloud in memory. Two machines fill a page."""

    cloud: FakeCloud
    error: Any

    def prices(self, region: str, types: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """Every price of the region."""
        sheet = self._call(lambda: FakeProvider(self.cloud, "").offers(OfferQuery(frozenset(types), frozenset({region}))))
        return [
            {"zone": o.key.zone, "type": o.key.instance_type, "spot": o.key.market is Market.SPOT, "usd": str(o.price_usd_per_hour)}
            for o in sheet.offers
        ]

    def run(self, region: str, token: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Launch, or find what the token and the body have launched."""
        market = Market.SPOT if body["spot"] else Market.ON_DEMAND
        offer = OfferKey(NAME, region, body["zone"], body["type"], market)
        limit = None if body["max_usd"] is None else Decimal(body["max_usd"])
        deployment, job = body["tags"]["spotd-deployment"], body["tags"]["spotd-job"]
        request = LaunchRequest(token, deployment, job, job, 1, 0, offer, limit, datetime.fromisoformat(body["delete_at"]))
        return {"id": self._call(lambda: FakeProvider(self.cloud, deployment).launch(request, body["script"])).provider_id}

    def find(self, region: str, tags: Mapping[str, str], page: str | None) -> Mapping[str, Any]:
        """One page of the deployment's machines."""
        rows = self._call(lambda: FakeProvider(self.cloud, tags["spotd-deployment"]).instances(region))
        found = [self._row(row.provider_id) for row in rows if tags.get("spotd-token") in {None, row.token}]
        start = int(page or 0)
        return {"machines": found[start : start + 2], "next": str(start + 2) if start + 2 < len(found) else None}

    def end(self, region: str, machine: str) -> None:
        """Delete it."""
        there = [m for m in self.cloud.machines if m.provider_id == machine]
        self._call(lambda: FakeProvider(self.cloud, there[0].request.deployment if there else "").terminate(region, machine))
        if not there:
            raise self.error("NoSuchMachine", "there is no such machine")

    def _row(self, machine: str) -> Mapping[str, Any]:
        truth = self.cloud.machine(machine)
        row = truth.row(self.cloud.clock.now())
        times = {"up_since": row.launched_at and row.launched_at.isoformat(), "ended": row.ended_at and row.ended_at.isoformat()}
        reason = {None: "", EndedBy.RECLAIM: "preempted", EndedBy.US: "api"}[row.ended_by]
        place = {"zone": row.zone, "type": truth.request.offer.instance_type}
        return {"id": machine, "state": STATES[row.state], "reason": reason, "tags": {"spotd-token": row.token}, **place, **times}

    def _call(self, call: Any) -> Any:
        try:
            return call()
        except errors.ProviderUnavailable:
            raise TimeoutError from None
        except errors.ProviderError as error:
            raise self.error(CODES[type(error)], error.message) from None


class AcmeAccount(FakeCloud):
    """The cloud in memory behind the skeleton."""

    def __init__(self, acme: ModuleType) -> None:
        super().__init__()
        self._acme = acme

    def provider(self) -> Any:
        """The skeleton, under the name that the goods of this cloud carry."""
        return self._acme.AcmeProvider(Sdk(self, self._acme.AcmeError), self.deployment, tuple(ZONES), NAME, self.clock.now)


class TestAcme(ProviderContract):
    """The skeleton of the guide."""

    @pytest.fixture
    def cloud(self, acme: ModuleType) -> ProviderUnderTest:
        """An empty account."""
        return AcmeAccount(acme)


def test_the_guide_names_every_error_and_every_part_of_a_harness() -> None:
    """Tables on the page are as long as the lists they speak of."""
    page = GUIDE.read_text("utf-8")
    kinds = {name for name, x in inspect.getmembers(errors, inspect.isclass) if issubclass(x, errors.ProviderError)} - {"ProviderError"}
    assert {name for name in kinds if f"| `{name}" not in page} == set()
    parts = {name for name in vars(ProviderUnderTest) if not name.startswith("_")}
    table = page.partition("| harness |")[2].partition("```")[0]
    assert {name for name in parts - {"deployment"} if f"`{name}" not in table} == set()
    methods = {name for name in vars(Provider) if not name.startswith("_")} - {"name"}
    promises = page.partition("## What each method promises")[2].partition("## Errors")[0]
    assert {name for name in methods if f"**`{name}" not in promises} == set()
    assert all(f"`{by.name}`" in promises for by in EndedBy)
