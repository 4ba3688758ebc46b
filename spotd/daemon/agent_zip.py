"""Builds `agent.pyz`, the program that runs on instances, from this installation's own files.

Every build of one version is byte-identical, on any machine: user data names the zip's sha256, and a launch request that is repeated must not
differ in a byte. Hence fixed times and modes, sorted names, and no compression, whose output depends on the zlib at hand.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

#: The earliest time a zip can hold.
_TIME = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644

_MAIN = b"""\
import sys

from spotd.node.main import main

sys.exit(main())
"""
_PACKAGE = b'"""The part of spotd that runs on an instance."""\n'


@dataclass(frozen=True, slots=True)
class AgentZip:
    """The agent as one file."""

    content: bytes
    sha256: str


def build_agent_zip() -> AgentZip:
    """The zip of this version."""
    members = {"__main__.py": _MAIN, "spotd/__init__.py": _PACKAGE}
    members.update(_modules(files("spotd") / "node", "spotd/node"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, _TIME)
            info.create_system = 3  # Unix, whatever this runs on
            info.external_attr = _MODE << 16
            archive.writestr(info, members[name])
    content = buffer.getvalue()
    return AgentZip(content, hashlib.sha256(content).hexdigest())


def _modules(directory: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    """Every Python module below a package's directory, without importing it: the agent is none of the daemon's dependencies."""
    for entry in directory.iterdir():
        path = f"{name}/{entry.name}"
        if entry.is_dir():
            yield from _modules(entry, path)
        elif entry.name.endswith(".py"):
            yield path, entry.read_bytes()
