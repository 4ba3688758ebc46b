"""Builds of the agent, kept for machines that were asked for before an upgrade: their boot scripts name the old build's sha256."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

from spotd.daemon.agent_zip import AgentZip
from spotd.daemon.private_file import read_or_create


class AgentBuilds:
    """A directory with one file for each build, by its sha256."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def keep(self, current: AgentZip, in_use: Iterable[str]) -> None:
        """Add the current build; forget those that no live instance was asked for with."""
        read_or_create(self._path(current.sha256), lambda: current.content)
        wanted = {current.sha256, *in_use}
        for other in self._directory.glob("*.pyz"):
            if other.stem not in wanted:
                other.unlink(missing_ok=True)

    def content(self, sha256: str) -> bytes | None:
        """A build, or None where there is none of this name."""
        if not re.fullmatch(r"[0-9a-f]{64}", sha256, re.ASCII):
            return None
        with contextlib.suppress(FileNotFoundError):
            return self._path(sha256).read_bytes()
        return None

    def _path(self, sha256: str) -> Path:
        return self._directory / f"{sha256}.pyz"
