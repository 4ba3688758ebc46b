"""What we believe about an offer's lifetime: our own history, shrunk to a prior.

Lifetimes are heavy-tailed: in the recorded V100 market 46 % of runs are shorter than half an hour while the mean is 3.2 h
(facts/placement.md §5.3), and zones of one region are only weakly coupled. So one early death says little against a long history, and much
where there is none; the prior weighs as much as `PRIOR_HOURS` of observation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from spotd.core.offer import Market, OfferKey

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The prior: one reclaim per this many hours on spot (mean of the recorded V100 runs, facts/placement.md §5.3), worth this much observation.
PRIOR_MEAN_LIFE_HOURS = 3.2
PRIOR_HOURS = 3.2
#: History loses half its weight in this time: capacity of last month says little about today.
HALF_LIFE = timedelta(days=3)
#: Overhead of one reclaim in hours: provision, set-up, reload and work lost (d of facts/placement.md §1, its usual value).
CHANGEOVER_HOURS = 0.2


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long instances of one offer lived so far, weighted by age as of `as_of`."""

    offer: OfferKey
    hours: float
    reclaims: float
    as_of: datetime

    def later(self, now: datetime) -> Lifetime:
        """The same history with its weight decayed to `now`."""
        age = max(now - self.as_of, timedelta(0))
        weight = 0.5 ** (age / HALF_LIFE)
        return Lifetime(self.offer, self.hours * weight, self.reclaims * weight, max(now, self.as_of))

    def plus(self, hours: float, reclaims: int, now: datetime) -> Lifetime:
        """After one more instance lived `hours` and was reclaimed (1) or ended otherwise (0)."""
        past = self.later(now)
        return Lifetime(self.offer, past.hours + max(hours, 0.0), past.reclaims + reclaims, past.as_of)


def hazard_per_hour(offer: OfferKey, lifetimes: Mapping[OfferKey, Lifetime], now: datetime, prior_per_hour: float | None = None) -> float:
    """Expected reclaims per hour of one instance of this offer. On-demand capacity is not reclaimed: 0.

    `prior_per_hour` is what the offer's provider says of it, in place of our own prior mean; it weighs no more than that.
    """
    if offer.market is Market.ON_DEMAND:
        return 0.0
    seen = lifetimes.get(offer)
    hours, reclaims = (0.0, 0.0) if seen is None else ((past := seen.later(now)).hours, past.reclaims)
    # A rate that is none is a provider's slip, and must not decide where every job goes.
    known = prior_per_hour is not None and math.isfinite(prior_per_hour) and prior_per_hour >= 0
    prior = prior_per_hour if known and prior_per_hour is not None else 1.0 / PRIOR_MEAN_LIFE_HOURS
    return (reclaims + PRIOR_HOURS * prior) / (hours + PRIOR_HOURS)


def overhead(hazard: float) -> float:
    """Factor on the price for what reclaims cost in time: billed hours per useful hour at this hazard."""
    return 1.0 + hazard * CHANGEOVER_HOURS
