"""Small private files that are either the old or the new content, never half of it."""

from __future__ import annotations

import errno
import json
import os
import threading
from typing import Any

_BALLAST_BYTES = 1 << 20


def private_directory(path: str, mode: int = 0o700) -> str:
    """Make *path* and its parents; *mode* is set even where it existed or the umask said otherwise."""
    os.makedirs(path, exist_ok=True)
    os.chmod(path, mode)
    return path


def write_bytes(path: str, data: bytes, *, mode: int = 0o600, durable: bool = True, owner: tuple[int, int] | None = None) -> None:
    """Replace *path* by *data* in one step.

    *durable* waits for the disk; without it the content is safe against the death of a process but not of the machine.
    Raises OSError (a full disk, for one) and then leaves the old content.
    """
    fresh = f"{path}.{os.getpid()}.{threading.get_ident()}.new"
    _remove(fresh)
    # O_EXCL: where the directory is the job's, a link of its making must not be written through.
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        try:
            os.fchmod(descriptor, mode)
            if owner is not None:
                os.fchown(descriptor, *owner)
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(fresh, path)
    except OSError:
        _remove(fresh)
        raise
    if durable:
        sync_directory(os.path.dirname(path) or ".")


def write_json(path: str, value: Any, *, mode: int = 0o600, durable: bool = True, owner: tuple[int, int] | None = None) -> None:
    """Replace *path* by *value* as JSON in one step; see `write_bytes`."""
    write_bytes(path, json.dumps(value, allow_nan=False).encode("ascii"), mode=mode, durable=durable, owner=owner)


def read_json(path: str) -> dict[str, Any] | None:
    """Return the object in *path*, or None where there is no file or no JSON object in it."""
    try:
        with open(path, "rb") as stream:
            value = json.loads(stream.read())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def sync_directory(path: str) -> None:
    """Make renames inside *path* survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


class Ballast:
    """Disk space kept back so that the agent can still write its state once a job has filled the disk."""

    def __init__(self, path: str) -> None:
        """Take the space now; where there is none, do without."""
        self._path = path
        try:
            write_bytes(path, b"\0" * _BALLAST_BYTES, durable=False)
        except OSError:
            return

    def release(self, error: OSError) -> bool:
        """Give the space back if *error* says that the disk or the quota is full; whether trying again may help."""
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not os.path.exists(self._path):
            return False
        _remove(self._path)
        return True
