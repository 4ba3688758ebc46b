"""What /proc says about processes.

A process is named by (pid, start time, boot id): pids are used again, the three together are not.
Processes come and go while one reads; everything here takes a vanished one for absent and raises nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

_WRITING = os.O_WRONLY | os.O_RDWR
_OVER = ("Z", "X")  # states of a process that has ended


def boot_id() -> str:
    """Return the kernel's name for this boot."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third on; the second may hold blanks and brackets."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def start_time(pid: int) -> int | None:
    """Return when *pid* started, in clock ticks since boot, or None where there is no such process."""
    fields = _stat(pid)
    return int(fields[19]) if fields and len(fields) > 19 else None


def is_running(pid: int, started: int) -> bool:
    """Whether exactly that process exists and has not ended (a zombie has)."""
    fields = _stat(pid)
    return fields is not None and len(fields) > 19 and int(fields[19]) == started and fields[0] not in _OVER


def all_pids() -> list[int]:
    """Return every process there is."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def descendants(pid: int) -> list[int]:
    """Children of *pid*, their children and so on, zombies left out."""
    children: dict[int, list[int]] = {}
    ended = set()
    for other in all_pids():
        fields = _stat(other)
        if fields and len(fields) > 1:
            children.setdefault(int(fields[1]), []).append(other)
            if fields[0] in _OVER:
                ended.add(other)
    found: list[int] = []
    front = [pid]
    while front:
        front = [child for parent in front for child in children.get(parent, ())]
        found.extend(front)
    return [other for other in found if other not in ended]


def marked(markers: Iterable[str]) -> list[int]:
    """Return the processes whose environment holds every one of *markers* (``NAME=value``), and their descendants."""
    wanted = {marker.encode() for marker in markers}
    found: set[int] = set()
    for pid in all_pids():
        if pid == os.getpid():
            continue
        try:
            with open(f"/proc/{pid}/environ", "rb") as stream:
                held = set(stream.read().split(b"\0"))
        except OSError:
            continue
        if wanted <= held:
            found.add(pid)
            found.update(descendants(pid))
    return _alive(found)


def in_session(session: int) -> list[int]:
    """Return the processes of *session*, and their descendants: those too whose environment was emptied."""
    found: set[int] = set()
    for pid in all_pids():
        fields = _stat(pid)
        if fields and len(fields) > 3 and int(fields[3]) == session:
            found.update((pid, *descendants(pid)))
    return _alive(found)


def _alive(pids: Iterable[int]) -> list[int]:
    found = {pid: _stat(pid) for pid in pids}
    return sorted(pid for pid, fields in found.items() if fields and fields[0] not in _OVER)


def has_writer(pids: Iterable[int], directory: str) -> bool:
    """Whether one of *pids* has a file below *directory* open for writing, as far as /proc may be read."""
    below = directory.rstrip("/") + "/"
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for name in names:
            try:
                if os.readlink(f"/proc/{pid}/fd/{name}").startswith(below) and _open_for_writing(pid, name):
                    return True
            except OSError:
                continue
    return False


def _open_for_writing(pid: int, descriptor: str) -> bool:
    with open(f"/proc/{pid}/fdinfo/{descriptor}", encoding="ascii") as stream:
        for line in stream:
            if line.startswith("flags:"):
                return bool(int(line.split()[1], 8) & _WRITING)
    return False
