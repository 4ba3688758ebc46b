"""What the cloud itself does to its instances: for tests, drills and demonstrations.

    from spotd_local import control
    control.reclaim(root, token, notice_s=6.0)

Everything is an order to the machine, by a file; it is carried out within a tenth of a second.
"""

from __future__ import annotations

import time
from enum import StrEnum, unique
from typing import TYPE_CHECKING

from spotd.core.instance import EndedBy
from spotd.core.offer import Market
from spotd_local import machines
from spotd_local.record import InstanceDirectory, Record, directories

if TYPE_CHECKING:
    from pathlib import Path


@unique
class Channels(StrEnum):
    """Who is told of a reclaim: clouds lose notices (facts/reclaim.md §0.1)."""

    BOTH = "both"
    IMDS = "imds"
    PROVIDER = "provider"
    NONE = "none"


def reclaim(root: Path, token: str, *, notice_s: float | None = None, channels: Channels = Channels.BOTH) -> None:
    """Take a spot instance back after this notice (default: as configured; a short one is a late notice)."""
    _spot(root, token).order(
        "reclaim",
        **({} if notice_s is None else {"notice_s": notice_s}),
        imds=channels in {Channels.BOTH, Channels.IMDS},
        provider=channels in {Channels.BOTH, Channels.PROVIDER},
    )


def reclaim_unannounced(root: Path, token: str) -> None:
    """Take a spot instance back now: no notice, no grace."""
    _spot(root, token).order("reclaim", unannounced=True)


def reclaim_cancelled(root: Path, token: str, *, notice_s: float, cancelled_after_s: float) -> None:
    """Mark a spot instance, let the deadline pass or not, and take the mark back: the instance lives on."""
    _spot(root, token).order("reclaim", notice_s=notice_s, cancelled_after_s=cancelled_after_s)


def rebalance(root: Path, token: str) -> None:
    """Emit a rebalance recommendation."""
    _directory(root, token).order("rebalance")


def terminate(root: Path, token: str) -> None:
    """End an instance as somebody else would, through the cloud's console."""
    _directory(root, token).order("terminate", by=EndedBy.EXTERNAL)


def records(root: Path) -> list[Record]:
    """Every instance there was in the last hour: the ground truth of what ran when."""
    return [directory.read() for directory in directories(root)]


def power_cut(root: Path) -> None:
    """End every instance of this local cloud now and leave no process of theirs."""
    machines.power_cut(root, time.time())


def _directory(root: Path, token: str) -> InstanceDirectory:
    directory = InstanceDirectory(root / "instances" / token)
    if not directory.path.exists():
        raise KeyError(f"no instance {token} in {root}")
    return directory


def _spot(root: Path, token: str) -> InstanceDirectory:
    directory = _directory(root, token)
    if directory.read().market is not Market.SPOT:
        raise ValueError(f"{token} is on-demand, which is never reclaimed")
    return directory
