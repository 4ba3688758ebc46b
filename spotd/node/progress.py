"""What the job says of itself in ``$SPOTD_PROGRESS_FILE``: JSON lines, read as a tail.

A job may be killed in the middle of a line, print rubbish, truncate the file or replace it; none of that is an error here.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from typing import Any

_LINE_LIMIT = 64 << 10  # bytes; a longer line is no progress report
_READ_LIMIT = 1 << 20  # bytes per poll; a job that writes faster is read behind


@dataclasses.dataclass(frozen=True)
class Announcement:
    """The job says: the checkpoint *name* (a path inside its checkpoint directory) is complete.

    *ordinal* counts announcements of this instance from 1 and is stable over restarts of the agent.
    """

    ordinal: int
    name: str
    step: int | None


class Progress:
    """The state that the lines add up to. Feed it bytes in order; pure."""

    def __init__(self, kept: dict[str, Any] | None = None) -> None:
        """*kept* is what `export` returned before a restart."""
        kept = kept or {}
        self.step: int | None = kept.get("step")
        self.loss: float | None = kept.get("loss")
        self.done: bool = kept.get("done", False)
        latest = kept.get("latest")
        self.latest: Announcement | None = Announcement(*latest) if latest else None
        self._partial = b""
        self._overlong = False

    def export(self) -> dict[str, Any]:
        """Return what `__init__` needs to go on from the last whole line."""
        latest = None if self.latest is None else [self.latest.ordinal, self.latest.name, self.latest.step]
        return {"step": self.step, "loss": self.loss, "done": self.done, "latest": latest}

    @property
    def pending(self) -> int:
        """How many bytes of the last, unfinished line are held back."""
        return len(self._partial)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the file; a last line without its newline waits for the rest."""
        *lines, rest = (self._partial + data).split(b"\n")
        for line in lines:
            if not self._overlong:
                self._line(line)
            self._overlong = False
        if len(rest) > _LINE_LIMIT:
            self._overlong, rest = True, b""
        self._partial = rest

    def restart(self) -> None:
        """Forget the unfinished line: the file was truncated or replaced."""
        self._partial, self._overlong = b"", False

    def finish(self) -> None:
        """The writer is gone: what stands after the last newline is a line if it is whole JSON."""
        rest, self._partial = self._partial, b""
        if rest and not self._overlong:
            self._line(rest)
        self._overlong = False

    def _line(self, line: bytes) -> None:
        if len(line) > _LINE_LIMIT:
            return
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(value, dict):
            return
        self.done = value.get("done") is True
        step = _whole(value.get("step"))
        self.step = self.step if step is None else step
        if "loss" in value:
            self.loss = _finite(value["loss"])
        name = value.get("checkpoint")
        if isinstance(name, str) and "\0" not in name:
            ordinal = 1 if self.latest is None else self.latest.ordinal + 1
            self.latest = Announcement(ordinal, name, step if step is not None else self.step)


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or abs(value) > 2**62:
        return None
    return int(value)


def _finite(value: Any) -> float | None:
    # NaN and Infinity are what a diverged loss looks like; JSON has no word for them.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e300 < value < 1e300:
        return None
    return float(value)


class ProgressFile:
    """The file behind a `Progress`, read from where the last poll ended."""

    def __init__(self, path: str, kept: dict[str, Any] | None = None) -> None:
        """*kept* is what `export` returned before a restart."""
        kept = kept or {}
        self.path = path
        self.state = Progress(kept.get("state"))
        self.problem: str | None = None
        self._offset: int = kept.get("offset", 0)
        self._inode: int | None = kept.get("inode")

    def export(self) -> dict[str, Any]:
        """Return what `__init__` needs to go on from the last whole line."""
        return {"state": self.state.export(), "offset": self._offset - self.state.pending, "inode": self._inode}

    def poll(self, *, final: bool = False) -> None:
        """Read what is new. *final*: to the end, and the last line needs no newline. Never raises: `problem` says what is wrong, or is None."""
        try:
            while self._read() and final:
                pass
            self.problem = None
        except FileNotFoundError:
            self.problem = None
        except OSError as error:
            self.problem = f"the progress file is not readable: {error.strerror}"
        if final:
            self.state.finish()

    def _read(self) -> bool:
        """Read one piece; whether there may be more. O_NONBLOCK: a job may have put a pipe in the file's place."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as stream:
            status = os.fstat(descriptor)
            if status.st_ino != self._inode or status.st_size < self._offset:
                if self._inode is not None:
                    self.state.restart()
                    self._offset = 0
                self._inode = status.st_ino
            stream.seek(self._offset)
            data = stream.read(_READ_LIMIT) or b""
        self._offset += len(data)
        self.state.feed(data)
        return len(data) == _READ_LIMIT
