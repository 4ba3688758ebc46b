"""A working directory as one archive, byte-identical for identical content, so that it is sent only once."""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import os
import stat
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from spotd.cli.failure import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator

IGNORE_FILE = ".spotdignore"
#: Never sent: they are large, machine-bound, or not the job's.
_ALWAYS = (".git", ".venv", "__pycache__")
#: Of all files together, before compression: what is more is data, and belongs in a store.
LIMIT = 2_000_000_000
_MAX_FILES = 100_000
_MAX_PATTERNS = 1000


@dataclass(slots=True)
class Archive:
    """A packed directory. Close it to remove the file."""

    stream: IO[bytes]
    sha256: str
    size: int
    files: int
    #: What could not be sent as it is, in words.
    notes: list[str] = field(default_factory=list)


class _Hashing:
    """Writes on, and hashes what it writes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, piece: bytes) -> int:
        self.digest.update(piece)
        self.size += len(piece)
        return self._stream.write(piece)

    def flush(self) -> None:
        self._stream.flush()


def pack(directory: Path, limit: int = LIMIT) -> Archive:
    """Pack a directory: sorted, without times or owners. Failure when it cannot be read or is too large."""
    if not directory.is_dir():
        raise Failure(f"workdir: {directory} is not a directory")
    notes: list[str] = []
    found = _find(directory, limit, notes)
    stream = tempfile.TemporaryFile()  # noqa: SIM115 - handed out; whoever uploads it closes it
    try:
        hashing = _Hashing(stream)
        # mtime 0 and no name: gzip would write both into its header.
        with (
            gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=cast("IO[bytes]", hashing), mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for name, path in found:
                _add(tar, name, path)
        stream.seek(0)
    except OSError as error:
        stream.close()
        raise Failure(f"workdir: {error.filename or directory} cannot be read: {error.strerror or error}") from None
    except BaseException:
        stream.close()
        raise
    return Archive(stream, hashing.digest.hexdigest(), hashing.size, len(found), notes)


def _add(tar: tarfile.TarFile, name: str, path: Path) -> None:
    status = path.lstat()
    info = tarfile.TarInfo(name)
    info.mode = 0o755 if stat.S_ISDIR(status.st_mode) or status.st_mode & 0o100 else 0o644
    if stat.S_ISLNK(status.st_mode):
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
        tar.addfile(info)
    elif stat.S_ISDIR(status.st_mode):
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    else:
        with path.open("rb") as stream:
            info.size = os.fstat(stream.fileno()).st_size
            tar.addfile(info, stream)


def _find(root: Path, limit: int, notes: list[str]) -> list[tuple[str, Path]]:
    patterns = _patterns(root)
    found: list[tuple[str, Path]] = []
    total = 0
    by_top: dict[str, int] = {}
    for name, path, kind in _walk(root, patterns):
        if kind == "other":
            notes.append(f"{name} is not a file, a directory or a link: left out")
            continue
        if kind == "outside":
            notes.append(f"{name} is a link that leads out of the workdir: left out")
            continue
        size = path.lstat().st_size if kind == "file" else 0
        total += size
        top = name.split("/")[0]
        by_top[top] = by_top.get(top, 0) + size
        found.append((name, path))
        if len(found) > _MAX_FILES:
            raise Failure(f"workdir: {root} holds more than {_MAX_FILES} files{_advice(by_top)}")
    if total > limit:
        raise Failure(f"workdir: {root} holds {total / 1e6:.0f} MB, at most {limit / 1e6:.0f} MB are sent{_advice(by_top)}")
    return found


def _advice(by_top: dict[str, int]) -> str:
    largest = sorted(by_top.items(), key=lambda item: -item[1])[:3]
    shown = ", ".join(f"{name} ({size / 1e6:.0f} MB)" for name, size in largest)
    return f"; the largest: {shown}. List what the job does not need in {IGNORE_FILE}, one pattern a line"


def _walk(root: Path, patterns: list[str]) -> Iterator[tuple[str, Path, str]]:
    """Everything below the root in one order on every machine, with what it is."""
    waiting = [("", root)]
    while waiting:
        prefix, directory = waiting.pop()
        with os.scandir(directory) as rows:
            entries = sorted(rows, key=lambda entry: entry.name)
        deeper = []
        for entry in entries:
            name = prefix + entry.name
            path = directory / entry.name
            is_directory = entry.is_dir(follow_symlinks=False)
            if entry.name in _ALWAYS or _ignored(name, patterns, is_directory=is_directory):
                continue
            if entry.is_symlink():
                yield name, path, "link" if _stays_inside(name, str(path.readlink())) else "outside"
            elif is_directory:
                yield name, path, "directory"
                deeper.append((name + "/", path))
            else:
                yield name, path, "file" if entry.is_file(follow_symlinks=False) else "other"
        waiting.extend(reversed(deeper))


def _stays_inside(name: str, target: str) -> bool:
    """Whether a link leads to a place within the archive: no other would mean anything on an instance."""
    if target.startswith("/"):
        return False
    depth = name.count("/")
    for part in target.split("/"):
        if part == "..":
            depth -= 1
        elif part not in {"", "."}:
            depth += 1
        if depth < 0:
            return False
    return True


def _patterns(root: Path) -> list[str]:
    try:
        text = (root / IGNORE_FILE).read_text("utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{root / IGNORE_FILE} cannot be read: {error}") from None
    lines = [line.strip() for line in text.splitlines()]
    patterns = [line for line in lines if line and not line.startswith("#")]
    if len(patterns) > _MAX_PATTERNS:
        raise Failure(f"{root / IGNORE_FILE} holds more than {_MAX_PATTERNS} patterns")
    return patterns


def _ignored(name: str, patterns: list[str], *, is_directory: bool) -> bool:
    """A pattern fits a whole path or a last name; one that ends in `/` fits directories only."""
    last = name.rsplit("/", 1)[-1]
    for pattern in patterns:
        wanted = pattern
        if wanted.endswith("/"):
            if not is_directory:
                continue
            wanted = wanted[:-1]
        wanted = wanted.removeprefix("./").removeprefix("/")
        if fnmatch.fnmatchcase(name, wanted) or fnmatch.fnmatchcase(last, wanted):
            return True
    return False
