"""Ten stories of a job, each with the transcript expected of it. `SPOTD_WRITE_STORIES=1` writes them anew: read the diff before you keep it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spotd.core.offer import Market
from tests.scenario.script import Script

EXPECTED = Path(__file__).parent / "expected"


def reclaim_with_full_notice() -> str:
    """The replacement boots during the notice and waits at the gate; it resumes from what the old attempt saved after the notice."""
    script = Script()
    script.at(50, script.reclaim)
    return script.told(4)


def three_preemptions_then_on_demand_then_back() -> str:
    """Three reclaims bring on-demand; after an hour the job returns to spot at a checkpoint boundary."""
    script = Script(hours=5.0)
    for minutes in (20, 60, 100):
        script.at(minutes, script.reclaim)
    return script.told(12)


def lost_launch_reply() -> str:
    """The machine is launched and nobody hears of it: it is found by its token and adopted, and there is no second one."""
    script = Script()
    script.at(0, lambda: script.cloud(launch_lost_reply=1.0))
    return script.told(4)


def region_without_capacity() -> str:
    """The cheapest region is empty: the next one is asked at once."""
    script = Script()
    bazaar = script.sim.cloud.bazaar
    cheapest = min((k for k in bazaar.keys if k.market is Market.SPOT), key=lambda key: bazaar.price(key, 0.0))
    script.dry(Market.SPOT, cheapest.region)
    return script.told(4)


def daemon_killed_between_intent_and_call() -> str:
    """The intent is stored, the call was never made: the next daemon asks what became of it, finds nothing, and makes the identical call."""
    script = Script()
    script.daemon(crash_after_commit=1.0)
    script.at(1.02, lambda: script.daemon(crash_after_commit=0.0))
    return script.told(4)


def cancel_while_launching() -> str:
    """The launch call's outcome is not known when the user cancels: the job is over at once, and the machine is ended when it is found."""
    script = Script()
    script.at(0, lambda: script.cloud(launch_executed_late=1.0))
    script.at(1.1, lambda: script.sim.users.cancel("job-1"))
    return script.told(2)


def no_spot_for_max_wait() -> str:
    """Nothing to be had on spot in any region for ten minutes: on-demand."""
    script = Script(max_wait_s=600.0)
    script.dry(Market.SPOT, *script.sim.cloud.bazaar.regions)
    return script.told(4)


def moved_before_max_run_duration() -> str:
    """An attempt is moved before it runs too long: its successor is ready when it is asked to save and stop."""
    script = Script(hours=4.0, max_run_hours=3.0)
    return script.told(7)


def ended_by_hand() -> str:
    """Somebody ends the machine by hand: ops are told, and the job is placed again after a pause, not blindly."""
    script = Script()
    script.at(40, script.end_by_hand)
    return script.told(4)


def launches_not_authorized() -> str:
    """A missing permission is not a lack of capacity: the provider is left alone, ops are told, and it is tried again later."""
    script = Script()
    script.at(0, lambda: setattr(script.sim.provider, "unauthorized_until_s", 1500.0))
    return script.told(4)


def daemon_away_while_the_job_finishes() -> str:
    """The daemon is dead for an hour and a half: the job runs on, finishes, and is heard when somebody listens again."""
    script = Script()
    script.at(40, lambda: script.kill_daemon(90))
    return script.told(5)


STORIES: tuple[Callable[[], str], ...] = (
    reclaim_with_full_notice,
    three_preemptions_then_on_demand_then_back,
    lost_launch_reply,
    region_without_capacity,
    daemon_killed_between_intent_and_call,
    cancel_while_launching,
    no_spot_for_max_wait,
    moved_before_max_run_duration,
    ended_by_hand,
    launches_not_authorized,
    daemon_away_while_the_job_finishes,
)


@pytest.mark.parametrize("story", STORIES, ids=[story.__name__ for story in STORIES])
def test_a_story_is_told_as_expected(story: Callable[[], str]) -> None:
    """What happens to the job, line by line."""
    path = EXPECTED / f"{story.__name__}.txt"
    title = (story.__doc__ or "").strip()
    told = f"{title}\n\n{story()}"
    if os.environ.get("SPOTD_WRITE_STORIES"):
        path.write_text(told)
    assert told == path.read_text()


def test_a_job_that_finished_while_nobody_listened_begins_again_at_its_end() -> None:
    """Its machine is gone (idle_timeout) before the daemon is back; its last checkpoint is found in the store (known-faults B.3a #6133)."""
    script = Script()
    script.at(30, lambda: script.kill_daemon(180))
    assert "fresh" not in script.told(5).partition("starts (life 3)")[2]
