"""One machine of the fake: `python -I supervisor.py`, the parent of everything that its user data starts.

It gets a line of JSON on its standard input (directory, command, environment), starts the command there and again when it fails, as a unit with
Restart=on-failure. Then it takes orders from there: `stop SECONDS` shuts down as an operating system does, `kill` is a power cut, and so is the end
of the input: when whoever started it dies, nothing is left. It says `power-off` when the machine wants to be switched off.

Run by its path, so it needs the standard library only, and costs no import of spotd. Linux only: it reads /proc.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

#: Stands in the environment of every process of a machine, with the machine's directory: found also where the supervisor was killed.
MARKER = "SPOTD_FAKE_AWS_MACHINE"
#: In the machine's directory: it wants to be switched off; what it wrote on its console.
POWER_OFF, CONSOLE = "power-off", "console"
_PROC = Path("/proc")
_PR_SET_CHILD_SUBREAPER = 36
_TICK_S = 0.05
_RESTART_S = 0.5
_PAUSE_S = 0.02
#: After the grace, what is left has so long to react to TERM.
_LAST_WORDS_S = 0.2
#: A process in the middle of exec(2) shows no environment for a moment, so one look that finds nobody proves nothing.
_CLEAR_LOOKS = 3


def descendants(pid: int) -> set[int]:
    """Every live process below this one."""
    children: dict[int, list[int]] = {}
    for other in _pids():
        stat = _stat(other)
        if stat is not None and stat[0] not in "ZX":
            children.setdefault(int(stat[1]), []).append(other)
    found: set[int] = set()
    todo = [pid]
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in found:
                found.add(child)
                todo.append(child)
    return found


def marked(directory: str) -> set[int]:
    """Every live process that was started with this machine's marker, and all below it."""
    needle = f"{MARKER}={directory}".encode()
    found: set[int] = set()
    for pid in _pids():
        with contextlib.suppress(OSError):  # it ended meanwhile, or is somebody else's
            stat = _stat(pid)
            if needle in (_PROC / str(pid) / "environ").read_bytes().split(b"\0") and stat is not None and stat[0] not in "ZX":
                found.add(pid)
    for pid in tuple(found):
        found |= descendants(pid)
    return found - {os.getpid()}


def kill_marked(directory: str) -> None:
    """End whatever is left of a machine, and return when nothing is."""
    clear = 0
    while clear < _CLEAR_LOOKS:
        left = marked(directory)
        _signal(left, signal.SIGKILL)
        clear = 0 if left else clear + 1
        time.sleep(_PAUSE_S)


class Supervisor:
    """From power-on to the end of the last process."""

    def __init__(self, directory: str, command: list[str], environment: dict[str, str]) -> None:
        self._directory = directory
        self._command = command
        self._environment = {**environment, MARKER: directory}
        self._main: int | None = None
        self._start_at: float | None = 0.0
        self._said = False

    def run(self) -> None:
        """Until ordered to end."""
        grace_s = 0.0
        try:
            while (order := self._order()) is None:
                self._tick()
            word, _, seconds = order.partition(" ")
            grace_s = float(seconds or 0) if word == "stop" else 0.0
        finally:
            self._end(grace_s)

    def _order(self) -> str | None:
        """What was ordered, if anything."""
        readable, _, _ = select.select([0], [], [], _TICK_S)
        if not readable:
            return None
        return os.read(0, 4096).decode().partition("\n")[0] or "kill"

    def _tick(self) -> None:
        if not self._said and (Path(self._directory) / POWER_OFF).exists():
            self._said = True
            with contextlib.suppress(OSError):
                os.write(1, b"power-off\n")
        exit_code = _reap().get(self._main or 0)
        if exit_code is not None:
            self._main = None
            self._start_at = time.monotonic() + _RESTART_S if exit_code != 0 else None
        if self._start_at is not None and time.monotonic() >= self._start_at:
            self._start()

    def _start(self) -> None:
        self._start_at = None
        console = os.open(Path(self._directory) / CONSOLE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        to_console = [(os.POSIX_SPAWN_DUP2, nothing, 0), (os.POSIX_SPAWN_DUP2, console, 1), (os.POSIX_SPAWN_DUP2, console, 2)]
        try:
            self._main = os.posix_spawn(self._command[0], self._command, self._environment, file_actions=to_console, setsid=True)
        except OSError as error:
            os.write(console, f"cannot start {self._command[0]}: {error}\n".encode())
        finally:
            os.close(console)
            os.close(nothing)

    def _processes(self) -> set[int]:
        return (descendants(os.getpid()) | marked(self._directory)) - {os.getpid()}

    def _end(self, grace_s: float) -> None:
        """TERM to the service, a grace for it, TERM to all others, then KILL, again and again: a process may fork while it is hunted.

        Its orders may change meanwhile: a power cut ends the grace.
        """
        if grace_s > 0:
            service = {self._main} if self._main is not None else set()
            _signal(service, signal.SIGTERM)
            self._wait(grace_s, service)
            _signal(self._processes() - service, signal.SIGTERM)
            self._wait(_LAST_WORDS_S, None)
        clear = 0
        while clear < _CLEAR_LOOKS:
            left = self._processes()
            _signal(left, signal.SIGKILL)
            _reap()
            clear = 0 if left else clear + 1
            time.sleep(_PAUSE_S)

    def _wait(self, seconds: float, those: set[int] | None) -> None:
        """Until those (None: all) have ended, the time is over, or another order comes."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            _reap()
            left = self._processes()
            if not (left if those is None else left & those):
                return
            if select.select([0], [], [], _PAUSE_S)[0]:
                return


def _reap() -> dict[int, int]:
    """Children that have ended, with their exit codes."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = os.waitstatus_to_exitcode(status)
    return ended


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _pids() -> list[int]:
    return [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on: state, parent, … (the second is a name and may hold anything)."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _first_line() -> dict[str, Any]:
    """Read byte by byte: what comes after it is an order."""
    line = b""
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            sys.exit(0)
        line += byte
    told: dict[str, Any] = json.loads(line)
    return told


def main() -> None:
    """Play the machine that is described on the standard input."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    told = _first_line()
    os.chdir(told["directory"])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Supervisor(told["directory"], told["command"], told["environment"]).run()


if __name__ == "__main__":
    main()
