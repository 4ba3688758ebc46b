"""The account's limits: vCPUs by family, region and market (facts/cloud-api.md §1.7).

What cannot be asked is unknown, and keeps nothing from being tried.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from spotd.core.errors import ProviderError
from spotd.core.offer import Market
from spotd_aws.errors import reads
from spotd_aws.keeping import Kept, Now, Terms
from spotd_aws.paging import pages, rows

if TYPE_CHECKING:
    import threading

    from spotd_aws.clients import Clients

#: Long enough for a service that allows few questions, short enough for ops who wait for a new limit to come into force.
_TERMS = Terms(fresh=timedelta(minutes=15), retry=timedelta(minutes=15), good=timedelta(hours=6))
_NEVER_APPLIED = "NoSuchResourceException"


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit: for which types it is, and its code; where the code is not known, the words of its name."""

    family: str
    types: re.Pattern[str]
    market: Market
    code: str
    name: re.Pattern[str] | None = None

    @property
    def ident(self) -> str:
        """What tells it from others."""
        return self.code or f"{self.market.value} {self.family}"


def _spot(family: str, types: str, code: str) -> Quota:
    return Quota(family, re.compile(types), Market.SPOT, code)


def _on_demand(family: str, types: str, code: str) -> Quota:
    return Quota(family, re.compile(types), Market.ON_DEMAND, code)


_QUOTAS = (
    _spot("G and VT", r"(g|vt|gr)\d", "L-3819A6DF"),
    _spot("P4, P3 and P2", r"p[234]", "L-7212CCBC"),
    _spot("P5", "p5", "L-C4BD4855"),
    # Public code disagrees about which one these count against: the name decides.
    Quota("P6", re.compile("p6"), Market.SPOT, "", re.compile(r"All .*P6.* Spot")),
    _spot("Standard", r"[acdhimrtz]\d", "L-34B43A08"),
    _spot("DL", r"dl\d", "L-85EED4F7"),
    _spot("F", r"f\d", "L-88CF9481"),
    _spot("Inf", r"inf\d", "L-B5D1601B"),
    _spot("Trn", r"trn\d", "L-6B0D517C"),
    _spot("X", r"x\d", "L-E3A00192"),
    _on_demand("G and VT", r"(g|vt|gr)\d", "L-DB2E81BA"),
    _on_demand("P", r"p\d", "L-417A185B"),
    _on_demand("Standard", r"[acdhimrtz]\d", "L-1216C47A"),
)


@dataclass(frozen=True, slots=True)
class Shortage:
    """A limit under which not even one machine of a type can be started: every launch would be refused, so that nothing is offered."""

    region: str
    market: Market
    instance_type: str
    family: str
    code: str
    #: What the account may have, and what one machine takes, where that is known.
    vcpus: float
    needed: int | None

    @property
    def says(self) -> str:
        """One sentence for ops."""
        need = f", and {self.instance_type} has {self.needed}" if self.vcpus > 0 else ""
        fix = (
            f"aws service-quotas request-service-quota-increase --region {self.region} --service-code ec2 --quota-code {self.code} --desired-value N"
            if self.code
            else "ask for more under Service Quotas"
        )
        return f"{self.region}: the account may have {self.vcpus:g} vCPUs of {self.market.value} {self.family} instances{need}: {fix}"


class Quotas:
    """The limits of each region, asked for every quarter of an hour."""

    def __init__(self, clients: Clients, now: Now) -> None:
        self._clients = clients
        self._kept: Kept[tuple[str, str], float | None] = Kept(now, _TERMS)

    def due(self, region: str, instance_types: Sequence[str]) -> bool:
        """Whether it is time to ask for any that these types count against."""
        return any(self._kept.due((region, quota.ident)) for quota in _of(instance_types))

    def refresh(self, region: str, instance_types: Sequence[str], stop: threading.Event) -> None:
        """Ask for what these types count against, if it is time. Never raises ProviderError: what cannot be asked is unknown."""
        for quota in _of(instance_types):
            self._kept.refresh((region, quota.ident), lambda quota=quota: self._ask(region, quota, stop))  # type: ignore[misc]

    def _ask(self, region: str, quota: Quota, stop: threading.Event) -> float | None:
        client = self._clients.get("service-quotas", region)
        with reads("asking for the account's quotas", region):
            if quota.name is not None:
                listed = [row for page in pages(client.list_service_quotas, stop, ServiceCode="ec2") for row in rows(page, "Quotas")]
                return next((_value(row) for row in listed if quota.name.search(str(row.get("QuotaName")))), None)
        for ask in (client.get_service_quota, client.get_aws_default_service_quota):
            try:
                with reads("asking for the account's quotas", region):
                    return _value(ask(ServiceCode="ec2", QuotaCode=quota.code).get("Quota"))
            except ProviderError as error:
                # Nobody ever asked for another value: the default holds.
                if error.code != _NEVER_APPLIED:
                    raise
        return None

    def shortages(self, region: str, instance_types: Sequence[str], vcpus: Mapping[str, int]) -> tuple[Shortage, ...]:
        """Which of these types cannot be started in which market, as far as is known. `vcpus` by type."""
        found = []
        for instance_type in instance_types:
            needed = vcpus.get(instance_type)
            for quota in _of([instance_type]):
                known = self._kept.known((region, quota.ident))
                limit = None if known is None else known.value
                if limit is not None and (limit <= 0 or (needed is not None and limit < needed)):
                    found.append(Shortage(region, quota.market, instance_type, quota.family, quota.code, limit, needed))
        return tuple(found)

    def problem(self, region: str, instance_types: Sequence[str]) -> ProviderError | None:
        """Why a limit is not known."""
        return next((error for quota in _of(instance_types) if (error := self._kept.error((region, quota.ident))) is not None), None)


def _of(instance_types: Sequence[str]) -> list[Quota]:
    """The limits that these types count against. A type of a family that is not in the table counts against none that we know."""
    return [quota for quota in _QUOTAS if any(quota.types.match(name) for name in instance_types)]


def _value(row: Any) -> float | None:
    value = row.get("Value") if isinstance(row, Mapping) else None
    return float(value) if isinstance(value, int | float) else None
