"""Real agents against a daemon on loopback: a job from bootstrap to its exit."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.node.fakes import certificate, tar_of, until
from tests.unit.node.world import World, instance


@pytest.fixture(name="world")
def _world(tmp_path: Path) -> Iterator[World]:
    with instance(tmp_path) as world:
        yield world


def test_a_job_runs_from_bootstrap_to_power_off(world: World) -> None:
    """Workdir, setup, gate, run, checkpoint, logs, exit and power-off happen in this order, each said once."""
    archive = tar_of({"train.sh": "echo training >&2; mkdir -p ckpt/one; echo w > ckpt/one/w; echo $SPOTD_ATTEMPT > ckpt/one/a\n"})
    world.daemon.objects["/o/work"] = archive
    say = """echo '{"step": 7, "loss": 0.5}' >> $SPOTD_PROGRESS_FILE; echo '{"checkpoint": "one", "step": 7}' >> $SPOTD_PROGRESS_FILE"""
    world.daemon.spec.update(
        run=f"bash train.sh; {say}",
        setup="echo setting up; test -f train.sh",
        workdir={"url": "/o/work", "sha256": hashlib.sha256(archive).hexdigest()},
    )
    world.daemon.gate = "wait"
    agent = world.agent()
    world.message("ready")
    until(lambda: world.daemon.syncs[-1]["state"] == "ready")
    assert not (world.root / "run").exists()

    world.daemon.gate = "open"
    exited = world.message("exited")
    world.daemon.power_off = True

    assert agent.wait(10) == 0
    assert world.off.exists()
    said = [message["type"] for message in world.daemon.messages]
    assert [said[0], *sorted(said[1:3]), *said[3:]] == ["ready", "checkpoint", "started", "exited"]
    assert (exited["code"], exited["signal"], exited["done"], exited["step"]) == (0, None, False, 7)
    assert world.daemon.logs.decode().splitlines() == ["setting up", "training"]
    (manifest,) = world.daemon.manifests()
    assert manifest["name"] == "one"
    assert manifest["step"] == 7
    assert [file["path"] for file in manifest["files"]] == ["one/a", "one/w"]
    assert world.daemon.objects["/o/00003-000001/0"] == b"3\n"


def test_the_job_sees_what_it_needs_and_no_credential(world: World) -> None:
    """The promised variables are set, the daemon's credentials are neither there nor in a command line, and files are private."""
    world.daemon.spec.update(
        run="env > env.txt; cat /proc/$PPID/cmdline > shim.txt; exit 4",
        env={"WANDB_MODE": "offline", "SPOTD_JOB_ID": "mine"},
        num_nodes=2,
        rank=1,
        master_addr="10.0.0.9",
    )
    world.agent()

    assert world.message("exited")["code"] == 4
    seen = dict(line.split("=", 1) for line in (world.work / "env.txt").read_text().splitlines() if "=" in line)
    assert seen["SPOTD_JOB_ID"] == "job-1"
    assert seen["SPOTD_CHECKPOINT_DIR"] == str(world.work / "ckpt")
    assert (seen["SPOTD_RESUME_FROM"], seen["WANDB_MODE"]) == ("", "offline")
    assert (seen["MASTER_ADDR"], seen["NODE_RANK"], seen["PET_NNODES"], seen["PET_NODE_RANK"]) == ("10.0.0.9", "1", "2", "1")
    assert "secret" not in "".join(seen.values())
    assert "secret" not in (world.work / "shim.txt").read_text()
    world.kill_agent()  # so that no file is being replaced while we look
    private = [path for path in (world.root / "agent").rglob("*") if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert private == []
    assert stat.S_IMODE((world.root / "agent").stat().st_mode) == 0o700


def test_a_failed_setup_is_reported_and_the_job_is_not_started(world: World) -> None:
    """Setup's exit code arrives as `failed` in phase setup."""
    world.daemon.spec.update(setup="exit 9", run="touch started")
    world.agent()

    failed = world.message("failed")

    assert (failed["phase"], failed["code"]) == ("setup", 9)
    assert not (world.work / "started").exists()


def test_a_job_whose_directory_is_gone_is_not_started(world: World) -> None:
    """`started` is said of the job's process, never of an attempt to make one: this is `failed`, with the system's sentence."""
    world.daemon.spec.update(setup="rm -rf ../work", run="true")
    world.agent()

    assert "FileNotFoundError" in world.message("failed")["detail"]
    assert world.daemon.of_type("started") == []


def test_a_workdir_with_the_wrong_sum_is_refused(world: World) -> None:
    """What was fetched is not what was announced: `failed` in phase workdir."""
    world.daemon.objects["/o/work"] = tar_of({"a": "b"})
    world.daemon.spec.update(workdir={"url": "/o/work", "sha256": "0" * 64})
    world.agent()

    assert world.message("failed", 30)["phase"] == "workdir"


@pytest.mark.parametrize("status", [401, 409])
def test_a_refused_bootstrap_is_final(world: World, status: int) -> None:
    """401 and 409 end the agent with exit code 3 and a sentence."""
    world.daemon.refuse_bootstrap = status

    assert world.agent().wait(10) == 3
    assert "bootstrap refused" in world.errors()


def test_only_the_pinned_certificate_is_talked_to(world: World) -> None:
    """Another certificate, however valid, gets no credential: the agent waits for the right one."""
    world.agent(certificate=certificate("someone else")[0])

    until(lambda: "not the pinned one" in world.errors())
    assert world.daemon.nonce is None


def test_the_newest_checkpoint_that_verifies_is_restored(world: World) -> None:
    """A corrupt newest checkpoint is left out as a whole and named in `ready`; the job resumes from the one before."""
    older = world.daemon.keep_checkpoint("00002-000006", {"w": b"old", "deep/er": b"x" * 300_000}, 60)
    newer = world.daemon.keep_checkpoint("00002-000007", {"w": b"new", "only-here": b"y"}, 70)
    world.daemon.objects["/o/00002-000007/0"] = b"nex"
    world.daemon.spec.update(resume=[newer, older], resume_required=True, run="cat $SPOTD_RESUME_FROM/w > got; ls ckpt >> got")
    world.agent()

    ready = world.message("ready")
    world.message("exited")

    assert (ready["restored_checkpoint"], ready["restored_step"]) == ("00002-000006", 60)
    assert ready["skipped_checkpoints"][0].startswith("00002-000007: ")
    assert (world.work / "got").read_text() == "olddeep\nw\n"
    assert world.daemon.manifests()[-1]["checkpoint"] == "00002-000007"  # what was restored is no new checkpoint


def test_what_the_old_attempt_saved_last_is_resumed(world: World) -> None:
    """A checkpoint committed while this instance waited at the gate replaces the one restored at boot, before the job starts."""
    older = world.daemon.keep_checkpoint("00002-000006", {"w": b"old", "gone": b"x"}, 60)
    newer = world.daemon.keep_checkpoint("00002-000007", {"w": b"new"}, 70)
    world.daemon.spec.update(resume=[older], resume_required=True, run="cat $SPOTD_RESUME_FROM/w > got; ls ckpt >> got")
    world.daemon.gate = "closed"
    world.agent()
    assert world.message("ready")["restored_step"] == 60
    with world.daemon.lock:
        world.daemon.resume = [newer, older]
        world.daemon.gate = "open"
    world.message("exited")

    assert (world.work / "got").read_text() == "neww\n"
    assert world.message("started")["restored_checkpoint"] == "00002-000007"


def test_no_silent_restart_from_zero(world: World) -> None:
    """Earlier attempts had checkpoints and none verifies: the job does not start."""
    entry = world.daemon.keep_checkpoint("00002-000007", {"w": b"new"}, 70)
    world.daemon.objects["/o/00002-000007/manifest"] += b" "
    world.daemon.spec.update(resume=[entry], resume_required=True, run="touch started")
    world.agent()

    failed = world.message("failed")

    assert failed["phase"] == "restore"
    assert "00002-000007" in failed["detail"]
    assert not (world.work / "started").exists()


def test_a_job_that_never_announces_is_saved_when_its_tree_is_at_rest(world: World) -> None:
    """Five quiet seconds without a writer make a checkpoint; a file held open for writing does not, nor does the death of its writer."""
    world.daemon.spec.update(run="echo a > ckpt/a; sleep 6.5; exec 3> ckpt/b; echo half >&3; sleep 6.5; exit 1")
    world.agent()

    assert world.message("checkpoint")["trigger"] == "quiet"
    assert world.message("exited")["code"] == 1

    assert [[file["path"] for file in manifest["files"]] for manifest in world.daemon.manifests()] == [["a"]]


def test_a_finished_job_is_saved_a_last_time(world: World) -> None:
    """Exit 0 makes the tree as it is a checkpoint, committed before the exit is reported."""
    world.daemon.spec.update(run="echo a > ckpt/a; ln -s a ckpt/latest; echo '{\"done\": true}' >> $SPOTD_PROGRESS_FILE")
    world.agent()

    assert world.message("exited")["done"] is True
    assert [message["type"] for message in world.daemon.messages][-2:] == ["checkpoint", "exited"]
    assert world.message("checkpoint")["trigger"] == "exit"
    assert world.daemon.manifests()[0]["links"] == [{"path": "latest", "target": "a"}]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a job as somebody else")
def test_the_job_runs_as_its_own_user() -> None:
    """With --user the job owns its directories, can save, and cannot read the agent's files."""
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    directory.chmod(0o711)
    try:
        with instance(directory) as world:
            run = f"id -un > ckpt/who; cat {world.root}/agent/session.json && touch ckpt/leak; echo '{{\"step\": 3}}' >> $SPOTD_PROGRESS_FILE"
            world.daemon.spec.update(run=run, setup="touch made-by-setup")
            world.agent(user="nobody")
            assert world.message("exited")["step"] == 3
            assert (world.work / "ckpt/who").read_text() == "nobody\n"
            assert [file["path"] for file in world.daemon.manifests()[0]["files"]] == ["who"]
    finally:
        shutil.rmtree(directory)
