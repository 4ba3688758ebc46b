"""Shims and processes, without an agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from spotd.node import procfs
from spotd.node.clock import SystemClock
from spotd.node.shim import Shim
from spotd.node.task import Task
from tests.unit.node.fakes import until


def _launch(directory: Path, **changes: Any) -> Shim:
    launch = {
        "task": "run",
        "command": "true",
        "cwd": str(directory),
        "env": dict(os.environ),
        "log": str(directory / "log"),
        "log_limit": 1 << 20,
        "output_limit": 1 << 20,
        "user": None,
        "fence": None,
    }
    (directory / "launch.json").write_text(json.dumps({**launch, **changes}))
    return Shim(str(directory))


def test_the_fence_falls_when_the_agent_is_silent_too_long(tmp_path: Path) -> None:
    """A dead or hanging agent must not leave a job behind that the daemon may have replaced; no contact file, no fence."""
    contact = tmp_path / "contact.json"
    shim = _launch(tmp_path, fence={"file": str(contact), "limit_s": 60.0})
    assert not shim._fenced()
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    contact.write_text(json.dumps({"contact_at": now - 50}))
    assert not shim._fenced()
    contact.write_text(json.dumps({"contact_at": now - 70}))

    assert shim._fenced()


def _task(directory: Path) -> Task:
    return Task(str(directory / "task"), "run", f"test-{os.getpid()}-{directory.name}", SystemClock())


def _ended(task: Task) -> Any:
    until(lambda: task.exit() is not None and not task._children)
    return task.exit()


@pytest.mark.parametrize(
    ("command", "code", "signal"),
    [("exit 0", 0, None), ("exit 7", 7, None), ("kill -11 $$", None, 11), ("kill 0; sleep 9", None, 15), ("no-such-command", 127, None)],
)
def test_how_a_command_ended(tmp_path: Path, command: str, code: int | None, signal: int | None) -> None:
    """Exit codes and signals arrive; `kill 0` in a script does not reach the shim."""
    task = _task(tmp_path)
    task.start(command, str(tmp_path), dict(os.environ), log=str(tmp_path / "log"))
    ended = _ended(task)

    assert (ended.code, ended.signal, ended.asked, ended.lost) == (code, signal, False, False)


def test_what_a_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    """Its background processes go with it."""
    task = _task(tmp_path)
    task.start("setsid sleep 77 & echo $!", str(tmp_path), dict(os.environ), log=str(tmp_path / "log"))
    ended = _ended(task)

    assert (ended.code, ended.asked) == (0, False)
    assert procfs.marked([f"SPOTD_INSTANCE={task._instance}"]) == []


def test_a_command_runs_once_however_often_it_is_started(tmp_path: Path) -> None:
    """A second shim in the directory leaves; so does one after the end."""
    task = _task(tmp_path)
    for _ in range(3):
        task.start("echo once; sleep 0.3", str(tmp_path), dict(os.environ), log=str(tmp_path / "log"))
    _ended(task)
    again = _task(tmp_path)
    again.start("echo twice", str(tmp_path), dict(os.environ), log=str(tmp_path / "log"))
    _ended(again)

    assert (tmp_path / "log").read_text() == "once\n"


def test_a_command_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    """A missing directory is an error with a text, not an exit code of the job."""
    task = _task(tmp_path)
    task.start("true", str(tmp_path / "missing"), dict(os.environ), log=str(tmp_path / "log"))
    ended = _ended(task)

    assert ended.code is None
    assert "FileNotFoundError" in ended.error


def test_a_writer_is_seen_and_a_reader_is_not(tmp_path: Path) -> None:
    """What /proc tells of open files."""
    (tmp_path / "d").mkdir()
    path = tmp_path / "d/file"
    with path.open("wb"):
        assert procfs.has_writer([os.getpid()], str(tmp_path / "d"))
    with path.open("rb"):
        assert not procfs.has_writer([os.getpid()], str(tmp_path / "d"))


def test_a_full_disk_behind_stderr_is_no_reason_to_fail() -> None:
    """What cannot be said is lost; the agent goes on."""
    code = "from spotd.node.voice import say\nfor _ in range(20000): say('x' * 100)\nimport os; os._exit(5)"
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run([sys.executable, "-c", code], stderr=full, check=False, env={**os.environ, "PYTHONPATH": str(Path.cwd())})

    assert ended.returncode == 5
