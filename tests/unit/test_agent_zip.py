"""The agent as one file."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from spotd.daemon.agent_zip import build_agent_zip


def test_every_build_is_byte_identical() -> None:
    """User data names the zip's sha256, so two builds, also by another process with another umask and time zone, are the same bytes."""
    first = build_agent_zip()
    assert build_agent_zip() == first
    assert hashlib.sha256(first.content).hexdigest() == first.sha256
    code = "import os; os.umask(0o077); from spotd.daemon.agent_zip import build_agent_zip; print(build_agent_zip().sha256)"
    environment = {**os.environ, "TZ": "Pacific/Auckland", "PYTHONHASHSEED": "7"}
    other = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert other.stdout.strip() == first.sha256


def test_zip_holds_the_agent_and_nothing_else() -> None:
    """Only the agent's modules go to an instance, sorted, stored as they are, with one fixed time."""
    archive = zipfile.ZipFile(io.BytesIO(build_agent_zip().content))
    names = archive.namelist()
    assert names == sorted(names)
    assert {"__main__.py", "spotd/__init__.py", "spotd/node/__init__.py", "spotd/node/main.py"} <= set(names)
    assert all(name.startswith("spotd/node/") for name in set(names) - {"__main__.py", "spotd/__init__.py"})
    assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}


def test_zip_runs_without_an_installation(tmp_path: Path) -> None:
    """Python alone runs it: nothing of the daemon's environment is needed, and its modules come from inside the zip."""
    program = tmp_path / "agent.pyz"
    program.write_bytes(build_agent_zip().content)
    shown = subprocess.run([sys.executable, "-I", "-S", str(program), "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert "agent" in shown.stdout
