"""Fetch the job's working directory and unpack it without letting the archive write anywhere else."""

from __future__ import annotations

import os
import shutil
import tarfile
import threading
from typing import IO, Callable

from spotd.node import tree
from spotd.node.backoff import Backoff
from spotd.node.clock import Clock
from spotd.node.web import Web, WebError

_TRIES = 3  # for an archive whose sum is wrong: a broken transfer differs the next time, a broken archive does not


class BadWorkdir(Exception):
    """The archive is not what was announced, or tries to write where it must not."""


def fetch(web: Web, url: str, sha256: str, path: str, clock: Clock, cancel: threading.Event) -> bool:
    """Download the archive to *path*, trying for ever while the other side is away; False when cancelled. Raises BadWorkdir, OSError."""
    backoff = Backoff()
    wrong = 0
    while not cancel.is_set():
        try:
            if web.fetch(url, path, cancel=cancel)[1] == sha256:
                return True
            wrong += 1
            problem = "its sha256 is not the announced one"
        except WebError as error:
            problem = str(error)
            wrong += getattr(error, "status", 500) < 500
        if wrong >= _TRIES:
            raise BadWorkdir(f"the working directory cannot be fetched: {problem}")
        clock.wait(cancel, backoff.failed())
    return False


def unpack(archive: str, directory: str) -> None:
    """Make *directory* hold what *archive* holds, replacing what an earlier, broken-off try left. Raises BadWorkdir, OSError."""
    fresh = f"{directory}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    os.makedirs(fresh, mode=0o755)
    links: list[tuple[str, str]] = []
    modes: list[tuple[str, int]] = []
    try:
        with tarfile.open(archive, "r:*") as stream:
            for member in stream:
                _place(stream, member, fresh, links, modes)
    except (tarfile.TarError, EOFError) as error:
        raise BadWorkdir(f"the working directory's archive is broken: {error}") from error
    # Links come last, so that no file was ever written through one.
    for name, target in links:
        os.symlink(target, os.path.join(fresh, name))
    for name, mode in reversed(modes):
        os.chmod(os.path.join(fresh, name), mode)
    shutil.rmtree(directory, ignore_errors=True)
    os.rename(fresh, directory)


def _place(
    stream: tarfile.TarFile,
    member: tarfile.TarInfo,
    root: str,
    links: list[tuple[str, str]],
    modes: list[tuple[str, int]],
) -> None:
    name = os.path.normpath(member.name)
    if os.path.isabs(name) or name == ".." or name.startswith("../"):
        raise BadWorkdir(f"{member.name!r} leads out of the working directory")
    target = os.path.join(root, name)
    if member.isdir():
        os.makedirs(target, exist_ok=True)
        modes.append((name, (member.mode & 0o777) | 0o700))
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if member.issym():
        if not tree.link_stays(name, member.linkname):
            raise BadWorkdir(f"the link {member.name!r} leads out of the working directory")
        links.append((name, member.linkname))
    elif member.islnk():
        source = os.path.normpath(member.linkname)
        if os.path.isabs(source) or source.startswith("..") or not os.path.isfile(os.path.join(root, source)):
            raise BadWorkdir(f"the link {member.name!r} leads to nothing in the archive")
        shutil.copy2(os.path.join(root, source), target)
    elif member.isreg():
        source_stream = stream.extractfile(member)
        if source_stream is None:
            raise BadWorkdir(f"{member.name!r} has no content")
        _copy(source_stream, target)
        os.chmod(target, (member.mode & 0o777) | 0o400)
        os.utime(target, (member.mtime, member.mtime))
    else:
        raise BadWorkdir(f"{member.name!r} is neither a file nor a directory nor a link")


def _copy(source: IO[bytes], target: str) -> None:
    with open(target, "wb") as stream:
        shutil.copyfileobj(source, stream, 1 << 20)


def give_to(root: str, owner: tuple[int, int], chown: Callable[..., None] = os.chown) -> None:
    """Make everything below *root* the property of *owner*; links themselves, never what they point to."""
    chown(root, *owner, follow_symlinks=False)
    for directory, names, others in os.walk(root):
        for name in [*names, *others]:
            chown(os.path.join(directory, name), *owner, follow_symlinks=False)
