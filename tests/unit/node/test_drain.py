"""The drain plan as a table."""

from __future__ import annotations

from typing import Any

import pytest

from spotd.node.drain import Hook, Step, View, decide, p95

# Noticed at 0, deadline 120, reserve 5: save by 115.
BASE: dict[str, Any] = {
    "now": 10.0,
    "noticed_at": 0.0,
    "deadline_at": 120.0,
    "reserve_s": 5.0,
    "job_running": True,
    "hook": Hook.NONE,
    "announced_since": False,
    "ever_announced": False,
    "quiet": True,
    "committed_since": False,
}


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({}, Step.WAIT),
        ({"now": 114.9}, Step.WAIT),
        ({"now": 115.0}, Step.END_JOB),
        ({"job_running": False}, Step.FINISH),
        ({"announced_since": True, "ever_announced": True}, Step.END_JOB),
        ({"ever_announced": True}, Step.WAIT),
        ({"committed_since": True}, Step.END_JOB),
        ({"committed_since": True, "quiet": False}, Step.WAIT),
        ({"committed_since": True, "ever_announced": True}, Step.WAIT),
        # The hook
        ({"hook": Hook.PENDING}, Step.START_HOOK),
        ({"hook": Hook.PENDING, "now": 115.0}, Step.END_JOB),
        ({"hook": Hook.PENDING, "job_running": False}, Step.FINISH),
        ({"hook": Hook.RUNNING}, Step.WAIT),
        ({"hook": Hook.RUNNING, "announced_since": True, "ever_announced": True}, Step.WAIT),
        ({"hook": Hook.RUNNING, "job_running": False}, Step.WAIT),
        ({"hook": Hook.RUNNING, "now": 110.0}, Step.END_HOOK),
        ({"hook": Hook.SAVED}, Step.END_JOB),
        ({"hook": Hook.SAVED, "quiet": False}, Step.WAIT),
        ({"hook": Hook.SAVED, "ever_announced": True}, Step.WAIT),
        ({"hook": Hook.FAILED}, Step.WAIT),
        ({"hook": Hook.FAILED, "now": 115.0}, Step.END_JOB),
        # Time for the upload: 20 s measured, 24 with its margin, so save by 91; never more than half of the notice
        ({"upload_s": 20.0, "now": 90.9}, Step.WAIT),
        ({"upload_s": 20.0, "now": 91.0}, Step.END_JOB),
        ({"upload_s": 900.0, "now": 54.9}, Step.WAIT),
        ({"upload_s": 900.0, "now": 55.0}, Step.END_JOB),
        # A save that cannot fit is not begun; one that is under way needs only its rest
        ({"save_s": 114.0, "hook": Hook.PENDING}, Step.START_HOOK),
        ({"save_s": 116.0, "hook": Hook.PENDING}, Step.END_JOB),
        ({"save_s": 116.0}, Step.END_JOB),
        ({"save_s": 116.0, "saving_since": -30.0}, Step.WAIT),
        # Hibernation: the deadline is now (facts/reclaim.md §0.5)
        ({"deadline_at": 0.0, "now": 0.0, "hook": Hook.PENDING}, Step.END_JOB),
    ],
)
def test_the_plan(changes: dict[str, Any], step: Step) -> None:
    """Each situation has one step."""
    assert decide(View(**{**BASE, **changes})).step is step


def test_every_drain_ends() -> None:
    """Whatever the hook and the tree do: at the deadline the decision is not to wait any more."""
    for hook in Hook:
        for flags in range(16):
            view = View(
                **{
                    **BASE,
                    "now": 120.0,
                    "hook": hook,
                    "announced_since": bool(flags & 1),
                    "ever_announced": bool(flags & 2),
                    "quiet": bool(flags & 4),
                    "job_running": bool(flags & 8),
                }
            )
            assert decide(view).step in (Step.END_JOB, Step.END_HOOK, Step.FINISH)


def test_a_percentile_needs_some_samples() -> None:
    """Two saves say nothing about the slow ones."""
    assert p95([1.0, 9.0]) is None
    assert p95([1.0, 9.0, 2.0]) == 9.0
