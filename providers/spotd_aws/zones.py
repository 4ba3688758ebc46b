"""Zones by name and id. A name is an alias of the account's, an id is the place itself (facts/cloud-api.md §0.5)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from spotd_aws.errors import reads
from spotd_aws.keeping import Kept, Now, Terms
from spotd_aws.paging import rows

if TYPE_CHECKING:
    from spotd_aws.clients import Clients

_TERMS = Terms(fresh=timedelta(days=1))
_USUAL = "availability-zone"


@dataclass(frozen=True, slots=True)
class Zone:
    """An availability zone that machines can be started in."""

    name: str
    id: str


class Zones:
    """The zones of each region, as this account calls them: asked for once a day."""

    def __init__(self, clients: Clients, now: Now) -> None:
        self._clients = clients
        self._kept: Kept[str, tuple[Zone, ...]] = Kept(now, _TERMS)

    def of(self, region: str) -> tuple[Zone, ...]:
        """The zones of a region. Raises ProviderError."""
        return self._kept.get(region, lambda: self._ask(region))

    def _ask(self, region: str) -> tuple[Zone, ...]:
        with reads("listing the zones", region):
            return usable(rows(self._clients.get("ec2", region).describe_availability_zones(), "AvailabilityZones"))


def usable(found: Iterable[Mapping[str, Any]]) -> tuple[Zone, ...]:
    """Those that are available and no local or wavelength zones. What an account cannot see is not among them."""
    return tuple(
        Zone(str(row["ZoneName"]), str(row.get("ZoneId") or ""))
        for row in found
        if row.get("ZoneName") and row.get("State", "available") == "available" and row.get("ZoneType", _USUAL) == _USUAL
    )


def looks_usual(region: str, name: str) -> bool:
    """Whether a zone is none of the local ones, by its name alone: us-west-2a and not us-west-2-lax-1a."""
    return re.fullmatch(re.escape(region) + "[a-z]", name) is not None
