"""The directory of policy files, kept in force: a broken edit keeps the last good version, and says so.

The last good text of each policy is also kept in the daemon's state, so that a restart in the middle of a broken edit does not leave running
jobs without a policy.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from enum import StrEnum, unique
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from spotd.config.errors import ConfigError, Problem, printable
from spotd.config.policy import parse_policy, policy_name
from spotd.config.yaml_tree import read_limited
from spotd.core.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


_SUFFIXES = frozenset({".yaml", ".yml"})
_MAX_FILES = 1000


@unique
class PolicyState(StrEnum):
    """How a policy file stands."""

    OK = "ok"
    #: The file is wrong; the last good version is in force.
    BROKEN = "broken"
    #: The file is wrong and there never was a good version.
    UNUSABLE = "unusable"
    #: The file is gone; the last good version stays in force for the unfinished jobs that use it.
    VANISHED = "vanished"


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One policy as it stands: what is in force, and what is wrong with the file."""

    name: str
    file: Path
    state: PolicyState
    #: In force; None only when UNUSABLE.
    policy: Policy | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    #: What the file looked like when it was last read; None: never read.
    stamp: tuple[int, ...] | None = None

    @property
    def problem(self) -> str:
        """What is wrong, in words; empty when nothing is."""
        return "\n".join(map(str, self.problems))


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """A policy was taken (`problem` empty) or refused: material for the log and for `core.events.PolicyLoaded`."""

    policy: str
    problem: str


class PolicyBook:
    """Every policy in force. `refresh` is for one thread; the rest may be asked from any."""

    def __init__(self, directory: Path, keep: Path | None = None) -> None:
        """Nothing is read before the first `refresh`. `keep` is where the last good texts are kept, or None."""
        self._directory = directory
        self._keep = keep
        self._entries: Mapping[str, PolicyEntry] = MappingProxyType({})
        self._problem = ""

    @property
    def directory(self) -> Path:
        """Where the policy files are."""
        return self._directory

    @property
    def problem(self) -> str:
        """What keeps the directory itself from being read; empty when nothing does."""
        return self._problem

    def policies(self) -> Mapping[str, Policy]:
        """The policies in force, by name."""
        return MappingProxyType({name: e.policy for name, e in self._entries.items() if e.policy is not None})

    def entries(self) -> tuple[PolicyEntry, ...]:
        """Every policy as it stands, by name."""
        return tuple(self._entries[name] for name in sorted(self._entries))

    def refresh(self, in_use: Collection[str] = ()) -> tuple[PolicyChange, ...]:
        """Read what changed since the last time. `in_use` names the policies of unfinished jobs: these are never dropped.

        Says what was taken up or refused; an unchanged file, good or broken, is not said again.
        """
        try:
            files = self._files()
        except OSError as error:
            # Not to be read is not the same as empty: everything stays in force.
            problem = f"{self._directory}: cannot be read: {error.strerror or error}"
            changed, self._problem = problem != self._problem, problem
            self._restore(in_use)
            return (PolicyChange("*", problem),) if changed else ()
        changes = [PolicyChange("*", "")] if self._problem else []
        self._problem = ""
        entries: dict[str, PolicyEntry] = {}
        for name, paths in files.items():
            entry = self._read(name, paths)
            entries[name] = entry
            old = self._entries.get(name)
            if old is None or old.stamp != entry.stamp or old.state is PolicyState.VANISHED:
                changes.append(PolicyChange(name, entry.problem))
        for name, old in self._entries.items():
            if name not in files:
                changes += self._vanished(entries, name, old, in_use)
        self._entries = MappingProxyType(entries)
        self._restore(in_use)
        return tuple(changes)

    def _files(self) -> dict[str, list[Path]]:
        """Candidate files by policy name. Editors' droppings (hidden files, backups) are not candidates."""
        found: dict[str, list[Path]] = {}
        with os.scandir(self._directory) as rows:
            names = sorted(row.name for row in rows)
        for name in names[:_MAX_FILES]:
            path = self._directory / name
            if path.suffix in _SUFFIXES and not name.startswith((".", "#")) and not path.is_dir():
                found.setdefault(path.stem, []).append(path)
        return found

    def _read(self, name: str, paths: list[Path]) -> PolicyEntry:
        path = paths[0]
        old = self._entries.get(name)
        stamp = tuple(number for p in paths for number in _stamp(p))
        if old is not None and old.stamp == stamp and old.state is not PolicyState.VANISHED:
            return old
        file = str(path)
        try:
            if len(paths) > 1:
                raise ConfigError.single(file, None, "", f"{paths[1].name} is the same policy", "keep one of the two files")
            content = read_limited(path, file)
            parsed = parse_policy(content, file, policy_name(file))
        except ConfigError as error:
            last = old.policy if old is not None else self._kept(name)
            state = PolicyState.BROKEN if last is not None else PolicyState.UNUSABLE
            return PolicyEntry(name, path, state, last, error.problems, (), stamp)
        if _stamp(path) != stamp:
            # It was being written while it was read: look again next time, whatever this version was.
            stamp = ()
        self._remember(name, content)
        return PolicyEntry(name, path, PolicyState.OK, parsed.policy, (), parsed.warnings, stamp)

    def _vanished(self, entries: dict[str, PolicyEntry], name: str, old: PolicyEntry, in_use: Collection[str]) -> list[PolicyChange]:
        if name in in_use and old.policy is not None:
            if old.state is PolicyState.VANISHED:
                entries[name] = old
                return []
            entries[name] = _as_vanished(old)
            return [PolicyChange(name, entries[name].problem)]
        self._forget(name)
        said = f"{old.file}: is gone"
        return [] if old.state is PolicyState.VANISHED else [PolicyChange(name, said)]

    def _restore(self, in_use: Collection[str]) -> None:
        """After a restart: a policy that unfinished jobs use and whose file is gone comes from what was kept."""
        missing = [name for name in in_use if name not in self._entries]
        found = {name: policy for name in missing if (policy := self._kept(name)) is not None}
        if found:
            entries = dict(self._entries)
            for name, policy in found.items():
                path = self._directory / f"{name}.yaml"
                entries[name] = _as_vanished(PolicyEntry(name, path, PolicyState.OK, policy))
            self._entries = MappingProxyType(entries)

    def _kept(self, name: str) -> Policy | None:
        if self._keep is None:
            return None
        path = self._keep / f"{name}.yaml"
        try:
            return parse_policy(read_limited(path, str(path)), str(path), policy_name(str(path))).policy
        except ConfigError:
            return None

    def _remember(self, name: str, content: bytes) -> None:
        """Keep the text. A full disk must not keep a good policy from being used, so a failure here is let go."""
        if self._keep is None:
            return
        partial = self._keep / f".{name}.new"
        with contextlib.suppress(OSError):
            self._keep.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(content)
            partial.replace(self._keep / f"{name}.yaml")

    def _forget(self, name: str) -> None:
        if self._keep is not None:
            with contextlib.suppress(OSError):
                (self._keep / f"{name}.yaml").unlink(missing_ok=True)


def _as_vanished(entry: PolicyEntry) -> PolicyEntry:
    said = Problem(str(entry.file), None, "", "is gone; unfinished jobs go on by its last good version")
    return replace(entry, state=PolicyState.VANISHED, problems=(said,), stamp=None)


def _stamp(path: Path) -> tuple[int, ...]:
    """What tells one version of a file from another without reading it."""
    try:
        stat = path.stat()
    except OSError:
        return (0,)
    return (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)


def unknown_policy(name: str, known: Collection[str]) -> tuple[str, str]:
    """Message and hint for a policy that is not there."""
    hint = f"known: {', '.join(sorted(known))}" if known else "there are no policies yet: add a file to the policies directory"
    return f"there is no policy {printable(name)}", hint
