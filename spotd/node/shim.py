"""The shim: owner of one process tree (the job's, its setup's or a hook's), independent of the agent that started it.

It reads ``launch.json`` in its directory, runs one command by ``bash -c``, writes what the tree prints to the log and its end to ``exit.json``.
As the tree's subreaper it knows every descendant, also those that forked twice and started a session of their own.
One shim per directory, ever: a second one finds the lock or ``shim.json`` and leaves, so starting it again is harmless.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import pwd
import select
import signal
import subprocess
import sys
import time
from typing import Any

from spotd.node import files, procfs
from spotd.node.outputs import BoundedLog

_PR_SET_CHILD_SUBREAPER = 36
_EXIT_BYTES = 2048  # reserved on disk before the job starts, so that a disk filled by the job cannot swallow its exit status
_LEFTOVER_GRACE_S = 2.0


class Shim:
    """One run of one command. `run` returns when no process of the tree is left."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._launch = files.read_json(os.path.join(directory, "launch.json")) or {}
        self._log = BoundedLog(self._launch["log"], self._launch["log_limit"], self._launch["output_limit"], self._launch["task"])
        self._main: int | None = None
        self._status: int | None = None
        self._wake_read, self._wake_write = os.pipe()
        self._end_at: float | None = None  # when TERM turns into KILL; None while nobody asked us to end
        self._asked = False
        self._next_check = 0.0

    def run(self) -> int:
        """Run the command to its end; the exit code of this process, which nobody needs."""
        lock = os.open(os.path.join(self._directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        if os.path.exists(self._path("shim.json")):
            return 0
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        with open(self._path("exit.json.new"), "wb") as reserved:
            reserved.write(b" " * _EXIT_BYTES)
            reserved.flush()
            os.fsync(reserved.fileno())
        self._record(None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, self._signalled)
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        try:
            output = self._start()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._finish(error=f"{type(error).__name__}: {error}")
            return 1
        self._supervise(output)
        self._finish()
        return 0

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _signalled(self, number: int, _frame: Any) -> None:
        if number != signal.SIGCHLD:
            self._asked = True

    def _record(self, child: int | None) -> None:
        me = os.getpid()
        files.write_json(
            self._path("shim.json"),
            {"pid": me, "start_time": procfs.start_time(me), "boot_id": procfs.boot_id(), "child": child},
        )

    def _start(self) -> int:
        """Start the command in a session of its own (``kill 0`` in a script must not reach us); the reading end of its output."""
        account = pwd.getpwnam(self._launch["user"]) if self._launch.get("user") else None
        read, write = os.pipe()
        try:
            process = subprocess.Popen(
                ["bash", "-c", self._launch["command"]],
                cwd=self._launch["cwd"],
                env=self._launch["env"],
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                start_new_session=True,
                **({} if account is None else _as_user(account)),
            )
        finally:
            os.close(write)
        self._main = process.pid
        process.returncode = 0  # we reap by waitpid(-1); subprocess must not
        os.set_blocking(read, False)
        self._record(process.pid)
        return read

    def _supervise(self, output: int) -> None:
        """Until the tree is gone: move output to the log, reap, and end the tree when asked or when its main process is gone."""
        watched = [self._wake_read, output]
        while True:
            left = self._end_step()
            if self._status is not None and not left:
                break
            timeout = 1.0 if self._end_at is None else 0.05
            ready, _, _ = select.select(watched, [], [], timeout)
            if self._wake_read in ready:
                _drained(self._wake_read)
            if output in ready and not self._pump(output):
                watched.remove(output)
        while output in watched and self._pump(output, only_ready=True):
            pass
        os.close(output)

    def _pump(self, output: int, *, only_ready: bool = False) -> bool:
        """Move one piece of output; False at its end (or, with *only_ready*, when none is waiting)."""
        try:
            data = os.read(output, 256 << 10)
        except BlockingIOError:
            return not only_ready
        if data:
            self._log.write(data)
        return bool(data)

    def _end_step(self) -> list[int]:
        """Reap; decide whether the tree must end; if so, signal it. The descendants that are left, [] unless ending."""
        self._reap()
        now = time.monotonic()
        if self._end_at is None:
            if now >= self._next_check:
                self._next_check = now + 1.0
                self._asked = self._asked or os.path.exists(self._path("end.json")) or self._fenced()
            if self._asked:
                grace = float((files.read_json(self._path("end.json")) or {}).get("grace_s", 5.0))
            elif self._status is not None:
                grace = _LEFTOVER_GRACE_S
            else:
                return []
            self._end_at = now + grace
            self._signal_all(signal.SIGTERM)
        left = procfs.descendants(os.getpid())
        if left and now >= self._end_at:
            self._signal_all(signal.SIGKILL)
        return left

    def _fenced(self) -> bool:
        """Whether the agent has been silent for so long that the daemon may have replaced us; see `spotd.node.leases`."""
        fence = self._launch.get("fence")
        if not fence:
            return False
        last = (files.read_json(fence["file"]) or {}).get("contact_at")
        return last is not None and time.clock_gettime(time.CLOCK_BOOTTIME) - float(last) > float(fence["limit_s"])

    def _signal_all(self, number: int) -> None:
        for pid in procfs.descendants(os.getpid()):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._main:
                self._status = status

    def _finish(self, error: str | None = None) -> None:
        """Write how it ended into the reserved blocks, then give the file its name."""
        status = self._status
        value = {
            "code": os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
            "signal": os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None,
            "asked": self._asked,
            "error": None if error is None else error[:500],
            "ended_at": time.clock_gettime(time.CLOCK_BOOTTIME),
        }
        while True:
            try:
                with open(self._path("exit.json.new"), "r+b") as stream:
                    stream.write(json.dumps(value).encode("ascii").ljust(_EXIT_BYTES))
                    stream.flush()
                    os.fsync(stream.fileno())
                os.replace(self._path("exit.json.new"), self._path("exit.json"))
                files.sync_directory(self._directory)
                return
            except FileNotFoundError:
                return  # the whole directory was taken away: nobody is left to tell
            except OSError as problem:
                self._log.write(f"spotd: cannot write the exit status: {problem}; trying again\n".encode())
                time.sleep(1.0)


def _as_user(account: pwd.struct_passwd) -> dict[str, Any]:
    return {
        "user": account.pw_uid,
        "group": account.pw_gid,
        "extra_groups": os.getgrouplist(account.pw_name, account.pw_gid),
    }


def _drained(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        return


def main(directory: str) -> int:
    """Run the shim of *directory*."""
    os.umask(0o077)
    if not os.path.exists(os.path.join(directory, "launch.json")):
        sys.stderr.write(f"spotd shim: no launch.json in {directory}\n")
        return 2
    return Shim(directory).run()
