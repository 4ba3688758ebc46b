"""The state machines. Rule 1: every transition of an instance or an attempt is in one of the two tables of this file.

Theory of operation. A state is only ever left by a trigger, and `advance_instance` / `advance_attempt` are the only functions that compute the
next one. A pair that is not in its table is illegal: the caller gets `IllegalTransition`, which carries both, and nothing has changed.

An *instance* is REQUESTED from the moment its intent is stored until the launch call's outcome is known. It becomes GONE only by proof: the
provider says terminated, or our terminate was acknowledged and later complete listings lack it, or the launch was refused (DESIGN §4 rule 2).
Whatever a stale listing says afterwards, GONE is final; a machine that shows up alive after all is a stray and is ended as one.

An *attempt* ends once. Its workload may run from GATE_OPENED on, and a gate is opened only when every earlier attempt of the job is fenced
(`planner.fence`). A notice moves a running attempt to DRAINING; there is no way back to RUNNING even if the notice is cancelled, because the
agent stopped the workload.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique
from typing import TYPE_CHECKING

from spotd.core.attempt import AttemptState
from spotd.core.instance import InstanceState, ObservedState

if TYPE_CHECKING:
    from collections.abc import Mapping


@unique
class InstanceTrigger(StrEnum):
    """What can happen to an instance."""

    LAUNCHED = "launched"
    REFUSED = "refused"
    SEEN_PENDING = "seen_pending"
    SEEN_RUNNING = "seen_running"
    SEEN_ENDING = "seen_ending"
    SEEN_GONE = "seen_gone"
    TERMINATE_REQUESTED = "terminate_requested"
    PROVED_ABSENT = "proved_absent"


@unique
class AttemptTrigger(StrEnum):
    """What can happen to an attempt."""

    LAUNCHED = "launched"
    READY = "ready"
    GATE_OPENED = "gate_opened"
    STOP_ORDERED = "stop_ordered"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class IllegalTransition(Exception):
    """A trigger that its state does not know: an error of spotd itself, never of the cloud or the user."""

    state: InstanceState | AttemptState
    trigger: InstanceTrigger | AttemptTrigger

    def __str__(self) -> str:
        return f"{type(self.state).__name__} {self.state} does not know {self.trigger}"


_I = InstanceState
_T = InstanceTrigger

#: Sightings are total: a provider may say anything at any time, and a late or stale word must not stop the daemon.
INSTANCE_TABLE: Mapping[tuple[InstanceState, InstanceTrigger], InstanceState] = {
    (_I.REQUESTED, _T.LAUNCHED): _I.STARTING,
    (_I.REQUESTED, _T.REFUSED): _I.GONE,
    (_I.REQUESTED, _T.SEEN_PENDING): _I.STARTING,
    (_I.REQUESTED, _T.SEEN_RUNNING): _I.RUNNING,
    (_I.REQUESTED, _T.SEEN_ENDING): _I.TERMINATING,
    (_I.REQUESTED, _T.SEEN_GONE): _I.GONE,
    # Never launched after all: its outcome stayed unknown, and listings prove that it does not exist.
    (_I.REQUESTED, _T.PROVED_ABSENT): _I.GONE,
    (_I.STARTING, _T.LAUNCHED): _I.STARTING,
    (_I.STARTING, _T.SEEN_PENDING): _I.STARTING,
    (_I.STARTING, _T.SEEN_RUNNING): _I.RUNNING,
    (_I.STARTING, _T.SEEN_ENDING): _I.TERMINATING,
    (_I.STARTING, _T.SEEN_GONE): _I.GONE,
    (_I.STARTING, _T.TERMINATE_REQUESTED): _I.TERMINATING,
    (_I.RUNNING, _T.LAUNCHED): _I.RUNNING,
    # A stale listing.
    (_I.RUNNING, _T.SEEN_PENDING): _I.RUNNING,
    (_I.RUNNING, _T.SEEN_RUNNING): _I.RUNNING,
    (_I.RUNNING, _T.SEEN_ENDING): _I.TERMINATING,
    (_I.RUNNING, _T.SEEN_GONE): _I.GONE,
    (_I.RUNNING, _T.TERMINATE_REQUESTED): _I.TERMINATING,
    # The late answer of a launch call that a listing overtook.
    (_I.TERMINATING, _T.LAUNCHED): _I.TERMINATING,
    (_I.TERMINATING, _T.SEEN_PENDING): _I.TERMINATING,
    (_I.TERMINATING, _T.SEEN_RUNNING): _I.TERMINATING,
    (_I.TERMINATING, _T.SEEN_ENDING): _I.TERMINATING,
    (_I.TERMINATING, _T.SEEN_GONE): _I.GONE,
    (_I.TERMINATING, _T.TERMINATE_REQUESTED): _I.TERMINATING,
    (_I.TERMINATING, _T.PROVED_ABSENT): _I.GONE,
    (_I.GONE, _T.LAUNCHED): _I.GONE,
    (_I.GONE, _T.SEEN_PENDING): _I.GONE,
    (_I.GONE, _T.SEEN_RUNNING): _I.GONE,
    (_I.GONE, _T.SEEN_ENDING): _I.GONE,
    (_I.GONE, _T.SEEN_GONE): _I.GONE,
}

_A = AttemptState
_E = AttemptTrigger

ATTEMPT_TABLE: Mapping[tuple[AttemptState, AttemptTrigger], AttemptState] = {
    (_A.PLACED, _E.LAUNCHED): _A.BOOTING,
    # The agent may call home before the launch call has answered.
    (_A.PLACED, _E.READY): _A.READY,
    (_A.PLACED, _E.ENDED): _A.ENDED,
    (_A.BOOTING, _E.LAUNCHED): _A.BOOTING,
    (_A.BOOTING, _E.READY): _A.READY,
    (_A.BOOTING, _E.ENDED): _A.ENDED,
    (_A.READY, _E.LAUNCHED): _A.READY,
    (_A.READY, _E.READY): _A.READY,
    (_A.READY, _E.GATE_OPENED): _A.RUNNING,
    (_A.READY, _E.ENDED): _A.ENDED,
    (_A.RUNNING, _E.LAUNCHED): _A.RUNNING,
    (_A.RUNNING, _E.STOP_ORDERED): _A.DRAINING,
    (_A.RUNNING, _E.ENDED): _A.ENDED,
    (_A.DRAINING, _E.LAUNCHED): _A.DRAINING,
    # A second warning, or an order on top of a warning.
    (_A.DRAINING, _E.STOP_ORDERED): _A.DRAINING,
    (_A.DRAINING, _E.ENDED): _A.ENDED,
}

SIGHTING: Mapping[ObservedState, InstanceTrigger] = {
    ObservedState.PENDING: InstanceTrigger.SEEN_PENDING,
    ObservedState.RUNNING: InstanceTrigger.SEEN_RUNNING,
    ObservedState.ENDING: InstanceTrigger.SEEN_ENDING,
    ObservedState.GONE: InstanceTrigger.SEEN_GONE,
}


def advance_instance(state: InstanceState, trigger: InstanceTrigger) -> InstanceState:
    """The state after the trigger. Raises IllegalTransition, with nothing changed, for a pair that is not in the table."""
    try:
        return INSTANCE_TABLE[state, trigger]
    except KeyError:
        raise IllegalTransition(state, trigger) from None


def advance_attempt(state: AttemptState, trigger: AttemptTrigger) -> AttemptState:
    """The state after the trigger. Raises IllegalTransition, with nothing changed, for a pair that is not in the table."""
    try:
        return ATTEMPT_TABLE[state, trigger]
    except KeyError:
        raise IllegalTransition(state, trigger) from None
