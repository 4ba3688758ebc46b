"""A recorded spot market: which zone had capacity when, and at what price.

The file format (JSON, gzipped if its name ends with `.gz`):

    {"format": 1, "name": "v100-2023-02", "gap_seconds": 195, "samples": 13290, "types": ["p3.2xlarge"],
     "on_demand": {"us-west-2": {"p3.2xlarge": "3.06"}},
     "zones": {"us-west-2a": {"region": "us-west-2", "available": [[1, 120], [0, 3]],
                              "price": {"p3.2xlarge": [["0.918", 13290]]}}}}

A series is a run-length encoding (`[[value, how many samples], …]`), a plain list, or one value for all samples. Prices
are USD per hour, as text. Sample `i` holds for the `gap_seconds` that begin at `i * gap_seconds`. A replay that comes
to the end begins again at sample 0.
"""

from __future__ import annotations

import gzip
import itertools
import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

#: Where the recorded markets lie that ship with this package.
DATA = Path(__file__).parent / "data"


class MarketError(ValueError):
    """A market file that is not what the format says: names the file and the place in it."""


@dataclass(frozen=True, slots=True)
class Series(Generic[T]):
    """Values over samples, kept as runs: `starts[i]` is the first sample that has `values[i]`."""

    starts: tuple[int, ...]
    values: tuple[T, ...]

    def at(self, sample: int) -> T:
        """The value in force at this sample."""
        return self.values[bisect_right(self.starts, sample) - 1]

    def runs(self, samples: int) -> list[tuple[T, int]]:
        """Each value with how many samples it lasts."""
        ends = (*self.starts[1:], samples)
        return [(value, end - start) for value, start, end in zip(self.values, self.starts, ends, strict=True)]


@dataclass(frozen=True, slots=True)
class Zone:
    """One zone's record."""

    name: str
    region: str
    available: Series[bool]
    #: By instance type, USD per hour.
    price: Mapping[str, Series[Decimal]]


@dataclass(frozen=True, slots=True)
class Market:
    """Everything that a market file tells."""

    name: str
    gap_seconds: float
    samples: int
    types: tuple[str, ...]
    zones: Mapping[str, Zone]
    #: By region and instance type, USD per hour.
    on_demand: Mapping[str, Mapping[str, Decimal]]

    @property
    def regions(self) -> tuple[str, ...]:
        """Every region that has a zone, sorted."""
        return tuple(sorted({zone.region for zone in self.zones.values()}))

    @property
    def length_seconds(self) -> float:
        """How long the recording is."""
        return self.samples * self.gap_seconds

    def sample(self, trace_seconds: float) -> int:
        """The sample in force this long after the recording's begin; beyond its end it begins again."""
        return int(trace_seconds // self.gap_seconds) % self.samples

    def up(self, zone: str, trace_seconds: float) -> bool:
        """Whether the zone had spot capacity then."""
        return self.zones[zone].available.at(self.sample(trace_seconds))

    def spot_price(self, zone: str, instance_type: str, trace_seconds: float) -> Decimal:
        """The spot price then, USD per hour."""
        return self.zones[zone].price[instance_type].at(self.sample(trace_seconds))


def encode(values: list[T]) -> list[list[T | int]]:
    """Run-length encoding of a list."""
    return [[value, sum(1 for _ in run)] for value, run in itertools.groupby(values)]


def shipped(name: str) -> Path | None:
    """The file of the market of this name that comes with the package, if there is one."""
    path = DATA / f"{name}.json.gz"
    return path if "/" not in name and path.is_file() else None


def load(name_or_path: str) -> Market:
    """The shipped market of this name, or else the one in this file."""
    path = shipped(name_or_path) or Path(name_or_path).expanduser()
    try:
        raw = path.read_bytes()
        document = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    except FileNotFoundError as error:
        known = ", ".join(sorted(p.name.removesuffix(".json.gz") for p in DATA.glob("*.json.gz")))
        raise MarketError(f"{name_or_path}: no market of this name and no such file (shipped: {known})") from error
    except (OSError, EOFError, ValueError) as error:
        raise MarketError(f"{path}: not a readable JSON market file: {error}") from error
    return parse(document, str(path))


def parse(document: object, where: str) -> Market:
    """The market in a parsed JSON document; `where` names it in errors."""
    reader = _Reader(where)
    top = reader.mapping(document, "the document")
    if top.get("format", 1) != 1:
        raise MarketError(f"{where}: format {top['format']!r} is not known here, only 1")
    zones = reader.mapping(top.get("zones"), "zones")
    samples = top.get("samples") or _longest(zones)
    if not isinstance(samples, int) or samples < 1:
        raise MarketError(f"{where}: samples: a positive number is wanted, not {samples!r}")
    gap = top.get("gap_seconds")
    if not isinstance(gap, int | float) or gap <= 0:
        raise MarketError(f"{where}: gap_seconds: a positive number is wanted, not {gap!r}")
    types = top.get("types")
    if not isinstance(types, list) or not types:
        raise MarketError(f"{where}: types: a list of instance types is wanted, not {types!r}")
    on_demand = {
        region: {t: reader.decimal(p, f"on_demand.{region}.{t}") for t, p in reader.mapping(prices, region).items()}
        for region, prices in reader.mapping(top.get("on_demand", {}), "on_demand").items()
    }
    return Market(
        name=str(top.get("name", Path(where).name)),
        gap_seconds=float(gap),
        samples=samples,
        types=tuple(map(str, types)),
        zones={name: reader.zone(name, body, types, samples) for name, body in zones.items()},
        on_demand=on_demand,
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads parts of a document and says where it stumbled."""

    where: str

    def mapping(self, value: object, place: str) -> Mapping[str, object]:
        if not isinstance(value, Mapping):
            raise MarketError(f"{self.where}: {place}: a JSON object is wanted, not {type(value).__name__}")
        return value

    def decimal(self, value: object, place: str) -> Decimal:
        try:
            price = Decimal(str(value))
        except InvalidOperation as error:
            raise MarketError(f"{self.where}: {place}: {value!r} is not a price") from error
        if not price.is_finite() or price < 0:
            raise MarketError(f"{self.where}: {place}: {value!r} is not a price")
        return price

    def flag(self, value: object, place: str) -> bool:
        if value not in {0, 1}:
            raise MarketError(f"{self.where}: {place}: 0 or 1 is wanted, not {value!r}")
        return bool(value)

    def zone(self, name: str, body: object, types: list[str], samples: int) -> Zone:
        fields = self.mapping(body, f"zones.{name}")
        prices = self.mapping(fields.get("price"), f"zones.{name}.price")
        missing = [t for t in types if t not in prices]
        if missing or not isinstance(fields.get("region"), str):
            raise MarketError(f"{self.where}: zones.{name}: lacks {'its region' if not missing else f'prices of {missing}'}")
        return Zone(
            name=name,
            region=str(fields["region"]),
            available=self.series(fields.get("available"), samples, f"zones.{name}.available", self.flag),
            price={t: self.series(prices[t], samples, f"zones.{name}.price.{t}", self.decimal) for t in types},
        )

    def series(self, raw: object, samples: int, place: str, value: Callable[[object, str], T]) -> Series[T]:
        runs = _runs(raw, samples)
        if not runs or any(n < 1 for _, n in runs):
            raise MarketError(f"{self.where}: {place}: neither a value, nor a list, nor runs of [value, samples]")
        if (total := sum(n for _, n in runs)) != samples:
            raise MarketError(f"{self.where}: {place}: {total} samples where the market has {samples}")
        starts = itertools.accumulate((n for _, n in runs[:-1]), initial=0)
        return Series(tuple(starts), tuple(value(v, place) for v, _ in runs))


def _runs(raw: object, samples: int) -> list[tuple[object, int]]:
    """Any of the three ways to write a series, as runs."""
    if not isinstance(raw, list):
        return [] if raw is None else [(raw, samples)]
    if all(isinstance(item, list) and len(item) == 2 for item in raw):
        return [(value, count if isinstance(count, int) else 0) for value, count in raw]
    return [(value, sum(1 for _ in run)) for value, run in itertools.groupby(raw)]


def _longest(zones: Mapping[str, object]) -> int:
    """How many samples the series of a file have that does not say it."""
    lengths = [1]
    for zone in zones.values():
        raw = zone.get("available") if isinstance(zone, Mapping) else None
        lengths.append(sum(n for _, n in _runs(raw, 1)))
    return max(lengths)
