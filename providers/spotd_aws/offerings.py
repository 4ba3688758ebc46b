"""Which type is sold in which zone: what is not, is not offered, instead of being refused at launch (facts/cloud-api.md §1.6)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from spotd_aws.errors import reads
from spotd_aws.machines import pages

if TYPE_CHECKING:
    from spotd_aws.clients import Clients

_KEPT = timedelta(days=1)
_PAGE = 1000


class Offerings:
    """Asks by region, and remembers for a day."""

    def __init__(self, clients: Clients, now: Callable[[], datetime]) -> None:
        self._clients = clients
        self._now = now
        self._lock = threading.Lock()
        self._known: dict[tuple[str, frozenset[str]], tuple[datetime, frozenset[tuple[str, str]]]] = {}

    def of(self, region: str, instance_types: Collection[str]) -> frozenset[tuple[str, str]]:
        """Pairs of type and zone name."""
        key, now = (region, frozenset(instance_types)), self._now()
        with self._lock:
            known = self._known.get(key)
        if known is not None and now - known[0] < _KEPT:
            return known[1]
        asked = {
            "LocationType": "availability-zone",
            "Filters": [{"Name": "instance-type", "Values": sorted(instance_types)}],
            "MaxResults": _PAGE,
        }
        with reads("asking which types are sold", region):
            answer = pages(self._clients.get("ec2", region).describe_instance_type_offerings, asked)
            found = frozenset((str(row["InstanceType"]), str(row["Location"])) for page in answer for row in page["InstanceTypeOfferings"])
        with self._lock:
            self._known[key] = (now, found)
        return found
