"""How long what failed is left alone: at the right scope, and longer each time.

A fixed short block makes a loop of the same failing pool (facts/known-faults.md A.40, A.36), a ban without an end keeps jobs off spot for
good (A.37): so each failure in a row doubles the time up to a cap, and a quiet day forgets them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, assert_never

from spotd.core.backoff import doubled
from spotd.core.errors import ErrorKind, Scope
from spotd.core.world import ANY, Cooldown, CooldownKey

if TYPE_CHECKING:
    from spotd.core.offer import OfferKey

#: An empty pool is worth asking again after some three minutes (what Karpenter uses, facts/reclaim.md §1.10).
_NO_CAPACITY = (timedelta(minutes=3), timedelta(hours=1))
_PRICE = (timedelta(minutes=5), timedelta(hours=1))
_QUOTA = (timedelta(minutes=30), timedelta(hours=6))
#: After a reclaim the pool stays short for a while: residual outage after one hour down is 3.5 h in the recorded market (facts/placement.md §5.3).
_RECLAIM = (timedelta(minutes=15), timedelta(hours=6))
_FORGET_AFTER = timedelta(days=1)


def key_for(offer: OfferKey, scope: Scope) -> CooldownKey:
    """The cooldown that a failure of this scope on this offer starts. Spot and on-demand never cool each other (known-faults A.48)."""
    match scope:
        case Scope.OFFER:
            return CooldownKey(*offer.parts()[:4], offer.market)
        case Scope.ZONE:
            return CooldownKey(offer.provider, offer.region, offer.zone, ANY, offer.market)
        case Scope.REGION:
            return CooldownKey(offer.provider, offer.region, ANY, ANY, offer.market)
        case Scope.PROVIDER:
            return CooldownKey(offer.provider, ANY, ANY, ANY, offer.market)
    assert_never(scope)


def _bounds(cause: ErrorKind | None) -> tuple[timedelta, timedelta]:
    match cause:
        case None:
            return _RECLAIM
        case ErrorKind.QUOTA_EXCEEDED | ErrorKind.MISCONFIGURED:
            # Both take a person to mend.
            return _QUOTA
        case ErrorKind.PRICE_TOO_HIGH:
            return _PRICE
        case _:
            return _NO_CAPACITY


def after_failure(past: Cooldown | None, key: CooldownKey, cause: ErrorKind | None, now: datetime) -> Cooldown:
    """The cooldown after one more failure; `cause` None means a reclaim."""
    first, longest = _bounds(cause)
    failures = 1 if past is None or now - past.failed_at > _FORGET_AFTER else past.failures + 1
    until = now + doubled(first, failures - 1, longest)
    if past is not None and past.until > until:
        until = past.until
    return Cooldown(key, until, failures, cause, now)


@dataclass(frozen=True, slots=True)
class Cooling:
    """The cooldowns in force at one instant, made once for a plan that asks about thousands of offers."""

    _in_force: Mapping[tuple[str, ...], Cooldown]

    @classmethod
    def at(cls, cooldowns: Mapping[CooldownKey, Cooldown], now: datetime) -> Cooling:
        """Those that have not ended."""
        return cls(
            {(k.provider, k.market.value, k.region, k.zone, k.instance_type): cooldown for k, cooldown in cooldowns.items() if cooldown.until > now}
        )

    def of(self, offer: OfferKey) -> Cooldown | None:
        """The cooldown that keeps this offer from being tried (the longest of those that cover it), if any."""
        if not self._in_force:
            return None
        provider, region, zone, kind, market = offer.provider, offer.region, offer.zone, offer.instance_type, offer.market.value
        found = [
            cooldown
            for scope in ((region, zone, kind), (region, zone, ANY), (region, ANY, ANY), (ANY, ANY, ANY))
            if (cooldown := self._in_force.get((provider, market, *scope))) is not None
        ]
        return max(found, key=lambda c: c.until) if found else None
