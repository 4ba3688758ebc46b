"""The agent's handle on one shim: start it, find it again after a restart, end its tree, learn how it ended."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from spotd.node import files, procfs
from spotd.node.bootstrap import program_file
from spotd.node.clock import Clock
from spotd.node.voice import say

LOG_LIMIT = 1 << 30
_LOOK_S = 2.0
_APPEAR_S = 30.0  # a shim that has not shown itself by then never will


@dataclasses.dataclass(frozen=True)
class Exit:
    """How a task ended. *lost*: its shim was killed, so that nobody saw the exit status."""

    code: int | None
    signal: int | None
    asked: bool = False
    error: str | None = None
    lost: bool = False


class Task:
    """One command under a shim, in a directory of its own. Every method may be called again, also by a restarted agent."""

    def __init__(self, directory: str, name: str, instance: str, clock: Clock) -> None:
        """*name* is ``run``, ``setup`` or ``hook``: with *instance* it marks the processes' environment."""
        self.directory = directory
        self.name = name
        self._instance = instance
        self._clock = clock
        self._started_at: float | None = None
        self._known: dict[int, int] = {}
        self._next_look = 0.0
        self._exit: Exit | None = None
        self._children: list[subprocess.Popen[bytes]] = []
        self._refused = False  # a shim ended with an error of its own

    @property
    def launched(self) -> bool:
        """Whether it was ever started."""
        return os.path.exists(self._path("launch.json"))

    @property
    def begun(self) -> bool:
        """Whether the command itself was seen to run, not only its shim."""
        return (files.read_json(self._path("shim.json")) or {}).get("child") is not None

    def start(self, command: str, cwd: str, env: Mapping[str, str], **options: Any) -> None:
        """Start the shim with the command, once ever. *options*: log, user, output_limit, fence."""
        if not self.launched:
            files.private_directory(self.directory)
            # Everything secret (the job's environment) goes through this file, nothing through a command line.
            launch = {
                "task": self.name,
                "command": command,
                "cwd": cwd,
                "env": {**env, "SPOTD_INSTANCE": self._instance, "SPOTD_TASK": self.name},
                "log": options["log"],
                "log_limit": LOG_LIMIT,
                "output_limit": options.get("output_limit", LOG_LIMIT),
                "user": options.get("user"),
                "fence": options.get("fence"),
            }
            files.write_json(self._path("launch.json"), launch)
        self._spawn()

    def exit(self) -> Exit | None:
        """How the task ended, None while its tree lives. A tree whose shim was killed is ended here first, and that is a crash."""
        self._reap()
        if self._exit is not None or not self.launched:
            return self._exit
        record = self._read_exit()
        if record is None and self._shim_runs():
            self._remember()
        elif record is None:
            record = self._read_exit() or self._lost()
        self._exit = record
        return record

    def end(self, grace_s: float) -> None:
        """Ask the shim to end the tree: TERM, *grace_s* seconds, KILL. Returns at once."""
        if not self.launched or self.exit() is not None:
            return
        if not os.path.exists(self._path("end.json")):
            try:
                files.write_json(self._path("end.json"), {"grace_s": grace_s})
            except OSError:
                say(f"{self.directory} takes no end.json; the signal alone must do")
        shim = self._shim()
        if shim is not None and procfs.is_running(*shim):
            _kill(shim[0], signal.SIGTERM)

    def pids(self) -> list[int]:
        """Every process of the tree, without the shim."""
        shim = self._shim()
        return procfs.descendants(shim[0]) if shim is not None and procfs.is_running(*shim) else []

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _spawn(self) -> None:
        """Start a shim; where one runs or ran already, the new one sees that and leaves."""
        zipped = program_file()
        if zipped is not None:
            program = [sys.executable, zipped]
        else:
            root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
            code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from spotd.node.main import main; sys.exit(main(sys.argv[1:]))"
            program = [sys.executable, "-c", code, root]
        shim = subprocess.Popen(
            [*program, "shim", "--directory", self.directory],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._children.append(shim)
        self._started_at = self._clock.monotonic()

    def _reap(self) -> None:
        """Let ended shims go; one that found another at work has ended with 0."""
        self._refused = self._refused or any(child.poll() not in (None, 0) for child in self._children)
        self._children = [child for child in self._children if child.poll() is None]

    def _shim(self) -> tuple[int, int] | None:
        """Return (pid, start time) of the shim as it wrote them, None before that or in another boot."""
        record = files.read_json(self._path("shim.json"))
        if record is None or record.get("boot_id") != procfs.boot_id():
            return None
        return int(record["pid"]), int(record["start_time"])

    def _shim_runs(self) -> bool:
        if not os.path.exists(self._path("shim.json")):
            if self._started_at is None:
                self._spawn()  # the agent died between writing launch.json and starting the shim
            waited = self._clock.monotonic() - (self._started_at or 0.0)
            return waited < _APPEAR_S and not (self._refused and not self._children)
        shim = self._shim()
        return shim is not None and procfs.is_running(*shim)

    def _read_exit(self) -> Exit | None:
        record = files.read_json(self._path("exit.json"))
        if record is None:
            return None
        return Exit(record["code"], record["signal"], record["asked"], record["error"])

    def _remember(self) -> None:
        """Note who belongs to the tree: once its shim is gone, one that left session and environment behind could not be told any more."""
        now = self._clock.monotonic()
        if now >= self._next_look:
            self._next_look = now + _LOOK_S
            started = {pid: procfs.start_time(pid) for pid in self.pids()}
            self._known = {pid: at for pid, at in started.items() if at is not None}

    def _lost(self) -> Exit | None:
        """End what the killed shim left behind; the crash once nothing is left, None until then."""
        if not os.path.exists(self._path("shim.json")):
            return Exit(None, None, error="the shim could not be started")
        left = procfs.marked([f"SPOTD_INSTANCE={self._instance}", f"SPOTD_TASK={self.name}"])
        record = files.read_json(self._path("shim.json")) or {}
        if record.get("child") is not None and record.get("boot_id") == procfs.boot_id():
            known = [pid for pid, started in self._known.items() if procfs.is_running(pid, started)]
            left = sorted({*left, *procfs.in_session(int(record["child"])), *known} - {os.getpid()})
        for pid in left:
            _kill(pid, signal.SIGKILL)
        # One look after the kill: a process may have forked between the scan and the signal.
        if left:
            return None
        return Exit(None, int(signal.SIGKILL), lost=True)


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return
