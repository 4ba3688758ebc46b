"""What of a demonstration still runs, and ending it.

Every process of it carries the demonstration's directory in a variable of ours in its environment: the daemon and the reference get it from us,
a machine and all that runs on it from the local cloud. What merely mentions the directory (somebody's `tail -f` of a log) is left alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path

MARKER = "SPOTD_DEMO"
_PAUSE_S = 0.02


def processes(root: Path) -> dict[int, str]:
    """Every live process of the demonstration in this directory, with its command line."""
    ours = re.compile(rb"(?:^|\0)SPOTD_[A-Z_]+=" + re.escape(os.fsencode(root)) + rb"(?:/|\0|$)")
    found: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # it ended meanwhile, or is somebody else's
            if ours.search((folder / "environ").read_bytes()) and not _is_dead(folder):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def end_all(root: Path, within_s: float = 10.0) -> dict[int, str]:
    """End everything at once, looking again because a process may fork while it is hunted; what could not be ended."""
    until = time.monotonic() + within_s
    while (left := processes(root)) and time.monotonic() < until:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)
    return left


def _is_dead(folder: Path) -> bool:
    return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "ZX"
