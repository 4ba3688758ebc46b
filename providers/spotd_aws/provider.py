"""One AWS account as a provider: what each part does stands in its own module."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spotd.ports import Capabilities, DeliveredNotice, Launched, LaunchOutcome, MetadataKind, OfferQuery, OfferSheet
from spotd_aws.clients import Clients
from spotd_aws.launch import Launcher
from spotd_aws.listing import Listing
from spotd_aws.queue import Warnings
from spotd_aws.selling import Selling

if TYPE_CHECKING:
    import threading

    from spotd.core.instance import LaunchRequest, ObservedInstance
    from spotd_aws.config import AwsConfig

#: The word of policies and offers.
NAME = "aws"
#: Seconds to a minute (facts/cloud-api.md §2.2).
_LISTING_LAG = timedelta(minutes=1)
_NOTICE = timedelta(seconds=120)


def open_account(config: AwsConfig, deployment: str, now: Callable[[], datetime] | None = None) -> AwsProvider:
    """The account that boto3's credentials belong to. ValueError where boto3 cannot use what it is configured with."""
    from botocore.exceptions import BotoCoreError

    try:
        clients = Clients(config)
    except BotoCoreError as error:
        raise ValueError(f"profile: {error}") from error
    return AwsProvider(clients, config, deployment, now or (lambda: datetime.now(UTC)))


def _served_here(endpoint_url: str | None) -> bool:
    host = None if endpoint_url is None else urlsplit(endpoint_url).hostname
    if host is None:
        return False
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class AwsProvider:
    """Implements `ports.Provider`."""

    def __init__(self, clients: Clients, config: AwsConfig, deployment: str, now: Callable[[], datetime]) -> None:
        self._clients = clients
        self._selling = Selling(clients, config, clock=now)
        self._launcher = Launcher(clients, config, deployment, now)
        self._warnings = Warnings(clients, config, deployment, self._selling.regions)
        self._listing = Listing(clients, deployment, self._warnings.saw, now)
        self._capabilities = Capabilities(
            notice=_NOTICE,
            boot_timeout=timedelta(seconds=config.boot_timeout),
            heartbeat=timedelta(seconds=config.heartbeat),
            metadata_poll=timedelta(seconds=config.metadata_poll),
            metadata=MetadataKind.IMDS,
            listing_lag=_LISTING_LAG,
            billing_rule=NAME,
            notice_channel=True,
            # An AWS that is served by this host (`spotd fake-aws`) has its machines here, too.
            remote=not _served_here(config.endpoint_url or os.environ.get("AWS_ENDPOINT_URL_EC2") or os.environ.get("AWS_ENDPOINT_URL")),
        )

    @property
    def name(self) -> str:
        """`aws`."""
        return NAME

    @property
    def capabilities(self) -> Capabilities:
        """As configured."""
        return self._capabilities

    def regions(self) -> Sequence[str]:
        """The configured regions, else every enabled one."""
        return self._selling.regions()

    def offers(self, query: OfferQuery) -> OfferSheet:
        """Spot prices now, on-demand prices of the day."""
        return self._selling.offers(query)

    def launch(self, request: LaunchRequest, user_data: str) -> Launched:
        """One RunInstances call."""
        return self._launcher.launch(request, user_data)

    def outcome(self, request: LaunchRequest) -> LaunchOutcome:
        """By client token."""
        return self._launcher.outcome(request)

    def instances(self, region: str) -> Sequence[ObservedInstance]:
        """By tag."""
        return self._listing.instances(region)

    def terminate(self, region: str, provider_id: str) -> None:
        """One TerminateInstances call."""
        self._launcher.terminate(region, provider_id)

    def notices(self, stop: threading.Event) -> Sequence[DeliveredNotice]:
        """From the queues of all regions, and from what listings saw."""
        return self._warnings.notices(stop)

    def close(self) -> None:
        """End the queues' threads, close connections."""
        self._selling.close()
        self._warnings.close()
        self._clients.close()
