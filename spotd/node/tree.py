"""What a directory holds right now, cheaply and without opening a file."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import stat


@dataclasses.dataclass(frozen=True)
class Entry:
    """One regular file: *path* is relative to the scanned root; the other fields tell whether it was touched since."""

    path: str
    inode: int
    size: int
    mtime_ns: int
    mode: int


@dataclasses.dataclass(frozen=True)
class Tree:
    """Files and symbolic links below a root, sorted; *skipped* counts what is neither, or points out of the root."""

    entries: tuple[Entry, ...]
    links: tuple[tuple[str, str], ...]
    skipped: int

    @property
    def signature(self) -> str:
        """The same for the same tree, another after any change of (path, inode, size, mtime) or of a link; empty for an empty tree."""
        if not self.entries and not self.links:
            return ""
        digest = hashlib.sha256()
        for entry in self.entries:
            digest.update(f"{entry.path}\0{entry.inode}\0{entry.size}\0{entry.mtime_ns}\n".encode("utf-8", "surrogateescape"))
        for path, target in self.links:
            digest.update(f"{path}\0->{target}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.entries)


def inside(root: str, name: str) -> str | None:
    """Return *name* as a path relative to *root*, ``.`` for the root itself; None where it leads out of it. Links are followed."""
    real_root = os.path.realpath(root)
    real = os.path.realpath(os.path.join(root, name))
    if real == real_root:
        return "."
    return os.path.relpath(real, real_root) if real.startswith(real_root + os.sep) else None


def scan(root: str, name: str = ".") -> Tree:
    """List the file or directory *name* below *root*. What vanishes meanwhile is absent. Raises OSError where *name* itself cannot be read."""
    entries: list[Entry] = []
    links: list[tuple[str, str]] = []
    skipped = 0
    start = os.path.join(root, name)
    status = os.lstat(start)
    if stat.S_ISREG(status.st_mode):
        return Tree((_entry(os.path.normpath(name), status),), (), 0)
    os.listdir(start)
    front = [os.path.normpath(name)]
    while front:
        directory = front.pop()
        for child in _listing(os.path.join(root, directory)):
            path = os.path.normpath(os.path.join(directory, child))
            try:
                status = os.lstat(os.path.join(root, path))
                if stat.S_ISDIR(status.st_mode):
                    front.append(path)
                elif stat.S_ISREG(status.st_mode):
                    entries.append(_entry(path, status))
                elif stat.S_ISLNK(status.st_mode) and link_stays(path, os.readlink(os.path.join(root, path))):
                    links.append((path, os.readlink(os.path.join(root, path))))
                else:
                    skipped += 1
            except FileNotFoundError:
                continue
    return Tree(tuple(sorted(entries, key=lambda entry: entry.path)), tuple(sorted(links)), skipped)


def link_stays(path: str, target: str) -> bool:
    """Whether a link at *path* (relative to a root) with *target* leads, by its text, to a place below that root."""
    where = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return not os.path.isabs(target) and where != ".." and not where.startswith("../")


def _entry(path: str, status: os.stat_result) -> Entry:
    return Entry(path, status.st_ino, status.st_size, status.st_mtime_ns, stat.S_IMODE(status.st_mode) & 0o777)


def _listing(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
