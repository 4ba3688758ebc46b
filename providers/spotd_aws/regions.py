"""Which regions the account has, and how to tell one that it has not from one that is out of order."""

from __future__ import annotations

import threading
from collections.abc import Collection
from datetime import timedelta
from typing import TYPE_CHECKING

from spotd.core.errors import Misconfigured, ProviderError
from spotd_aws.errors import reads
from spotd_aws.keeping import Kept, Now, Terms
from spotd_aws.paging import rows

if TYPE_CHECKING:
    from spotd_aws.clients import Clients

#: Answers of regions that the account has not enabled: the first by EC2, the last because the name is not even resolved (facts/cloud-api.md §1.1).
_SUSPECT = frozenset({"AuthFailure", "OptInRequired", "UnrecognizedClientException", "InvalidClientTokenId", "EndpointConnectionError"})
_TERMS = Terms(fresh=timedelta(days=1), retry=timedelta(minutes=1))


class Regions:
    """The regions enabled for the account, asked for once a day."""

    def __init__(self, clients: Clients, now: Now) -> None:
        self._clients = clients
        self._kept: Kept[str, frozenset[str]] = Kept(now, _TERMS)
        self._lock = threading.Lock()
        self._answered: set[str] = set()

    def enabled(self) -> frozenset[str] | None:
        """Their names; None if the account's home region has never told."""
        home = self._clients.home_region()
        self._kept.refresh(home, lambda: self._ask(home))
        known = self._kept.known(home)
        return None if known is None else known.value

    def _ask(self, home: str) -> frozenset[str]:
        with reads("listing the regions", home):
            answer = self._clients.get("ec2", home).describe_regions()
            return frozenset(str(row["RegionName"]) for row in rows(answer, "Regions") if row.get("RegionName"))

    def answered(self, regions: Collection[str]) -> None:
        """These regions took our credentials: they are good."""
        with self._lock:
            self._answered.update(regions)

    def judged(self, region: str, error: ProviderError) -> ProviderError:
        """The error, or, where the region is not enabled for the account, what to do about that.

        What is refused in one region while others take the same credentials is not a matter of credentials (facts/cloud-api.md §1.1). A name that is
        not resolved may be our own network, so that only the account's list of regions decides there.
        """
        if error.code not in _SUSPECT:
            return error
        enabled = self.enabled()
        with self._lock:
            others = bool(self._answered - {region})
        unlisted = enabled is not None and region not in enabled
        refused_here_only = enabled is None and others and error.code != "EndpointConnectionError"
        return disabled(region, error.code) if unlisted or refused_here_only else error


def disabled(region: str, code: str) -> Misconfigured:
    """A region that the account has not."""
    return Misconfigured(
        f"{region} is not enabled for this account: enable it (aws account enable-region --region-name {region}), "
        "or leave it out of `regions` in [providers.aws] and of the policies",
        code,
    )
