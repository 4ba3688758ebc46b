"""One daemon per state directory: the kernel holds the lock, so that it ends with its process however that ends."""

from __future__ import annotations

import fcntl
import os
import stat
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_FILE = "daemon.lock"


class StateDirUnusable(Exception):
    """The state directory cannot be used; the text says what to do."""


class AlreadyRunning(StateDirUnusable):
    """Another daemon works on it. `pid` is that one's, None when it has not said so yet."""

    def __init__(self, directory: Path, pid: int | None) -> None:
        self.pid = pid
        who = "another process" if pid is None else f"process {pid}"
        super().__init__(f"A spotd is running on {directory} already: {who}. Stop that one first, or give this one another state_dir.")


class StateLock:
    """Holds a state directory until released. Its file stays: removing it would let two daemons lock two files of one name."""

    def __init__(self, descriptor: int) -> None:
        """Use `StateLock.acquire`."""
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, directory: Path) -> Self:
        """Make the directory ours, creating it if need be, for its owner only. Raises StateDirUnusable."""
        try:
            _prepare(directory)
            # Python's descriptors are not inherited by programs it starts: no instance of the local provider can keep the lock.
            descriptor = os.open(directory / _FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StateDirUnusable(
                f"The state directory {directory} cannot be used ({error.strerror}). It must be a directory that spotd's user may write to."
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            pid = _pid(descriptor)
            os.close(descriptor)
            raise AlreadyRunning(directory, pid) from None
        except OSError as error:
            os.close(descriptor)
            raise StateDirUnusable(f"{directory / _FILE} cannot be locked ({error.strerror}). Use a local disk that has space.") from error
        return cls(descriptor)

    def release(self) -> None:
        """Let the next daemon have it. Releasing twice is harmless."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # Unlocked by name, not by closing: a child that is just being started has a copy of the descriptor for some microseconds more.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


def _prepare(directory: Path) -> None:
    """Create it, or close it to others: it holds the deployment's key, and what users run."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.stat()
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
        directory.chmod(0o700)


def _pid(descriptor: int) -> int | None:
    try:
        return int(os.pread(descriptor, 32, 0))
    except (OSError, ValueError):
        return None
