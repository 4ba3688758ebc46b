"""The signed addresses the daemon has handed out for the next checkpoints."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any


@dataclasses.dataclass(frozen=True)
class Target:
    """Where one checkpoint may be put."""

    checkpoint: str
    sequence: int
    objects: tuple[str, ...]
    manifest: str


class Targets:
    """The newest list of addresses; it outlives the daemon's absence. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._targets: tuple[Target, ...] = ()
        self._version = 0

    @property
    def version(self) -> int:
        """Counts the lists heard, so that a waiter knows a newer one."""
        with self._lock:
            return self._version

    def hear(self, uploads: Any) -> None:
        """Take the list of a sync answer; entries that make no sense are left out."""
        found = []
        for entry in uploads if isinstance(uploads, list) else ():
            try:
                found.append(
                    Target(
                        str(entry["checkpoint"]),
                        int(entry["sequence"]),
                        tuple(map(str, entry["objects"])),
                        str(entry["manifest"]),
                    )
                )
            except (KeyError, TypeError, ValueError):
                continue
        with self._lock:
            self._version += 1
            if found:
                self._targets = tuple(sorted(found, key=lambda target: target.sequence))

    def at_least(self, sequence: int) -> Target | None:
        """Return the first target from *sequence* on."""
        with self._lock:
            return next((target for target in self._targets if target.sequence >= sequence), None)

    def exactly(self, sequence: int) -> Target | None:
        """Return the target of *sequence*."""
        target = self.at_least(sequence)
        return target if target is not None and target.sequence == sequence else None
