"""What AWS's own signals say of how often a spot instance is reclaimed, as reclaims per hour.

The facts give no number for either signal. Of the placement score they say that it predicts interruptions better than the advisor's band does
(SpotLake, facts/placement.md §2), and AWS says that it is about getting capacity, not about keeping it (facts/cloud-api.md §1.4). The advisor's
band is the share of a type's instances interrupted in a month, for a whole region, and says nothing of how long they ran. So neither is taken for
a rate: each only leans our own prior (one reclaim per 3.2 h, facts/placement.md §5.3), by a factor of two at most. That is less than the spread
between zones in the recorded markets, and a few hours of own history undo it.
"""

from __future__ import annotations

from spotd.core.survival import PRIOR_MEAN_LIFE_HOURS

#: Factors on our own prior. By score from this one on, best first; and by the upper end of the advisor's band, in per cent, up to this one.
_BY_SCORE = ((9, 0.5), (7, 0.75), (5, 1.0), (3, 1.5), (1, 2.0))
_BY_PERCENT = ((5, 0.6), (11, 0.8), (16, 1.0), (22, 1.25), (100, 1.5))
_OWN_PER_HOUR = 1.0 / PRIOR_MEAN_LIFE_HOURS


def prior_per_hour(score: int | None, percent: int | None) -> float | None:
    """Reclaims per hour by the zone's placement score (1 to 10), else by the advisor's band (its upper end); None where neither is known."""
    if score is not None:
        return _OWN_PER_HOUR * next((factor for least, factor in _BY_SCORE if score >= least), _BY_SCORE[-1][1])
    if percent is not None:
        return _OWN_PER_HOUR * next((factor for most, factor in _BY_PERCENT if percent <= most), _BY_PERCENT[-1][1])
    return None
