"""The ledger follows prices: when the price of a live instance's offer moves, a new interval begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotd.core.events import PriceMoved
from spotd.core.offer import Market

if TYPE_CHECKING:
    from spotd.core.plan import Snapshot
    from spotd.core.planner.findings import Findings


def follow_prices(snapshot: Snapshot, findings: Findings) -> None:
    """Spot only: the price of on-demand capacity is the one it was started at until a price list changes, which a later sweep shows as well."""
    for instance_id, interval in snapshot.world.intervals.items():
        instance = snapshot.world.instances.get(instance_id)
        if instance is None or not instance.live or instance.request.offer.market is not Market.SPOT:
            continue
        offer = snapshot.offers.get(instance.request.offer)
        # The first interval begins at the price its launch was decided upon, which a sweep may have overtaken before the machine ran.
        known_at = instance.requested_at if interval.number == 1 else interval.started_at
        if offer is None or offer.seen_at < known_at or offer.price_usd_per_hour == interval.price_usd_per_hour:
            continue
        # In force since it was seen, however long it took to learn that the machine runs.
        findings.decide(PriceMoved(max(offer.seen_at, interval.started_at), instance_id, offer.price_usd_per_hour))
