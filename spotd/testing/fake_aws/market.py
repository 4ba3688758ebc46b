"""Prices that change, pools that run dry, quotas: what decides whether a launch goes through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from spotd.core.offer import Market
from spotd.testing.fake_aws.catalogue import Catalogue, Zone, digest

#: How far back the price series reach.
_PAST = timedelta(days=40)
_MICRO = Decimal("0.000001")


@dataclass(frozen=True, slots=True, order=True)
class Pool:
    """What has capacity of its own."""

    region: str
    zone: str
    instance_type: str
    market: Market


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit of vCPUs in one region; `default` is what a new account has (facts/cloud-api.md §1.7)."""

    code: str
    name: str
    market: Market
    families: tuple[str, ...]
    default: int


QUOTAS = (
    Quota("L-3819A6DF", "All G and VT Spot Instance Requests", Market.SPOT, ("g", "vt"), 0),
    Quota("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", Market.SPOT, ("p2", "p3", "p4"), 0),
    Quota("L-C4BD4855", "All P5 Spot Instance Requests", Market.SPOT, ("p5",), 0),
    Quota("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", Market.SPOT, tuple("acdhimrtz"), 5),
    Quota("L-DB2E81BA", "Running On-Demand G and VT instances", Market.ON_DEMAND, ("g", "vt"), 0),
    Quota("L-417A185B", "Running On-Demand P instances", Market.ON_DEMAND, ("p",), 0),
    Quota("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", Market.ON_DEMAND, tuple("acdhimrtz"), 5),
)
#: What the fake's account was granted of each.
_GRANTED = 4096


def quota_of(instance_type: str, market: Market) -> Quota | None:
    """The limit that a type counts against: that of the longest family name it begins with."""
    fitting = [(len(family), quota) for quota in QUOTAS if quota.market is market for family in quota.families if _is_of(instance_type, family)]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def _is_of(instance_type: str, family: str) -> bool:
    """Whether g5.xlarge is of the family g, p4d.24xlarge of p4; but inf1.xlarge is not of i."""
    rest = instance_type.removeprefix(family)
    return rest != instance_type and (family[-1].isdigit() or rest[:1].isdigit())


class SpotMarket:
    """Price series of every (zone, type), and the stock of every pool."""

    def __init__(self, catalogue: Catalogue, now: datetime) -> None:
        self._catalogue = catalogue
        self._series: dict[tuple[str, str], list[tuple[datetime, Decimal]]] = {}
        self._stock: dict[Pool, int] = {}
        self._limits: dict[tuple[str, str], int | None] = {}
        for region in catalogue.regions:
            for zone in catalogue.zones(region, local=True):
                for kind in catalogue.types.values():
                    if (zone.name, kind.name) in catalogue.offered:
                        self.open(zone, kind.name, now)

    def open(self, zone: Zone, instance_type: str, now: datetime, usd: Decimal | None = None) -> None:
        """Give a pool prices: a past of a few changes, the last of them hours or days ago (facts/cloud-api.md §0.4)."""
        base = usd if usd is not None else self._usual(zone, instance_type)
        dice = digest(zone.id, instance_type)
        changes = ((_PAST, Decimal("1.15")), (timedelta(days=9), Decimal("0.95")), (timedelta(hours=1 + dice % 60, minutes=dice % 59), Decimal(1)))
        self._series[zone.name, instance_type] = [(now.replace(microsecond=0) - ago, (base * factor).quantize(_MICRO)) for ago, factor in changes]

    def _usual(self, zone: Zone, instance_type: str) -> Decimal:
        on_demand = self._catalogue.on_demand[zone.region, instance_type]
        lean = Decimal(90 + digest("lean", zone.id, instance_type) % 21) / 100
        return (on_demand * self._catalogue.types[instance_type].spot_share * lean).quantize(Decimal("0.0001"))

    def set(self, zone: str, instance_type: str, usd: Decimal, at: datetime) -> None:
        """The price changes at this instant."""
        series = self._series.setdefault((zone, instance_type), [])
        series.append((at, usd))
        series.sort()

    def price(self, zone: str, instance_type: str, at: datetime) -> Decimal | None:
        """The price in force then; None where it is not sold on the spot market."""
        past = [usd for since, usd in self._series.get((zone, instance_type), ()) if since <= at]
        return past[-1] if past else None

    def changes(self, zone: str, instance_type: str, begin: datetime, end: datetime) -> Iterator[tuple[datetime, Decimal]]:
        """Every change within a window, and the last one before it."""
        before = None
        for since, usd in self._series.get((zone, instance_type), ()):
            if since <= begin:
                before = (since, usd)
            elif since <= end:
                yield since, usd
        if before is not None:
            yield before

    def close(self, zone: str, instance_type: str) -> None:
        """No spot market there any more: no prices."""
        self._series.pop((zone, instance_type), None)

    def has(self, pool: Pool) -> bool:
        """Whether there is room for one more."""
        return self._stock.get(pool, 1) > 0

    def stock(self, pool: Pool, left: int | None) -> None:
        """So many more can be launched; None for no end of them."""
        if left is None:
            self._stock.pop(pool, None)
        else:
            self._stock[pool] = left

    def take(self, pool: Pool) -> None:
        """One was launched."""
        if pool in self._stock:
            self._stock[pool] -= 1

    def limit(self, region: str, quota: Quota) -> int:
        """How many vCPUs may run against a quota."""
        applied = self.applied(region, quota)
        return quota.default if applied is None else applied

    def applied(self, region: str, quota: Quota) -> int | None:
        """The limit that the account was given; None where it has AWS's default and the service says there is none."""
        return self._limits.get((region, quota.code), _GRANTED)

    def grant(self, region: str, code: str, vcpus: int | None) -> None:
        """Set a limit; None for AWS's default."""
        if all(quota.code != code for quota in QUOTAS):
            raise ValueError(f"There is no quota {code!r}; the fake knows {', '.join(quota.code for quota in QUOTAS)}.")
        self._limits[region, code] = vcpus
