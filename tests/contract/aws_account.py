"""A fake AWS account to hold the AWS provider to the contract: two regions, pages of two rows, descriptions that lag, and the queues set up."""

from __future__ import annotations

import functools
import threading
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import botocore.session
import pytest
from botocore.loaders import create_loader

from spotd.core.instance import EndedBy, LaunchRequest
from spotd.core.offer import Market, OfferKey
from spotd.ports import Provider
from spotd.testing import FakeClock, Goods, Traits
from spotd.testing.fake_aws import FakeAws, Lags
from spotd_aws.clients import Clients
from spotd_aws.config import read
from spotd_aws.provider import open_account
from spotd_aws.setup import Orders, set_up

KIND = "g5.xlarge"
HERE, THERE = "us-west-2", "eu-west-1"
#: Less than what the provider says of its listings, so that it has to keep its word.
LAGS = Lags(boot_s=4.0, shutdown_s=6.0, visible_s=2.0, listing_s=1.0, request_visible_s=3.0, request_s=1.0)
#: botocore reads its models anew for each session; as many as a test run makes, that takes longer than all the rest.
_LOADER = functools.cache(create_loader)


def _offer(zone: str, market: Market = Market.SPOT, kind: str = KIND) -> OfferKey:
    return OfferKey("aws", zone[:-1], zone, kind, market)


class AwsAccount:
    """Implements `ProviderUnderTest`. EC2's time is stepped; connections and long polls are real.

    Without `queues`, `spotd aws setup` has not been run: whatever is not about the channel works all the same, and a third faster.
    """

    deployment = "ours"

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, queues: bool) -> None:
        monkeypatch.setattr(botocore.session, "create_loader", _LOADER)
        # Signatures and whatever looks at the machine's clock are of today: so is the cloud.
        self.clock = FakeClock(datetime.now(UTC).replace(microsecond=0))
        self.aws = FakeAws(self.clock, (HERE, THERE), lags=LAGS).start()
        self.aws.world.page_rows = 2
        for name, value in self.aws.environment().items():
            if name != "AWS_ENDPOINT_URL":  # that is for the configuration to say
                monkeypatch.setenv(name, value)
        self.goods = Goods(_offer(f"{HERE}a"), _offer(f"{HERE}a", Market.ON_DEMAND), _offer(f"{HERE}b"), _offer(f"{THERE}a"), limit=Decimal("0.9"))
        self.traits = Traits(
            absent_id="i-0123456789abcdef0",
            step_s=10.0,  # a message that nobody acknowledged is visible again after 30 s
            patience_s=600.0,
            # EC2's reason is the same whoever called TerminateInstances (facts/reclaim.md §1.9).
            words_for_us=frozenset({EndedBy.US, EndedBy.EXTERNAL}),
            # EC2 knows no end of life; the tag is for the sweep, and the agent keeps it.
            ends_at_expiry=False,
        )
        self._providers: list[Provider] = []
        if queues:
            self._set_up()

    def _table(self) -> dict[str, object]:
        return {"endpoint_url": self.aws.endpoint, "regions": [HERE, THERE], "queue_wait": "1s"}

    def _set_up(self) -> None:
        """As an operator does, once: queues, rules, security groups."""
        config = read(self._table())
        clients = Clients(config)
        for _ in set_up(clients, config, self.deployment, (HERE, THERE), Orders(canary=False), threading.Event()):
            pass
        clients.close()

    def provider(self) -> Provider:  # noqa: D102 - here and below: as in the protocol
        return self._provider(self.deployment)

    def _provider(self, deployment: str) -> Provider:
        made = open_account(read(self._table()), deployment, self.clock.now)
        self._providers.append(made)
        return made

    def pass_time(self, seconds: float) -> None:  # noqa: D102
        self.clock.step(seconds)
        self.aws.tick()

    def foreign(self, offer: OfferKey) -> str:  # noqa: D102
        expires_at = self.clock.now() + timedelta(hours=1)
        request = LaunchRequest("theirs-000000000", "theirs", "job", "job", 1, 0, offer, self.goods.limit, expires_at)
        return self._provider("theirs").launch(request, self.traits.user_data).provider_id

    def reclaim(self, provider_id: str) -> None:  # noqa: D102
        self.aws.reclaim(provider_id)

    def exhaust(self) -> OfferKey:  # noqa: D102
        key = _offer(f"{HERE}c")
        self.aws.exhaust(key.region, key.zone, key.instance_type, key.market)
        return key

    def break_region(self, region: str) -> AbstractContextManager[None]:  # noqa: D102
        return self.aws.break_region(region)

    def expiry_of(self, provider_id: str) -> datetime | None:  # noqa: D102
        noted = self.aws.instance(provider_id).tags.get("spotd:expires")
        return None if noted is None else datetime.fromisoformat(noted)

    def clean_up(self) -> None:
        """Close every provider, then the account."""
        for provider in self._providers:
            provider.close()
        self.aws.close()
