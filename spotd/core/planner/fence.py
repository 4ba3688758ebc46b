"""Fence before you replace: at most one workload of a job runs at any time (DESIGN §4 rule 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spotd.core.attempt import Attempt

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from spotd.core.instance import Instance
    from spotd.core.plan import Case, Snapshot


@dataclass(frozen=True, slots=True)
class Fence:
    """Whether every earlier workload of a job is known to have stopped, and if not, which one is not."""

    open: bool
    waiting_for: Attempt | None = None
    detail: str = ""


def fence(snapshot: Snapshot, case: Case, attempt: Attempt) -> Fence:
    """May this attempt's workload run? Only proof opens the fence; silence, a missing row and a time-out are suspicions."""
    for other in case.attempts:
        if other.id == attempt.id or not other.may_have_run or _stopped(snapshot, case, other):
            continue
        instances = [i for i in case.current(other) if i.live]
        state = ", ".join(f"{i.provider_id or i.id} is {i.state}" for i in instances)
        return Fence(open=False, waiting_for=other, detail=f"attempt {other.number} has not reported that it stopped; {state}")
    return Fence(open=True)


def _stopped(snapshot: Snapshot, case: Case, other: Attempt) -> bool:
    """Its agent said so (drained, exited, failed), or none of its machines executes anything any more."""
    if other.stopped_at is not None:
        return True
    patience = None if case.policy is None else case.policy.replace_when_unreachable
    return all(not i.live or presumed_stopped(snapshot, i, patience) for i in case.current(other))


def presumed_stopped(snapshot: Snapshot, instance: Instance, patience: timedelta | None) -> bool:
    """The explicit escape `replace_when_unreachable`: its agent has not been heard for that long.

    The agent keeps its side: unreachable for a shorter time, it saves, stops the workload and powers off (docs/agent-protocol.md).
    """
    due = unreachable_at(snapshot, instance, patience)
    return due is not None and snapshot.now >= due


def unreachable_at(snapshot: Snapshot, instance: Instance, patience: timedelta | None) -> datetime | None:
    """When an instance counts as unreachable if nothing is heard from it until then; None: never.

    Its agent stops by the policy that was in force when it was given its specification. A policy that was edited since cannot shorten that.
    """
    if patience is None or instance.stops_after_silence is None:
        return None
    return snapshot.now - snapshot.silent_for(instance.id) + max(patience, instance.stops_after_silence)
