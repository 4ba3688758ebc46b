"""Which types are sold in which zones, and how large they are. A type launched where it is not sold is refused (facts/cloud-api.md §1.6)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from spotd_aws.errors import reads
from spotd_aws.keeping import Kept, Now, Terms
from spotd_aws.paging import batches, pages, rows

if TYPE_CHECKING:
    from spotd_aws.clients import Clients

_TERMS = Terms(fresh=timedelta(days=1))
_MOST_VALUES = 200
_PAGE = 1000


class Offerings:
    """Zones by type for each region, asked for once a day and whenever a type is new."""

    def __init__(self, clients: Clients, now: Now) -> None:
        self._clients = clients
        self._zones: Kept[tuple[str, tuple[str, ...]], Mapping[str, frozenset[str]]] = Kept(now, _TERMS)
        self._lock = threading.Lock()
        #: A type is as large everywhere, and for ever.
        self._vcpus: dict[str, int] = {}

    def zones(self, region: str, instance_types: Sequence[str], stop: threading.Event) -> Mapping[str, frozenset[str]]:
        """Names of zones by type; a type that the region does not sell is not in it. Raises ProviderError."""
        wanted = tuple(sorted(instance_types))
        return self._zones.get((region, wanted), lambda: self._ask_zones(region, wanted, stop))

    def _ask_zones(self, region: str, wanted: Sequence[str], stop: threading.Event) -> Mapping[str, frozenset[str]]:
        ask = self._clients.get("ec2", region).describe_instance_type_offerings
        found: list[Mapping[str, Any]] = []
        with reads("asking which zones sell which types", region):
            for part in batches(wanted, _MOST_VALUES):
                question = {"LocationType": "availability-zone", "Filters": [{"Name": "instance-type", "Values": part}], "MaxResults": _PAGE}
                for page in pages(ask, stop, **question):
                    found += rows(page, "InstanceTypeOfferings")
        return by_type(found, frozenset(wanted))

    def vcpus(self, region: str, instance_types: Sequence[str], stop: threading.Event) -> Mapping[str, int]:
        """How many vCPUs a type has, of the types that this region sells or another has told. Raises ProviderError."""
        with self._lock:
            missing = sorted(set(instance_types) - self._vcpus.keys())
        found: dict[str, int] = {}
        if missing:
            ask = self._clients.get("ec2", region).describe_instance_types
            with reads("asking how large types are", region):
                for part in batches(missing, _MOST_VALUES):
                    # A filter again: one name too many in `InstanceTypes` fails the call (facts/cloud-api.md §1.6).
                    for page in pages(ask, stop, Filters=[{"Name": "instance-type", "Values": part}]):
                        found |= sizes(rows(page, "InstanceTypes"))
        with self._lock:
            self._vcpus |= found
            return {name: self._vcpus[name] for name in instance_types if name in self._vcpus}


def by_type(found: Iterable[Mapping[str, Any]], wanted: frozenset[str]) -> dict[str, frozenset[str]]:
    """Zones by type, of the wanted ones."""
    zones: dict[str, set[str]] = {}
    for row in found:
        kind, zone = str(row.get("InstanceType") or ""), str(row.get("Location") or "")
        if kind in wanted and zone:
            zones.setdefault(kind, set()).add(zone)
    return {kind: frozenset(names) for kind, names in zones.items()}


def sizes(found: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many vCPUs each type has."""
    known: dict[str, int] = {}
    for row in found:
        about = row.get("VCpuInfo")
        count = about.get("DefaultVCpus") if isinstance(about, Mapping) else None
        if row.get("InstanceType") and isinstance(count, int) and count > 0:
            known[str(row["InstanceType"])] = count
    return known
