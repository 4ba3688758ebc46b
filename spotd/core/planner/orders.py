"""Drain orders: why, until when, carried out once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotd.core.attempt import Attempt, DrainKind, DrainOrder

if TYPE_CHECKING:
    from datetime import timedelta

    from spotd.core.plan import Snapshot


def drain_order(snapshot: Snapshot, attempt: Attempt, kind: DrainKind, time: timedelta) -> DrainOrder:
    """An order to checkpoint and stop within `time`, with an id that says which one it is."""
    return DrainOrder(f"{attempt.id}/{kind.value}", kind, snapshot.now, snapshot.now + time)
