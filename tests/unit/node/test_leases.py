"""When an instance ends itself, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from spotd.node.leases import View, due, fence_s

BASE: dict[str, Any] = {
    "phase": "running",
    "age_s": 100.0,
    "silence_s": 1.0,
    "idle_s": 0.0,
    "told_off": False,
    "own_drain": None,
    "unsaid": False,
    "idle_timeout_s": 900.0,
    "max_lifetime_s": 10_000.0,
    "stop_when_unreachable_s": None,
}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({}, None),
        ({"told_off": True}, "power_off"),
        # A daemon that is away is no reason to end a job (DESIGN §4, rule 3), unless it may be replaced
        ({"silence_s": 9e9}, None),
        ({"silence_s": 300.0, "stop_when_unreachable_s": 300.0}, "drain"),
        ({"silence_s": 299.0, "stop_when_unreachable_s": 300.0}, None),
        ({"silence_s": 300.0, "stop_when_unreachable_s": 300.0, "phase": "draining"}, None),
        ({"silence_s": 300.0, "stop_when_unreachable_s": 300.0, "phase": "ready"}, "power_off"),
        ({"silence_s": 300.0, "stop_when_unreachable_s": 300.0, "phase": "booting"}, "power_off"),
        # An instance without a job that nobody answers
        ({"phase": "exited", "silence_s": 900.0, "idle_s": 900.0}, "power_off"),
        ({"phase": "exited", "silence_s": 900.0, "idle_s": 10.0}, None),
        ({"phase": "exited", "silence_s": 1.0, "idle_s": 9999.0}, None),
        ({"phase": "ready", "silence_s": 900.0}, "power_off"),
        ({"phase": "booting", "silence_s": 9000.0}, None),
        # The end of its life
        ({"age_s": 10_000.0}, "drain"),
        ({"age_s": 10_000.0, "phase": "draining"}, None),
        ({"age_s": 10_000.0, "phase": "ready"}, "power_off"),
        ({"age_s": 10_000.0, "phase": "drained"}, "power_off"),
        # After a drain of its own: once it was heard, or soon
        ({"phase": "drained", "own_drain": "lifetime", "unsaid": True, "idle_s": 5.0}, None),
        ({"phase": "drained", "own_drain": "lifetime", "unsaid": False, "idle_s": 5.0}, "power_off"),
        ({"phase": "drained", "own_drain": "lifetime", "unsaid": True, "idle_s": 60.0}, "power_off"),
    ],
)
def test_leases(changes: dict[str, Any], what: str | None) -> None:
    """Each situation demands one thing or nothing."""
    found = due(View(**{**BASE, **changes}))

    assert (found.what if found else None) == what


def test_the_shim_waits_longer_than_a_living_agent_would() -> None:
    """The fence is for agents that are dead: after their time to drain, with a margin; none without the lease."""
    assert fence_s(None, 120.0) is None
    assert fence_s(300.0, 120.0) == 480.0
