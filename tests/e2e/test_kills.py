"""`kill -9` of everything at random moments, full and read-only disks, locked databases, stepped clocks: no job lost, no work done twice at once.

Every case ends with `World.at_peace`: no process, no machine and no unverifiable checkpoint left, and the ledger equal to the cloud's own records.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotd_local import control
from tests.e2e.world import World, one_at_a_time, uninterrupted, world
from tests.unit.node.fakes import until
from tests.unit.node.world import instance

STEPS = 60
PACE_S = 0.05
#: In an order in which the first four, which `make test` runs, are those whose end is not covered by the adoption tests.
VICTIMS = ("agent", "machine", "job", "shim", "daemon")
CASES = [pytest.param(seed, marks=[pytest.mark.slow] if seed >= 4 else [], id=f"{seed}-{VICTIMS[seed % 5]}") for seed in range(30)]


@pytest.mark.parametrize("seed", CASES)
def test_kill_9_at_a_random_moment(seed: int) -> None:
    """Whoever dies whenever: the job ends with the right weights, and its witness shows no two processes at work and no step left out."""
    dice = random.Random(seed)
    step, moment, notice = dice.randint(1, STEPS - 10), dice.uniform(0, 3 * PACE_S), dice.random() < 0.3
    victim = VICTIMS[seed % len(VICTIMS)]
    print(f"seed {seed}: kill -9 of the {victim} {moment:.3f} s after step {step}{', during a notice' if notice else ''}")  # noqa: T201 - pytest shows it of a case that fails
    with world() as house:
        job = house.train("job", STEPS, PACE_S, retries={"on_error": 3})
        house.steps("job", step)
        first = house.instance(job, 1)
        if notice:
            control.reclaim(house.cloud, first)
        time.sleep(moment)
        kill(house, first, victim)
        if victim == "daemon":
            house.start()
        answer = house.finished(job)
        one_at_a_time(house.witness("job"), STEPS, {c["step"]: c for c in answer["checkpoints"]})
        assert house.weights(job) == uninterrupted(STEPS)
        house.at_peace()


def kill(house: World, token: str, victim: str) -> None:
    """End one process without a word. One that has gone by itself meanwhile is as dead."""
    if victim == "daemon":
        house.kill()
        return
    pid = house.process(token, victim)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("jobs", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_a_daemon_is_killed_under_load(jobs: int) -> None:
    """Twice in the middle of everything: each job runs to its end, once."""
    run = 'for i in 1 2 3; do echo "$$ $(cut -d" " -f1 /proc/uptime) $i" >>"$EXAMPLE_WITNESS"; sleep 0.2; done'
    with world() as house:
        ids = [house.submit(f"short-{number}", run) for number in range(jobs // 2)]
        house.until(house.records, "the first machine is launched")
        house.kill()
        house.start()
        ids += [house.submit(f"short-{number}", run) for number in range(jobs // 2, jobs)]
        house.until(lambda: any(house.witness(f"short-{number}") for number in range(jobs)), "the first job runs")
        house.kill()
        house.start()
        for number, job in enumerate(ids):
            answer = house.finished(job, seconds=300)
            assert [a["number"] for a in answer["attempts"]] == [1]
            assert [line.step for line in house.witness(f"short-{number}")] == [1, 2, 3]
        house.at_peace()


@pytest.fixture(name="disk")
def _disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own, for root on a Linux that lets it mount one."""
    mount = tmp_path / "disk"
    mount.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(mount)], check=False, capture_output=True).returncode
    ):
        pytest.skip("a file system cannot be mounted here")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_full_state_directory(disk: Path) -> None:
    """The job runs on, whoever asks is told in a sentence that the disk is full, and with room on it all goes on by itself, nothing lost."""
    with world(state_dir=disk / "state") as house:
        job = house.train("job", STEPS, PACE_S)
        house.steps("job", 5)
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
            while True:
                stream.write(b"x" * 4096)
        house.steps("job", 45)
        said = house.cli("run", "--policy", "spot", "--no-workdir", "--", "true", check=False)
        assert said.code in {1, 2}
        assert "full" in said.sentence()
        assert said.err.count("\n") == 1
        assert [j["id"] for j in house.cli("jobs", "--json").json["jobs"]] == [job]
        assert house.daemon.poll() is None
        filler.unlink()
        answer = house.finished(job)
        assert len(answer["attempts"]) == 1
        assert answer["checkpoints"][-1]["step"] == STEPS
        one_at_a_time(house.witness("job"), STEPS)
        assert house.weights(job) == uninterrupted(STEPS)
        house.at_peace()


def test_a_read_only_state_directory(disk: Path) -> None:
    """A daemon that may not write there says so and does nothing; the job of the one before runs on and is adopted by the one after."""
    with world(state_dir=disk / "state") as house:
        job = house.train("job", STEPS, PACE_S)
        house.steps("job", 5)
        house.kill()
        remount(disk, "ro")
        said = house.cli("daemon", "--config", house.config, check=False)
        assert said.code == 2
        assert str(disk) in said.sentence()
        assert said.err.count("\n") == 1
        house.steps("job", 20)
        remount(disk, "rw")
        house.start()
        assert len(house.finished(job)["attempts"]) == 1
        one_at_a_time(house.witness("job"), STEPS)
        assert house.weights(job) == uninterrupted(STEPS)
        house.at_peace()


def remount(disk: Path, mode: str) -> None:
    """Change a mounted file system's mode."""
    subprocess.run(["mount", "-o", f"remount,{mode}", str(disk)], check=True)


@pytest.mark.parametrize("seconds", [4.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_a_database_locked_by_another_process(seconds: float) -> None:
    """A backup holds the lock while an instance is reclaimed: the job saves all the same, and what was said meanwhile is heard later."""
    with world(notice_s=6) as house:
        job = house.train("job", STEPS, PACE_S)
        house.steps("job", 25)
        first = house.instance(job, 1)
        house.saved(job)
        with contextlib.closing(sqlite3.connect(house.state / "spotd.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            control.reclaim(house.cloud, first)
            assert house.cli("jobs", "--json").json["jobs"][0]["id"] == job
            time.sleep(seconds)
            other.execute("ROLLBACK")
        answer = house.finished(job)
        one_at_a_time(house.witness("job"), STEPS, {c["step"]: c for c in answer["checkpoints"]})
        assert [a["reason"] for a in answer["attempts"]] == ["reclaimed", "exited"]
        assert answer["job"]["preemptions"] == 1
        assert house.weights(job) == uninterrupted(STEPS)
        house.at_peace()


#: The agent's zip with a wall clock that is off by what stands in a file: the clock of the instance, stepped under it, without stepping ours.
STEPPED = """\
import sys, time
real = time.time
def stepped():
    try:
        with open({file!r}) as stream:
            return real() + float(stream.read())
    except (OSError, ValueError):
        return real()
time.time = stepped
from spotd.node.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_an_instances_clock_that_is_stepped(tmp_path: Path) -> None:
    """A day forward and two back while the job runs, and again within the notice: heartbeats, deadline and save do not notice."""
    with instance(tmp_path) as house:
        offset = tmp_path / "offset"
        with zipfile.ZipFile(house._zip) as archive:
            content = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(house._zip, "w") as archive:
            for name, data in {**content, "__main__.py": STEPPED.format(file=str(offset)).encode()}.items():
                archive.writestr(name, data)
        save = 'mkdir -p ckpt/a; echo 1 >ckpt/a/w; echo \'{"checkpoint": "a", "step": 1}\' >>$SPOTD_PROGRESS_FILE'
        house.daemon.spec.update(watch="imds", run=f"until [ -e $SPOTD_NOTICE_FILE ]; do sleep 0.05; done; {save}; sleep 60")
        house.agent()
        house.message("started")
        for days in (1, -1):
            offset.write_text(str(days * 86400))
            before = len(house.daemon.syncs)
            until(lambda before=before: len(house.daemon.syncs) >= before + 3)  # type: ignore[misc] # a default binds the loop's variable
        house.imds.reclaim(20)
        house.message("notice")
        offset.write_text(str(2 * 86400))
        drained = house.message("drained")
        assert (drained["saved"], drained["step"]) == (True, 1)
        assert 17 <= drained["seconds_given"] <= 21
        assert drained["seconds_used"] < 10
