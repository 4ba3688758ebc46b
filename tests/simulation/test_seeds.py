"""The fixed sample of the simulated world: no rule is broken, and after the faults everything comes to rest."""

from __future__ import annotations

import pytest

from spotd.sim.world import simulate

SEEDS = 300
_CHUNK = 10


@pytest.mark.parametrize("first", range(1, SEEDS + 1, _CHUNK))
def test_no_rule_is_broken(first: int) -> None:
    """Ten seeds of the daemon's own engine under every fault the simulated cloud has, with checkers that look at the truth."""
    for seed in range(first, first + _CHUNK):
        result = simulate(seed)
        assert not result.violations, f"spotd sim replay {seed}: {result.violations[0]}; {result.draws.told()}"


def test_a_seed_is_a_run() -> None:
    """The same seed gives the same story, to the last line."""
    stories = [list(simulate(7, told=True).story.printed()) for _ in range(2)]
    assert stories[0] == stories[1]
    assert len(stories[0]) > 50
