"""Checkpoints that were committed and never heard of.

A checkpoint exists when its manifest exists (DESIGN §4 rule 6), not when somebody told us. An agent that committed one and was taken away, or
powered its instance off, before the daemon could be told leaves it in the store. So before an attempt is told what to resume from, the store is
asked.
"""

from __future__ import annotations

import hashlib
import logging
import re
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from spotd.core.attempt import Checkpoint
from spotd.core.events import CheckpointCommitted
from spotd.core.tries import is_current

if TYPE_CHECKING:
    from datetime import datetime

    from spotd.core.world import World
    from spotd.ports import ObjectStore

_log = logging.getLogger(__name__)

_MANIFEST = re.compile(r"jobs/[^/]+/checkpoints/((\d{5})-(\d{6}))/manifest\.json")
#: Ten thousand files of long names stay well below this.
_MOST_BYTES = 16 << 20


class _File(BaseModel):
    model_config = ConfigDict(frozen=True)

    size: int = Field(ge=0)


class _Manifest(BaseModel):
    """What is needed of docs/agent-protocol.md's manifest; the agent that restores it verifies the rest."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1]
    job: str
    checkpoint: str
    step: int | None = None
    files: list[_File]


def unheard(store: ObjectStore, world: World, job_id: str, now: datetime) -> list[CheckpointCommitted]:
    """What the store holds of a job that the world does not know, oldest first. Raises what the store raises."""
    known = {checkpoint.id for checkpoint in world.checkpoints.get(job_id, ())}
    found = []
    for key in store.list(f"jobs/{job_id}/checkpoints/"):
        match = _MANIFEST.fullmatch(key)
        if match is None or match[1] in known:
            continue
        checkpoint = _checkpoint(store, key, job_id, match[1], (int(match[2]), int(match[3])), now)
        if checkpoint is not None:
            found.append(CheckpointCommitted(now, _instance_of(world, job_id, checkpoint.attempt), checkpoint))
    return found


def _checkpoint(store: ObjectStore, key: str, job_id: str, name: str, number: tuple[int, int], now: datetime) -> Checkpoint | None:
    if store.head(key).size > _MOST_BYTES:
        return None
    content = store.get(key)
    try:
        manifest = _Manifest.model_validate_json(content)
    except ValidationError:
        _log.warning("%s is no manifest and is left alone", key)
        return None
    if manifest.job != job_id or manifest.checkpoint != name:
        _log.warning("%s speaks of another checkpoint and is left alone", key)
        return None
    return Checkpoint(
        id=name,
        job_id=job_id,
        attempt=number[0],
        sequence=number[1],
        step=manifest.step,
        files=len(manifest.files),
        size_bytes=sum(file.size for file in manifest.files),
        manifest_sha256=hashlib.sha256(content).hexdigest(),
        # The instance's clock is nobody's witness; it is there now.
        committed_at=now,
        trigger="found",
    )


def _instance_of(world: World, job_id: str, number: int) -> str:
    """Whose it was, so that its attempt is credited with it; empty when that attempt is not in memory any more."""
    attempt = next((a for a in world.attempts.values() if a.job_id == job_id and a.number == number), None)
    if attempt is None:
        return ""
    return next((i.id for i in world.instances.values() if is_current(attempt, i)), "")
