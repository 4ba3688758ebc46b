"""The two tables, exhaustively: what is in them, what is not, and what every path through them keeps."""

from __future__ import annotations

import itertools

import pytest

from spotd.core.attempt import AttemptState
from spotd.core.instance import InstanceState, ObservedState
from spotd.core.lifecycle import (
    ATTEMPT_TABLE,
    INSTANCE_TABLE,
    SIGHTING,
    AttemptTrigger,
    IllegalTransition,
    InstanceTrigger,
    advance_attempt,
    advance_instance,
)

_I, _T = InstanceState, InstanceTrigger
_A, _E = AttemptState, AttemptTrigger

ILLEGAL_INSTANCE = sorted(set(itertools.product(_I, _T)) - set(INSTANCE_TABLE))
ILLEGAL_ATTEMPT = sorted(set(itertools.product(_A, _E)) - set(ATTEMPT_TABLE))
#: How far along a state is: no transition leads back.
INSTANCE_ORDER = list(_I)
ATTEMPT_ORDER = list(_A)


@pytest.mark.parametrize(("pair", "after"), INSTANCE_TABLE.items(), ids=str)
def test_a_legal_pair_of_an_instance(pair: tuple[InstanceState, InstanceTrigger], after: InstanceState) -> None:
    """The function is the table, and nothing leads back."""
    assert advance_instance(*pair) is after
    assert INSTANCE_ORDER.index(after) >= INSTANCE_ORDER.index(pair[0])


@pytest.mark.parametrize(("pair", "after"), ATTEMPT_TABLE.items(), ids=str)
def test_a_legal_pair_of_an_attempt(pair: tuple[AttemptState, AttemptTrigger], after: AttemptState) -> None:
    """The function is the table, and nothing leads back."""
    assert advance_attempt(*pair) is after
    assert ATTEMPT_ORDER.index(after) >= ATTEMPT_ORDER.index(pair[0])


@pytest.mark.parametrize(("state", "trigger"), ILLEGAL_INSTANCE, ids=str)
def test_an_illegal_pair_of_an_instance_is_refused(state: InstanceState, trigger: InstanceTrigger) -> None:
    """The error carries both, and says so."""
    with pytest.raises(IllegalTransition, match=f"InstanceState {state} does not know {trigger}") as refused:
        advance_instance(state, trigger)
    assert (refused.value.state, refused.value.trigger) == (state, trigger)


@pytest.mark.parametrize(("state", "trigger"), ILLEGAL_ATTEMPT, ids=str)
def test_an_illegal_pair_of_an_attempt_is_refused(state: AttemptState, trigger: AttemptTrigger) -> None:
    """The error carries both, and says so."""
    with pytest.raises(IllegalTransition, match=f"AttemptState {state} does not know {trigger}") as refused:
        advance_attempt(state, trigger)
    assert (refused.value.state, refused.value.trigger) == (state, trigger)


def test_the_illegal_pairs_are_these() -> None:
    """Written out: a pair that becomes legal, or stops being so, is a change that somebody reads."""
    assert [f"{state}/{trigger}" for state, trigger in ILLEGAL_INSTANCE] == [
        "gone/proved_absent",
        "gone/refused",
        "gone/terminate_requested",
        "requested/terminate_requested",
        "running/proved_absent",
        "running/refused",
        "starting/proved_absent",
        "starting/refused",
        "terminating/refused",
    ]
    assert [f"{state}/{trigger}" for state, trigger in ILLEGAL_ATTEMPT] == [
        "booting/gate_opened",
        "booting/stop_ordered",
        "draining/gate_opened",
        "draining/ready",
        "ended/ended",
        "ended/gate_opened",
        "ended/launched",
        "ended/ready",
        "ended/stop_ordered",
        "placed/gate_opened",
        "placed/stop_ordered",
        "ready/stop_ordered",
        "running/gate_opened",
        "running/ready",
    ]


@pytest.mark.parametrize("state", _I)
def test_a_provider_may_say_anything_at_any_time(state: InstanceState) -> None:
    """Sightings are total: a late or stale word must not stop the daemon."""
    assert set(SIGHTING) == set(ObservedState)
    for trigger in SIGHTING.values():
        advance_instance(state, trigger)


@pytest.mark.parametrize("trigger", [t for t in _T if (_I.GONE, t) in INSTANCE_TABLE])
def test_gone_is_final(trigger: InstanceTrigger) -> None:
    """Whatever a stale listing says afterwards."""
    assert advance_instance(_I.GONE, trigger) is _I.GONE


@pytest.mark.parametrize("state", [s for s in _A if s is not _A.ENDED])
def test_an_attempt_can_always_end(state: AttemptState) -> None:
    """Its machine may vanish in every state."""
    assert advance_attempt(state, _E.ENDED) is _A.ENDED


def test_only_the_gate_lets_a_workload_run() -> None:
    """RUNNING is entered through the gate and in no other way."""
    assert [pair for pair, after in ATTEMPT_TABLE.items() if after is _A.RUNNING and pair[0] is not _A.RUNNING] == [(_A.READY, _E.GATE_OPENED)]


def test_an_instance_is_gone_by_proof_only() -> None:
    """A refusal of its launch, the provider's word, or its proved absence: nothing else."""
    causes = {pair[1] for pair, after in INSTANCE_TABLE.items() if after is _I.GONE and pair[0] is not _I.GONE}
    assert causes == {_T.REFUSED, _T.SEEN_GONE, _T.PROVED_ABSENT}
