"""Looks for places in a recording where a demonstration shows everything: `python -m spotd_local.windows`.

A job is followed through the recording as a policy of cheapest-first would place it: the cheapest spot zone (equal
prices: in the order of regions, then by name); zones that reclaimed, or had nothing when they were asked, are not tried
again; regions that reclaimed come last; on-demand after the third reclaim; back to spot ten seconds later. A placement
may happen at any moment of an interval: a window counts only if the choice and the next reclaim are the same
throughout, whichever zones were asked in vain before. Its margin is how long that interval may be.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from spotd_local.market import Market, Series, load

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

REGIONS = ("us-west-2", "us-east-2", "us-east-1")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a demonstration needs. Real seconds."""

    reclaims: int = 3
    #: How long after the job's first launch, or after a notice, a placement happens: at the earliest, nominally, at last.
    earliest: float = 0.0
    nominal: float = 0.8
    latest: float = 1.6
    shortest_stint: float = 5.5
    longest_stint: float = 22.0
    #: On-demand for so long after the last notice, with the same uncertainty; then spot must hold.
    fallback: float = 10.0
    last_stint: float = 20.0
    within: float = 50.0


@dataclass(frozen=True, slots=True)
class Stint:
    """One placement, in real seconds since the job's first launch: nominal begin, and the notice (None: not seen)."""

    zone: str
    begin: float
    notice: float | None


@dataclass(frozen=True, slots=True)
class Window:
    """One place in the recording, at one speed."""

    start_s: float
    speed: int
    stints: tuple[Stint, ...]
    #: How late after the launch or the notice a placement may happen without changing anything (real seconds, at most 5).
    margin: float = 0.0
    #: Whether nothing changes either where only the region of the latest reclaim comes last.
    both_readings: bool = False

    @property
    def worth(self) -> float:
        """What makes one window better than another: margin, no short stint, no long one, an early end."""
        lengths = [(s.notice or s.begin) - s.begin for s in self.stints[:-1]]
        late = (self.stints[-2].notice or 0.0) - 40.0
        return (
            min(self.margin, 3.0)
            + min(*lengths, 7.5) / 2
            - 0.15 * max(max(lengths) - 14.0, 0.0)
            - 0.1 * max(late, 0.0)
            + (1.0 if self.both_readings else 0.0)
        )


@dataclass(frozen=True, slots=True)
class Trace:
    """A recording sample by sample: who is up, when a zone goes down next, and who is cheapest."""

    market: Market
    up: Mapping[str, Sequence[bool]]
    down_at: Mapping[str, Sequence[int]]
    #: The zones from the cheapest on.
    order: Sequence[Sequence[str]]

    @classmethod
    def of(cls, market: Market) -> Trace:
        """The recording unrolled."""
        kind, n = market.types[0], market.samples
        up = {name: _unroll(zone.available, n) for name, zone in market.zones.items()}
        price = {name: _unroll(zone.price[kind], n) for name, zone in market.zones.items()}
        down_at = {zone: _next_down(series) for zone, series in up.items()}
        rank = {z.name: (REGIONS.index(z.region), z.name) for z in market.zones.values()}
        order = [[zone for *_, zone in sorted((price[z][i], rank[z], z) for z in up)] for i in range(n)]
        return cls(market, up, down_at, order)


def _next_down(up: Sequence[bool]) -> list[int]:
    """For every sample, the first from it on in which the zone is down; the number of samples when there is none."""
    found = [len(up)]
    for i in reversed(range(len(up))):
        found.append(found[-1] if up[i] else i)
    return found[:0:-1]


def _unroll(series: Series[T], samples: int) -> list[T]:
    return [value for value, count in series.runs(samples) for _ in range(count)]


def choose(trace: Trace, sample: int, cooled: Collection[str], reclaimed: Sequence[str], *, all_regions: bool) -> tuple[str | None, set[str]]:
    """The zone the rule takes in this sample, and those asked in vain before. `all_regions`: not only the latest that reclaimed comes last."""
    zones = trace.market.zones
    last = {zones[z].region for z in (reclaimed if all_regions else reclaimed[-1:])}
    refused: set[str] = set()
    for zone in sorted((z for z in trace.order[sample] if z not in cooled), key=lambda z: zones[z].region in last):
        if trace.up[zone][sample]:
            return zone, refused
        refused.add(zone)
    return None, refused


@dataclass(slots=True)
class _Memory:
    """Zones that are not tried: whenever the placements happened, or depending on when they did."""

    surely: set[str] = field(default_factory=set)
    maybe: set[str] = field(default_factory=set)

    def place(self, trace: Trace, samples: range, reclaimed: Sequence[str], *, all_regions: bool) -> str | None:
        """The one zone that is taken in all these samples; None when there is none or more than one."""
        chosen: set[str | None] = set()
        refusals: list[set[str]] = []
        self.surely |= set(reclaimed)
        for sample in samples:
            for cooled in (self.surely, self.surely | self.maybe):
                zone, refused = choose(trace, sample, cooled, reclaimed, all_regions=all_regions)
                chosen.add(zone)
                refusals.append(refused)
        self.surely |= set.intersection(*refusals)
        self.maybe |= set.union(*refusals)
        return chosen.pop() if len(chosen) == 1 else None


def follow(trace: Trace, start: int, speed: int, wanted: Wanted, *, all_regions: bool = True) -> Window | None:
    """The job's way from this sample on, if it is a demonstration whenever in their intervals the placements happen."""
    gap = trace.market.gap_seconds / speed
    stints: list[Stint] = []
    memory = _Memory()
    after = 0.0
    while len(stints) <= wanted.reclaims:
        returning = len(stints) == wanted.reclaims
        base = after + (wanted.fallback if returning else 0.0)
        first, last = (start + int((base + d) / gap) for d in (wanted.earliest, wanted.latest))
        if last >= trace.market.samples:
            return None
        zone = memory.place(trace, range(first, last + 1), [s.zone for s in stints], all_regions=all_regions)
        if zone is None:
            return None
        down = trace.down_at[zone][first]
        begin, notice = base + wanted.nominal, (down - start) * gap
        stints.append(Stint(zone, begin, None if down == trace.market.samples else notice))
        shortest, longest = (wanted.last_stint, math.inf) if returning else (wanted.shortest_stint, wanted.longest_stint)
        if down < last or not shortest <= notice - begin <= longest or (not returning and notice > wanted.within):
            return None
        after = notice
    regions = {trace.market.zones[s.zone].region for s in stints[: wanted.reclaims]}
    return Window(start * trace.market.gap_seconds, speed, tuple(stints)) if len(regions) == len(REGIONS) else None


def search(market: Market, speeds: Sequence[int], wanted: Wanted) -> Iterator[Window]:
    """Every window, with its margin."""
    trace = Trace.of(market)
    for speed in speeds:
        for start in range(market.samples):
            window = follow(trace, start, speed, wanted)
            if window is None:
                continue
            margin, step = wanted.latest, 0.2
            while margin + step <= 5 and follow(trace, start, speed, replace(wanted, latest=margin + step)):
                margin += step
            other = follow(trace, start, speed, wanted, all_regions=False)
            yield replace(window, margin=margin, both_readings=other is not None and other.stints == window.stints)


def main() -> None:
    """Print the best windows: the most robust first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--market", default="v100-2023-02")
    parser.add_argument("--speeds", type=int, nargs=3, default=(300, 1500, 50), metavar=("FROM", "TO", "STEP"))
    parser.add_argument("--top", type=int, default=10)
    arguments = parser.parse_args()
    low, high, step = arguments.speeds
    found = sorted(search(load(arguments.market), range(low, high + 1, step), Wanted()), key=lambda w: -w.worth)
    lines = [f"{len(found)} windows"]
    for window in found[: arguments.top]:
        way = ", ".join(f"{s.zone} {s.begin:.1f}-{'…' if s.notice is None else f'{s.notice:.1f}'}" for s in window.stints)
        lines.append(f"start={window.start_s:.0f}s k={window.speed} margin={window.margin:.1f}s both_readings={window.both_readings}: {way}")
    print("\n".join(lines))  # noqa: T201 - this is a command


if __name__ == "__main__":
    main()
