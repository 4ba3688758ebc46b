"""A checker that catches nothing is a defect: the simulation finds each of ten planted faults within a small number of seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spotd.sim.world import simulate
from tests.simulation.planted import PLANTED

#: Ordinary seeds with ordinary draws, from the first on.
BUDGET = 60


@pytest.mark.parametrize(("plant", "rules"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_a_planted_fault_is_caught(plant: Callable[[pytest.MonkeyPatch], None], rules: frozenset[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the rules that this variant breaks is found broken within the budget, and nothing else is blamed first."""
    plant(monkeypatch)
    for seed in range(1, BUDGET + 1):
        violations = simulate(seed).violations
        if violations:
            assert violations[0].rule in rules, f"seed {seed}: {violations[0]}"
            return
    pytest.fail(f"not caught in {BUDGET} seeds")
