"""What AWS itself says about how long spot capacity will hold, as a prior for the reclaim rate: placement score and spot advisor.

Neither is a rate. The score (1 to 10) is about the chance of getting capacity now, and predicts interruptions better than the advisor's band
does (facts/placement.md, SpotLake); the band is a monthly share per type and region. No public figure relates either to hours, so they only
scale spotd's own prior, the score more than the band, and never by more than a factor of three: history of our own outweighs them within hours.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotd.core.errors import ProviderError, Throttled
from spotd.core.survival import PRIOR_MEAN_LIFE_HOURS
from spotd_aws.errors import reads
from spotd_aws.machines import pages

if TYPE_CHECKING:
    from spotd_aws.clients import Clients

#: Factor on the prior rate by score, from the highest: at least this score.
_BY_SCORE = ((8, 0.6), (5, 1.0), (3, 1.5), (0, 2.5))
#: Factor by the advisor's band: below 5 %, 10 %, 15 %, 20 %, and above.
_BY_BAND = (0.8, 0.9, 1.0, 1.15, 1.3)
_LEAST, _MOST = 1 / 3, 3.0

_SCORES_KEPT = timedelta(minutes=20)
#: Refused for the number of questions: no data until the day is over, which is not a score of 0 (facts/cloud-api.md §1.4).
_REFUSED_FOR = timedelta(days=1)
_BAND_KEPT = timedelta(hours=12)
_MOST_REGIONS = 10
_TIMEOUT_S = 20.0
_LIMIT = 64 << 20


def prior_hazard(score: int | None, band: int | None) -> float | None:
    """Reclaims per hour that the signals make likely; None where there is none."""
    if score is None and band is None:
        return None
    factor = 1.0
    if score is not None:
        factor *= next(f for least, f in _BY_SCORE if score >= least)
    if band is not None and 0 <= band < len(_BY_BAND):
        factor *= _BY_BAND[band]
    return min(max(factor, _LEAST), _MOST) / PRIOR_MEAN_LIFE_HOURS


class Scores:
    """Placement scores of pools of interchangeable types: always the same questions, because new ones are rationed."""

    def __init__(self, clients: Clients, pools: Sequence[Sequence[str]], now: Callable[[], datetime]) -> None:
        self._clients = clients
        self._pools = tuple(tuple(sorted(set(pool))) for pool in pools)
        self._now = now
        self._lock = threading.Lock()
        self._asked: dict[tuple[str, ...], datetime] = {}
        self._scores: dict[tuple[str, ...], Mapping[tuple[str, str], int]] = {}

    def ask(self, regions: Sequence[str]) -> None:
        """Bring the scores up to date. What is refused is not known, and asked again when that is worth it."""
        now = self._now()
        for pool in self._pools:
            with self._lock:
                due = self._asked.get(pool)
                if due is not None and now < due:
                    continue
                self._asked[pool] = now + _SCORES_KEPT
            try:
                found = self._pool(pool, regions)
            except ProviderError as error:
                found = {}
                if isinstance(error, Throttled) and error.retry_after >= _REFUSED_FOR:
                    with self._lock:
                        self._asked[pool] = now + _REFUSED_FOR
            with self._lock:
                self._scores[pool] = found

    def of(self, instance_type: str, region: str, zone_id: str) -> int | None:
        """The score of a pool that a type belongs to, in a zone. None: not asked, not answered, or not among the ten best."""
        with self._lock:
            known = [self._scores.get(pool, {}) for pool in self._pools if instance_type in pool]
        return max((scores[region, zone_id] for scores in known if (region, zone_id) in scores), default=None)

    def _pool(self, pool: tuple[str, ...], regions: Sequence[str]) -> Mapping[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        home = self._clients.home_region()
        ordered = sorted(regions)
        for begin in range(0, len(ordered), _MOST_REGIONS):
            asked = {
                "InstanceTypes": list(pool),
                "TargetCapacity": 1,
                "SingleAvailabilityZone": True,
                "RegionNames": ordered[begin : begin + _MOST_REGIONS],
            }
            with reads("asking for placement scores", home):
                for page in pages(self._clients.get("ec2", home).get_spot_placement_scores, asked):
                    for row in page["SpotPlacementScores"]:
                        if row.get("AvailabilityZoneId"):
                            found[str(row["Region"]), str(row["AvailabilityZoneId"])] = int(row["Score"])
        return found


class Advisor:
    """The spot advisor's file, by path or https address; what cannot be read is not known."""

    def __init__(self, source: str | None, now: Callable[[], datetime]) -> None:
        self._source = source
        self._now = now
        self._lock = threading.Lock()
        self._read_at: datetime | None = None
        self._bands: Mapping[tuple[str, str], int] = {}
        #: Why it is not known, for people.
        self.problem = ""

    def band(self, region: str, instance_type: str) -> int | None:
        """0 (interrupted least) to 4, for Linux."""
        if self._source is None:
            return None
        now = self._now()
        with self._lock:
            due = self._read_at is None or now - self._read_at >= _BAND_KEPT
            if due:
                self._read_at = now
                self._refresh(self._source)
            return self._bands.get((region, instance_type))

    def _refresh(self, source: str) -> None:
        try:
            self._bands = read_bands(json.loads(_content(source)))
            self.problem = ""
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            # The last good one is better than none.
            self.problem = f"spot_advisor: {source} cannot be read: {type(error).__name__}"


def read_bands(document: Any) -> Mapping[tuple[str, str], int]:
    """Bands by region and type (facts/cloud-api.md §1.5)."""
    return {
        (str(region), str(kind)): int(entry["r"])
        for region, systems in document["spot_advisor"].items()
        for kind, entry in (systems.get("Linux") or {}).items()
    }


def _content(source: str) -> bytes:
    if not source.startswith("https://"):
        return Path(source).read_bytes()
    import urllib.request

    with urllib.request.urlopen(source, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - https only, as configured by ops
        content: bytes = answer.read(_LIMIT)
        return content
