"""Shrinking, replaying, soaking, and the long year: the tools around the simulated world."""

from __future__ import annotations

import argparse

import pytest
from rich.console import Console

from spotd.sim import soak
from spotd.sim.draws import FAULTS, draw
from spotd.sim.replay import replay
from spotd.sim.shrink import shrink, without
from spotd.sim.world import simulate
from spotd.sim.year import play
from tests.simulation.planted import preemption_counted_for_a_users_cancel


def _failing_seed() -> int:
    return next(seed for seed in range(1, 60) if simulate(seed).violations)


def test_a_failure_is_made_smaller_and_stays_the_same_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of the faults still breaks the same rule, and the command that is printed plays exactly that."""
    preemption_counted_for_a_users_cancel(monkeypatch)
    seed = _failing_seed()
    rule = simulate(seed).violations[0].rule
    result, left_out = shrink(seed)
    assert result.violations[0].rule == rule
    assert sum(getattr(result.draws, name) > 0 for name in FAULTS) <= 2, "a cancel, and at most one thing more"
    again, lines = replay(seed, left_out)
    assert again.violations == result.violations
    told = list(lines)
    assert told[0] == f"seed {seed}"
    assert told[-1].startswith("VIOLATION")


def test_a_sound_seed_has_nothing_to_shrink() -> None:
    """Nothing is left out where nothing is broken."""
    result, left_out = shrink(1)
    assert (result.violations, left_out) == ((), [])


def test_a_draw_that_does_not_exist_is_named() -> None:
    """With the names that do."""
    with pytest.raises(ValueError, match=r"'hang' is no draw; there are .*hangs_per_day"):
        without(draw(1), ["hang"])


def test_a_soak_reports_every_failure_with_its_seed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Processes inherit the planted fault; the exit code says that something was found."""
    preemption_counted_for_a_users_cancel(monkeypatch)
    seed = _failing_seed()
    assert soak.main(["--seeds", f"{seed}-{seed}", "--jobs", "1"]) == 1
    told = capsys.readouterr().out
    assert f"spotd sim replay {seed} --without" in told.replace("\n", " ")
    assert "1 failures" in told


def test_a_sound_soak_is_silent_about_seeds() -> None:
    """Only the figures."""
    assert [seen.broken for seen in soak.soak(range(1, 6), 1, Console(quiet=True))] == [""] * 5


@pytest.mark.parametrize(("text", "seeds"), [("3", range(1, 4)), ("7-9", range(7, 10))])
def test_which_seeds_are_meant(text: str, seeds: range) -> None:
    """A number, or a range with both ends."""
    assert soak.seeds_of(text) == seeds
    with pytest.raises(argparse.ArgumentTypeError, match="neither a number nor a range"):
        soak.seeds_of("x")


def test_a_few_days_of_the_long_year() -> None:
    """One-day jobs over a market that reclaims: all succeed, nothing is left, the ledger is right."""
    year = play(jobs=4, days=2.0)
    assert (year.outcomes, year.violations) == ({"succeeded": 4}, ())
    assert year.preemptions > 0
