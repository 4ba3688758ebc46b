"""The store of a simulated daemon: the shipped one in memory, which refuses a commit now and then, and shows every commit to the checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotd.testing.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spotd.core.events import Event
    from spotd.core.world import Changes
    from spotd.sim.checks import Checks


class SimStore(MemoryStore):
    """`fails` is asked before each commit: True means a full disk, and nothing is written."""

    def __init__(self, deployment: str, checks: Checks, fails: Callable[[], bool]) -> None:
        super().__init__(deployment)
        self._checks = checks
        self._fails = fails

    def commit(self, events: Sequence[Event], changes: Changes) -> None:
        """Write, or raise with nothing written."""
        if self._fails():
            self.fail_next = OSError("the disk is full")
        else:
            self._checks.committing(events, changes)
        super().commit(events, changes)
        self._checks.committed(events, changes)
