"""Every provider passes the one contract suite: `-k aws`, `-k local`, `-k sim`, `-k fake` select one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spotd.testing import FakeCloud, ProviderUnderTest
from spotd.testing.contract import ProviderContract
from tests.contract.local_account import LocalAccount


class TestLocal(ProviderContract):
    """Real processes on this machine."""

    @pytest.fixture
    def cloud(self, tmp_path: Path) -> Iterator[ProviderUnderTest]:
        """A local cloud that leaves no process behind, whatever the test did."""
        account = LocalAccount(tmp_path)
        yield account
        account.clean_up()


class TestAws(ProviderContract):
    """The AWS provider on a fake account, over real HTTP."""

    @pytest.fixture
    def cloud(self, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[ProviderUnderTest]:
        """An account of its own; queues only for what is about the channel."""
        from tests.contract.aws_account import AwsAccount  # noqa: PLC0415 - boto3 and moto take a second

        account = AwsAccount(monkeypatch, queues="channel" in request.node.name)
        yield account
        account.clean_up()


class TestSim(ProviderContract):
    """The simulator's cloud, its faults off."""

    @pytest.fixture
    def cloud(self) -> ProviderUnderTest:
        """A simulated cloud alone, without daemon and agents."""
        pytest.importorskip("spotd.sim.cloud")
        from tests.contract.sim_account import SimAccount  # noqa: PLC0415 - only where there is a simulator

        return SimAccount()


class TestFake(ProviderContract):
    """The cloud in memory that tests of other things use."""

    @pytest.fixture
    def cloud(self) -> ProviderUnderTest:
        """An empty account."""
        return FakeCloud()
