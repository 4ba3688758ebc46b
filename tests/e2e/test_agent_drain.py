"""Real agents under notices, drains and stops."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.node.fakes import until
from tests.unit.node.world import World, instance

# Saves once at the start and once more when the notice file appears, as a script without any library would.
TRAIN = """
save() { mkdir -p ckpt/$1; echo $1 > ckpt/$1/w; echo "{\\"checkpoint\\": \\"$1\\", \\"step\\": $2}" >> $SPOTD_PROGRESS_FILE; }
save one 1
until [ -e $SPOTD_NOTICE_FILE ]; do sleep 0.05; done
cp $SPOTD_NOTICE_FILE seen.json
sleep 0.5; save two 2
sleep 60
"""
IDLE = "echo $$ > pid; echo '{\"step\": 5}' >> $SPOTD_PROGRESS_FILE; sleep 60"


@pytest.fixture(name="world")
def _world(tmp_path: Path) -> Iterator[World]:
    with instance(tmp_path) as world:
        world.daemon.spec["watch"] = "imds"
        yield world


def _running(world: World, **spec: Any) -> None:
    world.daemon.spec.update(**spec)
    world.agent()
    world.message("started")
    if "ckpt/$1" in spec["run"]:
        world.message("checkpoint")


def test_a_reclaim_is_announced_saved_and_reported(world: World) -> None:
    """The notice is said first, the job saves because of its file alone, and `drained` has the real numbers."""
    _running(world, run=TRAIN)
    world.imds.skew_s = -600.0  # the service's clock counts, not ours
    world.imds.reclaim(30)
    drained = world.message("drained")

    notice = world.message("notice")
    assert (notice["kind"], notice["source"], notice["action"]) == ("reclaim", "imds", "terminate")
    assert 27 <= notice["seconds_left"] <= 31
    assert (drained["kind"], drained["step"], drained["checkpoint"], drained["saved"]) == ("reclaim", 2, "00003-000002", True)
    assert 0.4 <= drained["seconds_used"] <= 8
    assert 27 <= drained["seconds_given"] <= 31
    assert drained["hook_exit"] is None
    said = [message["type"] for message in world.daemon.messages]
    # Whether the process or its first checkpoint is noticed first is a matter of milliseconds.
    assert [said[0], *sorted(said[1:3]), *said[3:]] == ["ready", "checkpoint", "started", "notice", "checkpoint", "drained"]
    seen = world.read(world.work / "seen.json")
    assert seen["kind"] == "reclaim"
    assert abs(seen["deadline_epoch"] - time.time() - 30) < 10
    assert world.processes() == []
    until(lambda: world.daemon.syncs[-1]["state"] == "drained")


def test_a_hook_saves_for_a_job_that_never_announces(world: World) -> None:
    """The hook sees its deadline, its files become the checkpoint once they are at rest, and the job is not waited for."""
    hook = "echo $SPOTD_SECONDS_LEFT $SPOTD_DEADLINE_EPOCH > $SPOTD_CHECKPOINT_DIR/left"
    _running(world, run=IDLE, hook=hook)
    world.imds.reclaim(30)
    drained = world.message("drained")

    assert (drained["hook_exit"], drained["saved"], drained["step"]) == (0, True, 5)
    assert drained["hook_s"] < 3
    assert drained["seconds_used"] < 15
    left, epoch = (world.work / "ckpt/left").read_text().split()
    assert 25 <= int(left) <= 30
    assert abs(float(epoch) - time.time() - 30) < 15


def test_a_hook_that_hangs_forks_and_floods_is_ended_in_time(world: World) -> None:
    """It ignores TERM, leaves a child in another session and prints for ever: all of it is gone before the deadline, and said."""
    hook = "trap '' TERM; setsid bash -c 'trap \"\" TERM; while :; do sleep 1; done' & yes flood & while :; do sleep 1; done"
    _running(world, run=IDLE, hook=hook, drain_reserve_s=2.0)
    world.imds.reclaim(6)
    drained = world.message("drained")

    assert drained["hook_exit"] == -signal.SIGKILL
    assert "the hook ran out of time" in drained["detail"]
    assert drained["saved"] is False
    assert drained["seconds_used"] < 6
    assert world.processes() == []
    assert (world.root / "agent/log").stat().st_size < (16 << 20) + 1000


def test_a_job_that_does_not_save_may_use_the_whole_notice(world: World) -> None:
    """It runs until the deadline less the reserve, not a second after the notice."""
    _running(world, run=IDLE)
    world.imds.reclaim(5)
    drained = world.message("drained")

    assert drained["saved"] is False
    assert drained["detail"].startswith("no complete checkpoint came before the time was up")
    assert drained["seconds_given"] - 1.5 <= drained["seconds_used"] <= drained["seconds_given"] + 0.5


def test_exit_0_after_a_notice_is_drained_unless_the_work_is_done(world: World) -> None:
    """A job that stops itself saved, not finished (facts/reclaim.md §5, 64); its last tree is the checkpoint."""
    _running(world, run="until [ -e $SPOTD_NOTICE_FILE ]; do sleep 0.05; done; echo x > ckpt/x")
    world.imds.reclaim(30)
    drained = world.message("drained")

    assert drained["saved"] is True
    assert world.daemon.of_type("checkpoint")[0]["trigger"] == "notice"
    assert world.daemon.of_type("exited") == []


def test_done_after_a_notice_is_success(world: World) -> None:
    """With {"done": true} at the end of the progress file, exit 0 is the job's own end."""
    done = "echo '{\"done\": true}' >> $SPOTD_PROGRESS_FILE"
    _running(world, run=f"until [ -e $SPOTD_NOTICE_FILE ]; do sleep 0.05; done; {done}")
    world.imds.reclaim(30)

    assert world.message("exited")["done"] is True
    assert world.daemon.of_type("drained") == []


def test_a_crash_after_a_notice_is_a_crash(world: World) -> None:
    """An exit code that is no answer to a notice is reported as it is."""
    _running(world, run="until [ -e $SPOTD_NOTICE_FILE ]; do sleep 0.05; done; exit 7")
    world.imds.reclaim(30)

    assert world.message("exited")["code"] == 7


def test_a_rebalance_hint_stops_nothing(world: World) -> None:
    """It is said once and written as a hint; the job goes on."""
    _running(world, run=IDLE)
    world.imds.paths["events/recommendations/rebalance"] = {"noticeTime": "2026-10-27T08:22:00Z"}
    notice = world.message("notice")
    count = len(world.imds.requests)
    until(lambda: len(world.imds.requests) > count + 9)

    assert (notice["kind"], notice["seconds_left"]) == ("rebalance", None)
    assert len(world.daemon.of_type("notice")) == 1
    assert world.read(world.root / "job/notice.json")["kind"] == "hint"
    assert world.daemon.syncs[-1]["state"] == "running"


def test_a_drain_order_is_obeyed_once(world: World) -> None:
    """It is acknowledged, treated like a notice with that deadline, and not begun again while the daemon repeats it."""
    _running(world, run=TRAIN)
    world.daemon.drain = {"id": "d1", "kind": "move", "seconds": 30.0}
    drained = world.message("drained")

    assert (drained["kind"], drained["saved"]) == ("move", True)
    assert drained["seconds_given"] == pytest.approx(30.0, abs=0.1)
    until(lambda: world.daemon.syncs[-1]["acknowledged_drain"] == "d1" and world.daemon.syncs[-1]["state"] == "drained")
    assert len(world.daemon.of_type("drained")) == 1


def test_a_reclaim_brings_a_drains_deadline_forward(world: World) -> None:
    """The earlier of two deadlines counts."""
    _running(world, run=IDLE)
    world.daemon.drain = {"id": "d1", "kind": "move", "seconds": 60.0}
    until(lambda: world.daemon.syncs[-1]["state"] == "draining")
    world.imds.reclaim(4)

    assert world.message("drained", 10)["seconds_used"] < 6


def test_stop_ends_everything_and_uploads_nothing(world: World) -> None:
    """After `stop` no process is left, nothing was committed and no success reported; the agent waits for power_off."""
    _running(world, run=f"echo x > ckpt/x; trap '' TERM; {IDLE} & wait")
    world.daemon.stop = "superseded"
    until(lambda: world.processes() == [])
    until(lambda: world.daemon.syncs[-1]["state"] == "exited")
    world.daemon.power_off = True

    until(world.off.exists)
    assert [message["type"] for message in world.daemon.messages] == ["ready", "started"]
    assert world.daemon.manifests() == []


def test_a_notice_at_the_gate_is_drained_at_once(world: World) -> None:
    """There is nothing to save, and the gate stays shut whatever the daemon says later."""
    world.daemon.gate = "wait"
    world.daemon.spec.update(run="touch started")
    world.agent()
    world.message("ready")
    world.imds.reclaim(30)

    assert world.message("drained")["saved"] is False
    world.daemon.gate = "open"
    count = len(world.daemon.syncs)
    until(lambda: len(world.daemon.syncs) > count + 3)
    assert not (world.work / "started").exists()


def test_a_notice_during_setup_ends_it(world: World) -> None:
    """A long setup does not outlive the notice."""
    world.daemon.spec.update(setup="sleep 60", run="touch started")
    world.agent()
    world.shim("setup")
    world.imds.reclaim(30)

    assert world.message("drained", 10)["detail"] == "the job had not begun"
    assert world.processes() == []


def test_sigterm_is_the_last_word(world: World) -> None:
    """The OS stops the agent: the job is drained with a short deadline, the report is heard, the agent leaves."""
    world.daemon.spec.update(run=TRAIN)
    agent = world.agent()
    world.message("checkpoint")
    agent.terminate()

    assert agent.wait(20) == 0
    notice = world.message("notice")
    assert (notice["kind"], notice["source"]) == ("shutdown", "signal")
    assert world.message("drained")["saved"] is True
    assert world.processes() == []


def test_an_instance_nobody_hears_saves_stops_and_goes(world: World) -> None:
    """After stop_when_unreachable_s without an answer the job is drained with the addresses in hand, and the power goes off."""
    _running(world, run=TRAIN, stop_when_unreachable_s=1.0, notice_s=10.0)
    until(lambda: any(sync["next_sequence"] == 2 for sync in world.daemon.syncs))
    world.daemon.down = True

    until(lambda: len(world.daemon.manifests()) == 2)
    until(lambda: world.processes() == [])
    world.daemon.down = False
    assert (world.message("drained")["kind"], world.message("notice")["source"]) == ("shutdown", "agent")
    until(world.off.exists)


def test_an_ended_instance_does_not_wait_for_ever(world: World) -> None:
    """The job is done and nobody answers for idle_timeout_s: power off."""
    world.daemon.spec.update(run="exit 0", idle_timeout_s=1.0)
    agent = world.agent()
    world.message("exited")
    world.daemon.down = True

    assert agent.wait(15) == 0
    assert world.off.exists()


def test_a_lifetime_ends_in_a_drain(world: World) -> None:
    """max_lifetime_s over: the job is saved before the power goes."""
    _running(world, run=TRAIN, max_lifetime_s=2.5)

    assert world.message("drained")["saved"] is True
    until(world.off.exists)
