"""What the simulated cloud sells: regions, zones, types, prices that move, pools that run dry."""

from __future__ import annotations

from bisect import bisect_right
from decimal import Decimal
from typing import TYPE_CHECKING

from spotd.core.offer import Market, Offer, OfferKey
from spotd.sim.timeline import HOUR, stamp

if TYPE_CHECKING:
    from datetime import datetime

    from spotd.sim.dice import Dice
    from spotd.sim.draws import Draws

PROVIDER = "sim"
_CENT = Decimal("0.0001")
_SLOT_S = 2 * HOUR


class Bazaar:
    """Prices and pools, fixed by the seed."""

    def __init__(self, dice: Dice, draws: Draws, faults_end_s: float) -> None:
        self._dice = dice
        self._draws = draws
        self._faults_end_s = faults_end_s
        self.regions = tuple(f"region-{n}" for n in range(1, draws.regions + 1))
        self.types = tuple(f"gpu-{n}" for n in range(1, draws.types + 1))
        self.zones = {region: tuple(f"{region}{'abc'[n]}" for n in range(draws.zones)) for region in self.regions}
        self._on_demand = {
            (region, kind): Decimal(str(dice.between("on-demand price", 2.0, 4.0))).quantize(_CENT) for region in self.regions for kind in self.types
        }
        self._series = {
            (zone, kind): self._prices(region, zone, kind) for region in self.regions for zone in self.zones[region] for kind in self.types
        }
        self.keys = tuple(
            OfferKey(PROVIDER, region, zone, kind, market)
            for region in self.regions
            for zone in self.zones[region]
            for kind in self.types
            for market in (Market.SPOT, Market.ON_DEMAND)
        )
        self._sold = frozenset(self.keys)
        self._dry: dict[tuple[OfferKey, int], bool] = {}

    def _prices(self, region: str, zone: str, kind: str) -> tuple[list[float], list[Decimal]]:
        """Times and the price from each on. Faults of prices end with the others."""
        name = f"price {zone} {kind}"
        stream = self._dice.stream(name)
        full = float(self._on_demand[region, kind])
        calm = Decimal(str(full * stream.uniform(0.25, 0.5))).quantize(_CENT)
        times, prices = [0.0], [calm]
        for moment in self._dice.times(f"{name} moves", self._draws.price_moves_per_day, self._faults_end_s):
            share = stream.uniform(1.0, 1.6) if stream.random() < self._draws.price_spikes else stream.uniform(0.2, 0.8)
            times.append(moment)
            prices.append(Decimal(str(full * share)).quantize(_CENT))
        times.append(self._faults_end_s)
        prices.append(calm)
        return times, prices

    def sells(self, key: OfferKey) -> bool:
        """Whether there is such an offer at all."""
        return key in self._sold

    def price(self, key: OfferKey, when_s: float) -> Decimal:
        """The price in force."""
        if key.market is Market.ON_DEMAND:
            return self._on_demand[key.region, key.instance_type]
        times, prices = self._series[key.zone, key.instance_type]
        return prices[bisect_right(times, when_s) - 1]

    def moves(self, key: OfferKey, from_s: float, to_s: float) -> list[tuple[float, Decimal]]:
        """When the price changed within a stretch, with the price from then on; the first entry is its beginning."""
        found = [(from_s, self.price(key, from_s))]
        if key.market is Market.SPOT:
            times, prices = self._series[key.zone, key.instance_type]
            found += [(t, p) for t, p in zip(times, prices, strict=True) if from_s < t < to_s]
        return found

    def sheet(self, region: str, when_s: float, seen_at: datetime) -> list[Offer]:
        """Every offer of a region, as the daemon would note it at its own time."""
        return [Offer(key, self.price(key, when_s), seen_at) for key in self.keys if key.region == region]

    def dry(self, key: OfferKey, when_s: float) -> bool:
        """Whether the pool is empty now. Pools run dry for two hours at a time; on-demand pools rarely."""
        if when_s >= self._faults_end_s:
            return False
        slot = int(when_s // _SLOT_S)
        found = self._dry.get((key, slot))
        if found is None:
            share = self._draws.dry_pools * (1.0 if key.market is Market.SPOT else 0.25)
            found = self._dry[key, slot] = self._dice.chance(f"dry {key}", share)
        return found

    def seen_at(self, when_s: float) -> datetime:
        """An instant as the cloud tells it."""
        return stamp(when_s)
