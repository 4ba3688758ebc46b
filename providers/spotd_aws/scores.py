"""Spot placement scores: how likely a zone is to give capacity, from 1 to 10.

AWS caps how many *different* questions an account may put in a day, and does not say at how many (facts/cloud-api.md §1.4). So the questions are few,
always the same for the same regions, and each is put for one unit; a refusal is "no data" for a day, never a score of 0.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from spotd.core.errors import InvalidRequest, NotAuthorized, ProviderError, Throttled
from spotd_aws.errors import reads
from spotd_aws.keeping import Kept, Now, Terms
from spotd_aws.paging import batches, pages, rows

if TYPE_CHECKING:
    from spotd_aws.clients import Clients

_TERMS = Terms(fresh=timedelta(minutes=20), retry=timedelta(minutes=20), good=timedelta(hours=1))
#: An answer holds the ten best zones; no two regions have more than ten between them.
_REGIONS = 2
_PAGE = 1000
_WORST, _BEST = 1, 10
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Question:
    """One of the fixed set."""

    instance_types: tuple[str, ...]
    regions: tuple[str, ...]


def questions(pools: Iterable[Sequence[str]], regions: Iterable[str]) -> Iterator[Question]:
    """All there are for these regions."""
    places = list(batches(sorted(set(regions)), _REGIONS))
    for pool in pools:
        for part in places:
            yield Question(tuple(sorted(set(pool))), tuple(part))


class Scores:
    """The scores of zones for pools of types."""

    def __init__(self, clients: Clients, now: Now) -> None:
        self._clients = clients
        self._kept: Kept[Question, Mapping[tuple[str, str], int]] = Kept(now, _TERMS)

    def due(self, question: Question) -> bool:
        """Whether it is time to ask."""
        return self._kept.due(question)

    def refresh(self, question: Question, stop: threading.Event) -> None:
        """Ask, if it is time. What goes wrong is kept for `problem`."""
        self._kept.refresh(question, lambda: self._ask(question, stop))

    def _ask(self, question: Question, stop: threading.Event) -> Mapping[tuple[str, str], int]:
        # The answer is the same wherever it is asked for, so a region is asked about itself: none depends on another being well.
        region = question.regions[0]
        try:
            with reads("asking for placement scores", region):
                ask = self._clients.get("ec2", region).get_spot_placement_scores
                found: list[Mapping[str, Any]] = []
                for page in pages(
                    ask,
                    stop,
                    InstanceTypes=list(question.instance_types),
                    TargetCapacity=1,
                    SingleAvailabilityZone=True,
                    RegionNames=list(question.regions),
                    MaxResults=_PAGE,
                ):
                    found += rows(page, "SpotPlacementScores")
        except (NotAuthorized, InvalidRequest) as error:
            # It would be refused again. A day, as for AWS's own limits (`Throttled` of a day, from the table of errors).
            raise Throttled(error.message, error.code, _DAY) from error
        return by_zone(found)

    def of(self, asked: Iterable[Question], instance_type: str, region: str, zone_id: str) -> int | None:
        """The score of a type in a zone, the lowest where it is in several pools; None where nobody knows."""
        found = [
            known.value[region, zone_id]
            for question in asked
            if instance_type in question.instance_types and region in question.regions
            if (known := self._kept.known(question)) is not None and (region, zone_id) in known.value
        ]
        return min(found, default=None)

    def problem(self, question: Question) -> ProviderError | None:
        """Why there is no answer, or no newer one."""
        return self._kept.error(question)


def by_zone(found: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """Scores by region and zone id. What is no score from 1 to 10 is left out."""
    return {
        (str(row["Region"]), str(row["AvailabilityZoneId"])): row["Score"]
        for row in found
        if row.get("Region") and row.get("AvailabilityZoneId") and isinstance(row.get("Score"), int) and _WORST <= row["Score"] <= _BEST
    }
