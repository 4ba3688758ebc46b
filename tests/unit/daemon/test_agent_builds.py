"""Builds of the agent that outlive an upgrade of the daemon."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

from spotd.daemon.agent_builds import AgentBuilds
from spotd.daemon.agent_zip import AgentZip


def _zip(content: bytes) -> AgentZip:
    return AgentZip(content, hashlib.sha256(content).hexdigest())


def test_a_build_that_a_live_instance_was_asked_for_with_is_kept(tmp_path: Path) -> None:
    """After an upgrade the old build is still to be had while an instance needs it, and forgotten afterwards."""
    builds, old, new = AgentBuilds(tmp_path / "agents"), _zip(b"old"), _zip(b"new")
    builds.keep(old, ())
    builds.keep(new, {old.sha256, ""})
    assert (builds.content(old.sha256), builds.content(new.sha256)) == (b"old", b"new")
    assert stat.S_IMODE((tmp_path / "agents" / f"{old.sha256}.pyz").stat().st_mode) == 0o600
    builds.keep(new, ())
    assert builds.content(old.sha256) is None


def test_only_a_sha256_names_a_build(tmp_path: Path) -> None:
    """What comes from the network is never a path."""
    (tmp_path / "secret.pyz").write_bytes(b"secret")
    builds = AgentBuilds(tmp_path / "agents")
    assert builds.content("../secret") is None
    assert builds.content("") is None
