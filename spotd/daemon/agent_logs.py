"""The jobs' output as their agents send it: one private file per attempt and rank, appended to by offset.

The length of the file is all the state there is. After a power cut it may be shorter than what was acknowledged; the agent hears the length
at its next call and sends the rest again.
"""

from __future__ import annotations

import os
from pathlib import Path


class WrongOffset(Exception):
    """The piece does not begin where the file ends."""

    def __init__(self, length: int) -> None:
        super().__init__(f"the file has {length} bytes")
        self.length = length


def log_path(directory: Path, job_id: str, attempt: int, rank: int) -> Path:
    """Where the output of one rank of an attempt lies."""
    if not job_id or "/" in job_id or job_id.startswith("."):
        raise ValueError(f"{job_id!r} is no job's id")
    return directory / job_id / f"{attempt:05d}-{rank:03d}.log"


def append(path: Path, offset: int, piece: bytes) -> None:
    """Add a piece that begins at `offset`: whole, or (OSError) not at all. Raises WrongOffset. One caller per file at a time."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        length = os.fstat(descriptor).st_size
        if length != offset:
            raise WrongOffset(length)
        os.lseek(descriptor, offset, os.SEEK_SET)
        view = memoryview(piece)
        try:
            while view:
                view = view[os.write(descriptor, view) :]
        except OSError:
            os.ftruncate(descriptor, offset)
            raise
    finally:
        os.close(descriptor)
