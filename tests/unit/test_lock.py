"""One daemon per state directory."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from spotd.daemon.lock import AlreadyRunning, StateDirUnusable, StateLock

HOLDER = """
import sys, pathlib
from spotd.daemon.lock import StateLock
lock = StateLock.acquire(pathlib.Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_second_daemon_is_told_the_pid_of_the_first(tmp_path: Path) -> None:
    """A second daemon on the same directory gets an error that names the first one's process and what to do."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"locked\n"
        with pytest.raises(AlreadyRunning, match=f"process {first.pid}") as refused:
            StateLock.acquire(tmp_path)
        assert refused.value.pid == first.pid
        first.kill()
        assert first.wait() == -signal.SIGKILL
    # The kernel released it: nothing is left to be cleaned up by hand.
    StateLock.acquire(tmp_path).release()


def test_two_locks_within_one_process_exclude_each_other(tmp_path: Path) -> None:
    """The lock belongs to the object, not to the process."""
    with StateLock.acquire(tmp_path), pytest.raises(AlreadyRunning, match=f"process {os.getpid()}"):
        StateLock.acquire(tmp_path)


def test_a_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    """Release, twice even, lets the next one in."""
    lock = StateLock.acquire(tmp_path)
    lock.release()
    lock.release()
    StateLock.acquire(tmp_path).release()


def test_programs_that_the_daemon_started_do_not_keep_its_lock(tmp_path: Path) -> None:
    """A child that outlives the daemon (a local instance) does not hold the directory."""
    lock = StateLock.acquire(tmp_path)
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, close_fds=False) as child:
        lock.release()
        StateLock.acquire(tmp_path).release()
        assert child.poll() is None
        child.kill()


def test_a_lock_without_a_pid_still_excludes(tmp_path: Path) -> None:
    """A holder that has not written its pid yet is named as another process."""
    with StateLock.acquire(tmp_path):
        (tmp_path / "daemon.lock").write_text("")
        with pytest.raises(AlreadyRunning, match="another process") as refused:
            StateLock.acquire(tmp_path)
    assert refused.value.pid is None


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o750])
def test_the_state_directory_is_closed_to_others(tmp_path: Path, mode: int) -> None:
    """A new directory is 0700, and one that was open to others is closed; the lock file is its owner's only."""
    new, old = tmp_path / "deep" / "new", tmp_path / "old"
    old.mkdir()
    old.chmod(mode)
    for directory in (new, old):
        StateLock.acquire(directory).release()
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE((directory / "daemon.lock").stat().st_mode) == 0o600


def test_a_file_in_the_place_of_the_directory_is_a_sentence(tmp_path: Path) -> None:
    """What is no directory is refused in words."""
    (tmp_path / "state").write_text("")
    with pytest.raises(StateDirUnusable, match="must be a directory"):
        StateLock.acquire(tmp_path / "state")


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    """Nobody can make a daemon truncate another file."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "daemon.lock").symlink_to(victim)
    with pytest.raises(StateDirUnusable):
        StateLock.acquire(tmp_path)
    assert victim.read_text() == "precious"
