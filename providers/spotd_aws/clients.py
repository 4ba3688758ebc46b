"""boto3 clients, made once for each service and region. boto3's clients may be shared between threads, its sessions may not.

What a client does by itself is decided here: nothing is retried in the launching one, because `InsufficientInstanceCapacity` is an HTTP 500 that
botocore would repeat behind our back (facts/cloud-api.md §0.1, §1.9); reads are retried by the daemon, which knows what it waits for.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from spotd_aws.models import make_lean

if TYPE_CHECKING:
    from spotd_aws.config import AwsConfig

#: botocore's own are 60 s each: one dead region would hold a sweep up for minutes (facts/cloud-api.md §1.1).
_CONNECT_S, _READ_S = 5, 15
#: The pricing service answers in a few regions only, and for all (facts/cloud-api.md §1.3).
PRICING_REGION = "us-east-1"


class Clients:
    """Makes each client when it is first wanted."""

    def __init__(self, config: AwsConfig) -> None:
        import boto3
        import botocore.session

        self._config = config
        core = botocore.session.get_session()
        if config.profile is not None:
            core.set_config_variable("profile", config.profile)
        # Reads the configuration: a profile that is not there is found out here.
        make_lean(core)
        self._session = boto3.session.Session(botocore_session=core)
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, str, float], Any] = {}

    def get(self, service: str, region: str, *, read_timeout_s: float = _READ_S) -> Any:
        """The client of a service in a region: one attempt, short timeouts."""
        key = (service, region, read_timeout_s)
        with self._lock:
            if key not in self._clients:
                self._clients[key] = self._make(service, region, read_timeout_s)
            return self._clients[key]

    def _make(self, service: str, region: str, read_timeout_s: float) -> Any:
        from botocore.config import Config

        settings = Config(
            connect_timeout=_CONNECT_S,
            read_timeout=read_timeout_s,
            retries={"mode": "standard", "total_max_attempts": 1},
            max_pool_connections=32,
            user_agent_extra="spotd",
        )
        return self._session.client(service, region_name=region, endpoint_url=self._config.endpoint_url, config=settings)

    def home_region(self) -> str:
        """Where questions that are not about a region go: the first configured one, the profile's, or us-east-1."""
        return next(iter(self._config.regions), None) or self._session.region_name or "us-east-1"

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()
