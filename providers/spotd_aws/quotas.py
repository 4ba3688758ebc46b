"""vCPU limits by family, market and region: a family whose limit is 0 is not offered, with the reason at hand (facts/cloud-api.md §1.7)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from spotd.core.errors import ProviderError
from spotd.core.offer import Market
from spotd_aws.errors import reads

if TYPE_CHECKING:
    from spotd_aws.clients import Clients

_KEPT = timedelta(minutes=30)
#: Codes by family, for spot and on-demand. Families that public sources disagree about (P6) are not here: their limit is unknown.
_CODES: dict[str, tuple[str, str]] = {
    "g": ("L-3819A6DF", "L-DB2E81BA"),
    "p": ("L-7212CCBC", "L-417A185B"),
    "p5": ("L-C4BD4855", "L-417A185B"),
    "standard": ("L-34B43A08", "L-1216C47A"),
}


@dataclass(frozen=True, slots=True)
class ZeroQuota:
    """A limit of 0: nothing of this family can be had in this market there until it is raised."""

    region: str
    family: str
    market: Market
    code: str

    def __str__(self) -> str:
        return f"the quota {self.code} for {self.market} vCPUs of family {self.family} in {self.region} is 0: ask AWS to raise it (Service Quotas)"


def family_of(instance_type: str) -> str | None:
    """The family that a type's vCPUs count in; None where it is not known."""
    letters = instance_type.split(".", 1)[0].lower()
    if letters.startswith(("gr", "g", "vt")):
        return "g"
    if letters.startswith(("p5",)):
        return "p5"
    if letters.startswith(("p2", "p3", "p4")):
        return "p"
    head = letters.rstrip("abcdefghijklmnopqrstuvwxyz-").rstrip("0123456789") if letters[:1] in set("acdhimrtz") else ""
    return "standard" if head in {"a", "c", "d", "h", "i", "m", "r", "t", "z"} else None


class Quotas:
    """Asks for limits, and remembers them for half an hour. What may not be asked is unknown, which keeps nobody from anything."""

    def __init__(self, clients: Clients, now: Callable[[], datetime]) -> None:
        self._clients = clients
        self._now = now
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[datetime, float | None]] = {}

    def zero(self, region: str, instance_type: str, market: Market) -> ZeroQuota | None:
        """The limit that keeps this from being launched at all, if it is known to be 0."""
        family = family_of(instance_type)
        if family is None:
            return None
        code = _CODES[family][0 if market is Market.SPOT else 1]
        return ZeroQuota(region, family, market, code) if self._limit(region, code) == 0 else None

    def zero_quotas(self, region: str) -> list[ZeroQuota]:
        """Every family's limits that are known to be 0 in a region: for `spotd doctor aws`."""
        found = []
        for family, codes in _CODES.items():
            for market, code in zip((Market.SPOT, Market.ON_DEMAND), codes, strict=True):
                if self._limit(region, code) == 0:
                    found.append(ZeroQuota(region, family, market, code))
        return found

    def _limit(self, region: str, code: str) -> float | None:
        now, key = self._now(), (region, code)
        with self._lock:
            known = self._known.get(key)
        if known is not None and now - known[0] < _KEPT:
            return known[1]
        limit = self._ask(region, code)
        with self._lock:
            self._known[key] = (now, limit)
        return limit

    def _ask(self, region: str, code: str) -> float | None:
        client = self._clients.get("service-quotas", region)
        # A limit that was never changed is told as the default only.
        for ask in (client.get_service_quota, client.get_aws_default_service_quota):
            try:
                with reads("reading a quota", region):
                    return float(ask(ServiceCode="ec2", QuotaCode=code)["Quota"]["Value"])
            except ProviderError as error:
                if error.code != "NoSuchResourceException":
                    return None
        return None
