"""The explicit escape `replace_when_unreachable`: only what an agent has promised may be presumed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from spotd.core.attempt import AttemptState
from spotd.core.events import AgentBootstrapped, AgentReady, LaunchSucceeded, WorkloadStarted
from spotd.core.plan import Launch
from tests.unit.core.stage import Stage, policy

HALF_HOUR, HOUR = timedelta(minutes=30), timedelta(hours=1)


@pytest.mark.parametrize(
    ("given", "edited", "silent", "ended"),
    [
        (HALF_HOUR, HALF_HOUR, timedelta(minutes=29), False),
        (HALF_HOUR, HALF_HOUR, timedelta(minutes=31), True),
        # Told nothing at its start, its workload runs on through any silence: an edited policy must not presume otherwise.
        (None, HALF_HOUR, timedelta(days=1), False),
        # Told an hour, it may run for that long.
        (HOUR, HALF_HOUR, timedelta(minutes=31), False),
        (HOUR, HALF_HOUR, timedelta(minutes=61), True),
        (HALF_HOUR, None, timedelta(days=1), False),
    ],
)
def test_silence_ends_an_attempt_only_as_its_agent_was_told(
    given: timedelta | None, edited: timedelta | None, silent: timedelta, ended: bool
) -> None:
    """A policy edited under a running job gave two workloads: the daemon presumed a stop that the agent knew nothing of."""
    stage = Stage(policy(replace_when_unreachable=given))
    stage.submit()
    effect = next(e for e in stage.effects if isinstance(e, Launch))
    token = effect.request.token
    stage.step(lambda at: LaunchSucceeded(at, token, "i-1", at), done=[effect])
    stage.step(lambda at: AgentBootstrapped(at, token, "n", "s", given))
    stage.step(lambda at: AgentReady(at, token, None, None, 1.0, 0.0, 0.0), lambda at: WorkloadStarted(at, token))
    stage.engine.heard(token, stage.now)
    stage.use(policy(replace_when_unreachable=edited))
    stage.step(after=silent.total_seconds())
    states = [attempt.state for attempt in stage.engine.world.attempts.values() if attempt.number == 1]
    assert states == [AttemptState.ENDED if ended else AttemptState.RUNNING]
