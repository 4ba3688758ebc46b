"""Where in its recording the market stands: one file that all of a local cloud agree on.

`ROOT/market.json` is written once, at the first launch (until then the market stands still at its start), so a daemon
that restarts and the machines that outlive it all see the same market. Its clock is the wall clock: instances live in
several processes.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from spotd_local import market as markets
from spotd_local.record import RecordError, read_json, write_atomic

if TYPE_CHECKING:
    from decimal import Decimal
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Replay:
    """A market being replayed. `epoch` is the wall time of the replay's begin; None: not begun."""

    #: Name of a shipped market, or the absolute path of a market file.
    market: str
    #: k: seconds of the recording per real second.
    speed: int
    start_s: float
    epoch: float | None = None

    def trace_seconds(self, now: float) -> float:
        """How far into the recording the market stands. Never before its start, even if the clock is stepped back."""
        return self.start_s + (0.0 if self.epoch is None else max(now - self.epoch, 0.0) * self.speed)


@dataclass(frozen=True, slots=True)
class LiveMarket:
    """A recording and its replay together: the market now."""

    recording: markets.Market
    replay: Replay

    def up(self, zone: str, now: float) -> bool:
        """Whether there is spot capacity in this zone."""
        return self.recording.up(zone, self.replay.trace_seconds(now))

    def spot_price(self, zone: str, instance_type: str, now: float) -> Decimal:
        """The spot price there, USD per hour."""
        return self.recording.spot_price(zone, instance_type, self.replay.trace_seconds(now))


def find(root: Path) -> Replay | None:
    """The replay of this local cloud, if it has begun. RecordError when its file is damaged."""
    path = root / "market.json"
    if not path.exists():
        return None
    try:
        return Replay(**read_json(path))
    except TypeError as error:
        raise RecordError(f"{path}: not a market's position: {error}") from error


def begin(root: Path, replay: Replay, now: float) -> Replay:
    """Begin the replay, unless it has begun; either way, the one in force."""
    document = json.dumps(asdict(Replay(replay.market, replay.speed, replay.start_s, now)))
    with contextlib.suppress(FileExistsError):
        write_atomic(root / "market.json", document, replace=False)
    begun = find(root)
    if begun is None:
        raise RecordError(f"{root / 'market.json'}: vanished")
    return begun


def live(root: Path) -> LiveMarket:
    """The market of this local cloud, as its machines see it."""
    replay = find(root)
    if replay is None:
        raise RecordError(f"{root / 'market.json'}: missing")
    return LiveMarket(markets.load(replay.market), replay)
