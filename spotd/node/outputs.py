"""The one log file of an instance, bounded, and never a reason for a job to fail."""

from __future__ import annotations

import os


class BoundedLog:
    """Appends to a file that several shims share, up to a size of the whole and of what one task may add.

    A full disk loses output, not the job: the job writes to a pipe that is always read.
    """

    def __init__(self, path: str, limit: int, task_limit: int, task: str) -> None:
        """*limit* bytes for the file, *task_limit* for what is written here."""
        self._limit = limit
        self._task_left = task_limit
        self._task = task
        self._full = False
        self._lost = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes) -> None:
        """Append *data* or as much of it as is allowed. Never raises."""
        if self._full:
            return
        try:
            room = min(self._limit - os.fstat(self._descriptor).st_size, self._task_left)
            if self._lost and room > 0:
                self._all(f"\nspotd: {self._lost} bytes of output were lost: the disk was full\n".encode())
                self._lost = 0
            self._all(data[: max(0, room)])
            self._task_left -= len(data)
            if len(data) > room:
                self._full = True
                self._all(f"\nspotd: the log limit is reached; further output of {self._task} is dropped\n".encode())
        except OSError:
            self._lost += len(data)

    def _all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]
