"""Regions and zones of the account. Names are the account's own aliases, ids are physical: scores go by ids, launches by names (facts §0.5, §1.2)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from spotd_aws.errors import reads

if TYPE_CHECKING:
    from spotd_aws.clients import Clients

_KEPT = timedelta(days=1)


class Zones:
    """Asks for them, and remembers them for a day."""

    def __init__(self, clients: Clients, configured: Sequence[str], now: Callable[[], datetime]) -> None:
        self._clients = clients
        self._configured = tuple(configured)
        self._now = now
        self._lock = threading.Lock()
        self._enabled: tuple[datetime, tuple[str, ...]] | None = None
        self._zones: dict[str, tuple[datetime, Mapping[str, str]]] = {}

    def regions(self) -> Sequence[str]:
        """Those configured, else every region that is enabled for the account. Raises ProviderError when that is asked and not answered."""
        if self._configured:
            return self._configured
        now = self._now()
        with self._lock:
            known = self._enabled
        if known is not None and now - known[0] < _KEPT:
            return known[1]
        home = self._clients.home_region()
        with reads("listing the regions", home):
            rows = self._clients.get("ec2", home).describe_regions()["Regions"]
            enabled = tuple(sorted(str(row["RegionName"]) for row in rows))
        with self._lock:
            self._enabled = (now, enabled)
        return enabled

    def of(self, region: str) -> Mapping[str, str]:
        """The zones that machines can be in, id by name. Local and wavelength zones are none."""
        now = self._now()
        with self._lock:
            known = self._zones.get(region)
        if known is not None and now - known[0] < _KEPT:
            return known[1]
        with reads("listing the zones", region):
            rows = self._clients.get("ec2", region).describe_availability_zones()["AvailabilityZones"]
            zones = {str(row["ZoneName"]): str(row["ZoneId"]) for row in rows if _usable(row)}
        with self._lock:
            self._zones[region] = (now, zones)
        return zones


def _usable(row: Any) -> bool:
    return row.get("ZoneType", "availability-zone") == "availability-zone" and row.get("State", "available") in {"available", "constrained"}
