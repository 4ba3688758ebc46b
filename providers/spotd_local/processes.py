"""Processes of this host: who a process is, which belong to a machine, and how to end them all.

A machine's processes are found in two ways at once: as descendants of the machine (a subreaper, so that orphans stay
below it), and by the marker in their environment (so that they are found when the machine itself was killed). Linux
only: it reads /proc.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PROC = Path("/proc")
_PR_SET_CHILD_SUBREAPER = 36
#: How long after the grace what is left has to react to TERM; and the pauses between two looks.
_LAST_WORDS_S = 0.2
_PAUSE_S = 0.02
#: A process in the middle of exec(2) shows no environment for a moment, so one look that finds nobody proves nothing.
_CLEAR_LOOKS = 3


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, for ever: a pid alone is used again, also after a reboot."""

    pid: int
    start_time: int
    boot_id: str

    def is_alive(self) -> bool:
        """Whether exactly this process still runs (a zombie does not)."""
        return identify(self.pid) == self


def boot_id() -> str:
    """Changes with every boot of this host."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> Identity | None:
    """Who has this pid now; None when nobody has, or only a zombie."""
    stat = _stat(pid)
    if stat is None or stat[0] in "ZX":
        return None
    return Identity(pid, int(stat[19]), boot_id())


def become_subreaper() -> None:
    """From now on orphaned descendants become children of this process (prctl(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants(pid: int) -> set[int]:
    """Every live process below this one."""
    children: dict[int, list[int]] = {}
    for other in _pids():
        if (stat := _stat(other)) and stat[0] not in "ZX":
            children.setdefault(int(stat[1]), []).append(other)
    found: set[int] = set()
    todo = [pid]
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in found:
                found.add(child)
                todo.append(child)
    return found


def marked(variable: str, value: str) -> set[int]:
    """Every live process that has this variable in the environment it was started with, and all below it."""
    needle = f"{variable}={value}".encode()
    found: set[int] = set()
    for pid in _pids():
        with contextlib.suppress(OSError):  # it ended meanwhile, or is somebody else's
            environment = (_PROC / str(pid) / "environ").read_bytes()
            if needle in environment.split(b"\0") and (stat := _stat(pid)) and stat[0] not in "ZX":
                found.add(pid)
    for pid in tuple(found):
        found |= descendants(pid)
    return found - {os.getpid()}


def end_all(find: Callable[[], set[int]], first: Iterable[int] = (), grace_s: float = 0.0) -> None:
    """End every process that `find` finds, and return when none is left.

    As an operating system does it: TERM to the services (`first`), a grace for them, TERM to all others, then KILL,
    looked for again and again because a process may fork while it is hunted. Without a grace it is a power cut.
    """
    if grace_s > 0:
        services = set(first)
        _signal(services, signal.SIGTERM)
        _wait(lambda: not services & find(), grace_s)
        _signal(find() - services, signal.SIGTERM)
        _wait(lambda: not find(), _LAST_WORDS_S)
    clear = 0
    while clear < _CLEAR_LOOKS:
        left = find()
        _signal(left, signal.SIGKILL)
        clear = 0 if left else clear + 1
        time.sleep(_PAUSE_S)


def collect(identity: Identity) -> None:
    """Take note of the end of this process, if it is our child and a zombie; of no other that has its pid."""
    stat = _stat(identity.pid)
    if stat is not None and stat[0] == "Z" and int(stat[19]) == identity.start_time:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(identity.pid, os.WNOHANG)


def reap() -> dict[int, int]:
    """Collect every child that has ended: pid and exit code (negative: killed by that signal).

    For machines only: in a daemon it would take the ends of children that others wait for.
    """
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = os.waitstatus_to_exitcode(status)
    return ended


def _wait(done: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not done() and time.monotonic() < until:
        time.sleep(_PAUSE_S)


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
