"""An ObjectStore in a directory of the daemon: for the local provider, and for archives of working directories.

What a returned `put` has written survives a power cut: content is synced before the object gets its name, and the name is synced before the
caller hears of it. Objects on their way in lie in a directory of their own, which no key can name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Self
from urllib.parse import quote

from spotd.core.object_key import check_key
from spotd.daemon.credentials import Credentials
from spotd.daemon.private_file import sync_directory
from spotd.ports import AlreadyExists, ObjectInfo

_INCOMING = ".incoming"
#: Up to here `head` reads an object to tell its sha256: manifests yes, weights no.
_CHEAP = 4 << 20
#: How often a directory may vanish under a writer: `delete` prunes empty ones.
_RACES = 16
#: What stands as the method of an address that writes and never replaces: part of what is signed, so its holder cannot leave it out.
CREATE = "CREATE"
_SIGNED = frozenset({"GET", "HEAD", "PUT"})


def signed_path(credentials: Credentials, method: str, key: str, expires_at: datetime, *, create_only: bool = False) -> str:
    """The path and query under which the daemon serves an object to whoever holds them (docs/agent-protocol.md)."""
    if method not in _SIGNED or (create_only and method != "PUT"):
        raise ValueError(f"{method} cannot be signed{' create-only' if create_only else ''}")
    expires = int(expires_at.timestamp())
    if create_only:
        method = CREATE
    signature = credentials.signature(method, check_key(key), expires)
    return f"/o/{quote(key)}?expires={expires}&method={method}&signature={signature}"


class DirectoryStore:
    """Objects as files below a root of mode 0700. One process uses it at a time."""

    def __init__(self, root: Path, credentials: Credentials) -> None:
        """Make the directory where there is none, and clear away what a killed daemon left half received."""
        self._root = root
        self._credentials = credentials
        self._incoming = root / _INCOMING
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.rmtree(self._incoming, ignore_errors=True)
        self._incoming.mkdir(mode=0o700)

    def put(self, key: str, body: bytes, *, create_only: bool = False) -> None:
        """Write a small object whole. With `create_only`, AlreadyExists when there is one."""
        with self.receive(key) as incoming:
            incoming.write(body)
            incoming.commit(create_only=create_only)

    def receive(self, key: str) -> Incoming:
        """Begin to write an object piece by piece; it exists once committed."""
        return Incoming(self._incoming, self._root, self._path(key))

    def get(self, key: str) -> bytes:
        """Read a small object whole. KeyError where there is none."""
        with self.open(key) as stream:
            return stream.read()

    def open(self, key: str) -> IO[bytes]:
        """The object's content, to be read piece by piece, also if it is replaced meanwhile. KeyError where there is none."""
        try:
            return self._path(key).open("rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise KeyError(key) from None

    def head(self, key: str) -> ObjectInfo:
        """Whether and how large it is. KeyError where there is none."""
        with self.open(key) as stream:
            size = os.fstat(stream.fileno()).st_size
            sha256 = hashlib.sha256(stream.read()).hexdigest() if size <= _CHEAP else None
        return ObjectInfo(key, size, sha256)

    def list(self, prefix: str) -> Sequence[str]:
        """Every key that begins with `prefix`, sorted."""
        below = prefix.rpartition("/")[0]
        start = self._path(below) if below else self._root
        keys = []
        for directory, directories, names in os.walk(start):
            if Path(directory) == self._root:
                directories[:] = [name for name in directories if name != _INCOMING]
            where = Path(directory).relative_to(self._root)
            keys += [key for name in names if (key := (where / name).as_posix()).startswith(prefix)]
        return sorted(keys)

    def delete(self, key: str) -> None:
        """Remove it, and the directories it leaves empty; absent is success."""
        path = self._path(key)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            path.unlink()
            left = path.parent
            with contextlib.suppress(OSError):  # not empty, most likely
                while left != self._root:
                    left.rmdir()
                    left = left.parent
            with contextlib.suppress(FileNotFoundError):
                sync_directory(left)

    def sign(self, method: str, key: str, expires_at: datetime, *, create_only: bool = False) -> str:
        """A URL with which a holder may do `method` on exactly this object until then: a path of the daemon."""
        return signed_path(self._credentials, method, key, expires_at, create_only=create_only)

    def close(self) -> None:
        """It holds nothing."""

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)


class Incoming:
    """An object on its way in. Left without `commit`, it never was."""

    def __init__(self, incoming: Path, root: Path, target: Path) -> None:
        self._root = root
        self._target = target
        self._digest = hashlib.sha256()
        descriptor, name = tempfile.mkstemp(dir=incoming)  # mode 0600
        self._fresh = Path(name)
        self._stream = os.fdopen(descriptor, "wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, piece: bytes) -> None:
        """Add a piece."""
        self._digest.update(piece)
        self._stream.write(piece)

    @property
    def sha256(self) -> str:
        """Of what was written so far."""
        return self._digest.hexdigest()

    def commit(self, *, create_only: bool = False) -> None:
        """Give the object its name, for good. With `create_only`, AlreadyExists when there is one."""
        self._stream.flush()
        os.fsync(self._stream.fileno())
        for _ in range(_RACES):
            try:
                new = self._make_directories()
                self._place(create_only=create_only)
            except FileNotFoundError:
                continue  # a delete took the directory away in between
            for directory in {self._target.parent, *(path.parent for path in new)}:
                sync_directory(directory)
            return
        raise FileNotFoundError(f"the directory of {self._target.name} is removed again and again")

    def close(self) -> None:
        """Forget what was not committed."""
        self._stream.close()
        self._fresh.unlink(missing_ok=True)

    def _place(self, *, create_only: bool) -> None:
        if not create_only:
            self._fresh.replace(self._target)
            return
        try:
            os.link(self._fresh, self._target)
        except FileExistsError:
            # Whoever hears "it exists" may rely on it: the other writer may not have got as far as this.
            sync_directory(self._target.parent)
            raise AlreadyExists(self._target.relative_to(self._root).as_posix()) from None

    def _make_directories(self) -> list[Path]:
        """Make the missing directories above the object, outermost first; those that were new."""
        missing = []
        directory = self._target.parent
        while directory != self._root and not directory.is_dir():
            missing.append(directory)
            directory = directory.parent
        new = []
        for directory in reversed(missing):
            try:
                directory.mkdir(mode=0o700)
                new.append(directory)
            except FileExistsError:
                if not directory.is_dir():
                    raise NotADirectoryError(f"{directory.name} is an object") from None
        return new
