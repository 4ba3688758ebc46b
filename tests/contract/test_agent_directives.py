"""What an agent is told at each heartbeat: gate, newest checkpoint, drain, stop, power-off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spotd.core import events as e
from spotd.core.attempt import AttemptState, DrainKind, DrainOrder, EndReason, Purpose
from spotd.core.fold import fold
from spotd.core.instance import InstanceState
from spotd.core.job import Outcome
from tests.contract import agent_world as w
from tests.contract.agent_world import ATTEMPT, INSTANCE, JOB, START, Daemon, a_sync, said


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon with one job on one instance that has not called yet."""
    with Daemon(tmp_path) as daemon:
        yield daemon


def test_gate_and_heartbeat(daemon: Daemon) -> None:
    """An agent waits at the gate calling every second; once the gate is open it runs the job and calls as its provider says."""
    assert daemon.sync().json["heartbeat_s"] == 10.0
    waiting = daemon.sync(said(w.READY, 1), state="ready").json
    assert (waiting["gate"], waiting["heartbeat_s"]) == ("closed", 1.0)
    daemon.open_gate()
    assert daemon.sync(state="ready").json["gate"] == "open"
    running = daemon.sync(said(w.STARTED, 2), state="running").json
    assert (running["gate"], running["heartbeat_s"]) == ("open", 10.0)


def test_newest_checkpoint_is_named_at_the_gate(daemon: Daemon) -> None:
    """What the old attempt saved while this one waited is named when the gate opens, until the job has started."""
    assert "resume" not in daemon.sync(said(w.READY, 1), state="ready").json
    daemon.recorder.record([e.CheckpointCommitted(START, INSTANCE, w.a_checkpoint(7))])
    daemon.open_gate()
    assert [c["checkpoint"] for c in daemon.sync(state="ready").json["resume"]] == ["00001-000007"]
    assert "resume" not in daemon.sync(said(w.STARTED, 2), state="running").json


@pytest.mark.parametrize(("kind", "word"), [(DrainKind.RETURN, "move"), (DrainKind.CANCEL, "cancel"), (DrainKind.DISPLACED, "displaced")])
def test_drain_order_is_passed_on(daemon: Daemon, kind: DrainKind, word: str) -> None:
    """An order to checkpoint and stop is given with the seconds that are left of it, at every call; a return is a move to the agent."""
    daemon.sync(said(w.READY, 1), state="ready")
    daemon.open_gate()
    order = DrainOrder("order-1", kind, START, START + timedelta(seconds=90))
    daemon.recorder.record([e.DrainOrdered(START, ATTEMPT, order, "because")])
    daemon.clock.step(30)
    assert daemon.sync(state="running").json["drain"] == {"id": "order-1", "kind": word, "seconds": 60.0}
    daemon.clock.step(100)
    answer = daemon.sync(state="draining", acknowledged_drain="order-1").json
    assert (answer["drain"]["seconds"], answer["heartbeat_s"]) == (0.0, 1.0)


def test_stop_and_power_off(daemon: Daemon) -> None:
    """An agent of a superseded attempt is stopped at once, and powered off when its instance is to end."""
    daemon.sync(said(w.READY, 1), state="ready")
    daemon.open_gate()
    daemon.recorder.record([e.AttemptEnded(START, ATTEMPT, EndReason.UNREACHABLE, "")])
    answer = daemon.sync(state="running").json
    assert (answer["gate"], answer["stop"], answer["power_off"]) == ("closed", "superseded", False)
    daemon.recorder.record([e.TerminateRequested(START, INSTANCE, "over")])
    assert daemon.sync(state="exited").json["power_off"] is True


def test_job_that_ended_well_is_not_stopped(daemon: Daemon) -> None:
    """An agent that reported the end is told to power off, never that its work is in vain."""
    daemon.sync(said(w.READY, 1), state="ready")
    daemon.open_gate()
    daemon.sync(said(w.STARTED, 2), said(w.EXITED, 3), state="exited")
    daemon.recorder.record([e.JobFinished(START, JOB, Outcome.SUCCEEDED, ""), e.TerminateRequested(START, INSTANCE, "over")])
    answer = daemon.sync(state="exited").json
    assert (answer["stop"], answer["power_off"]) == (None, True)


def test_ghost_is_told_to_end(daemon: Daemon) -> None:
    """An instance whose end was proved and that speaks all the same is stopped and switched off; what it says is still heard."""
    session = daemon.session()
    daemon.commit_manifest("00001-000001")
    daemon.change_instance(state=InstanceState.GONE)
    answer = daemon.request("POST", "/v1/agent/sync", json=a_sync(said(w.CHECKPOINT, 1), state="running"), headers=session).json
    assert (answer["stop"], answer["power_off"], answer["gate"], answer["acknowledged"]) == ("ended", True, "closed", 1)
    assert len(daemon.recorder.world.checkpoints[JOB]) == 1


def test_instance_that_leaves_memory_during_its_call_is_acknowledged(daemon: Daemon) -> None:
    """The last word of a job may make the engine forget it in the same step: it is acknowledged, and the agent told to end."""
    session = daemon.session()

    record = daemon.recorder.record

    def forget(events: Any) -> None:
        record(events)
        daemon.recorder.world = replace(daemon.recorder.world, instances={}, attempts={}, jobs={})

    daemon.recorder.record = forget  # type: ignore[method-assign] # what Engine does with jobs that own nothing any more
    answer = daemon.request("POST", "/v1/agent/sync", json=a_sync(said(w.EXITED, 1), state="exited"), headers=session).json
    assert (answer["acknowledged"], answer["power_off"]) == (1, True)
    assert daemon.request("POST", "/v1/agent/sync", json=a_sync(), headers=session).status == 401


def test_attempts_do_not_disturb_each_other(daemon: Daemon) -> None:
    """The drained report of the old attempt's instance says nothing of the replacement's, whose session is its own."""
    daemon.sync(said(w.READY, 1), state="ready")
    daemon.open_gate()
    replacement = w.an_instance("instance-2", "attempt-2", 2)
    daemon.recorder.world, _ = fold(
        daemon.recorder.world,
        [e.AttemptPlaced(START, JOB, "attempt-2", 2, Purpose.REPLACE), e.LaunchRequested(START, replacement)],
    )
    assert daemon.sync(said(w.READY, 1), state="ready", instance="instance-2").json["gate"] == "closed"
    assert daemon.sync(said(w.NOTICE, 2), said(w.DRAINED, 3), state="drained").json["acknowledged"] == 3
    attempts = daemon.recorder.world.attempts
    assert attempts[ATTEMPT].state is AttemptState.ENDED
    assert attempts["attempt-2"].state is AttemptState.READY
