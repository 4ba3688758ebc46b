"""Files that nobody but the daemon may read, made once and never changed: the deployment key and the agents' certificate."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path


class UnsafeFile(Exception):
    """A private file is not as private as it must be; the text is a sentence for ops that names the remedy."""


def read_or_create(path: Path, make: Callable[[], bytes]) -> bytes:
    """The content of a private file; what `make` returns is written there first if there is none.

    The file appears whole or not at all, and the first of two daemons that race here wins: a key that changed after credentials
    were derived from it would lock every agent out. Raises UnsafeFile, OSError.
    """
    try:
        return _read(path)
    except FileNotFoundError:
        _create(path, make())
        return _read(path)


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafeFile(f"{path} is a symbolic link; spotd reads its secrets from plain files only.") from None
        raise
    with os.fdopen(descriptor, "rb") as stream:
        # Of the open file, not of the name: what is checked is what is read.
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UnsafeFile(f"{path} is not a plain file.")
        if status.st_uid != os.geteuid():
            raise UnsafeFile(f"{path} belongs to user {status.st_uid}, and spotd runs as user {os.geteuid()}.")
        mode = stat.S_IMODE(status.st_mode)
        if mode & 0o077:
            raise UnsafeFile(
                f"{path} has mode {mode:04o}, so that others may have read it. Run: chmod 600 {path} — "
                "and if somebody may have seen it, remove it while no job runs; spotd then makes a new one."
            )
        return stream.read()


def _create(path: Path, content: bytes) -> None:
    descriptor, fresh = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(fresh, path)
        except FileExistsError:
            return
        sync_directory(path.parent)
    finally:
        Path(fresh).unlink()
