"""Where the simulated jobs' checkpoints lie, and what each job is made of."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotd.sim.dice import Dice


@dataclass(slots=True)
class Manifest:
    """One object `manifest.json`: with it the checkpoint exists."""

    job_id: str
    checkpoint: str
    attempt: int
    sequence: int
    step: int
    committed_s: float
    #: Whether every object it names is in the store.
    complete: bool = True
    #: An object of it was spoilt later on: it does not verify any more.
    rotten: bool = False
    #: When the daemon recorded it.
    recorded_s: float | None = None

    @property
    def content(self) -> bytes:
        """The object itself, as far as the daemon reads it."""
        return json.dumps({"format": 1, "job": self.job_id, "checkpoint": self.checkpoint, "step": self.step, "files": []}).encode()

    @property
    def sha256(self) -> str:
        """What its content hashes to."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def verifies(self) -> bool:
        """Whether a restore of it succeeds."""
        return self.complete and not self.rotten


class Shelf:
    """The object store. Manifests are create-only."""

    def __init__(self) -> None:
        self._manifests: dict[str, dict[str, Manifest]] = {}

    def put(self, manifest: Manifest) -> bool:
        """Write a manifest; False when there is one, which stays as it is."""
        of_job = self._manifests.setdefault(manifest.job_id, {})
        if manifest.checkpoint in of_job:
            return False
        of_job[manifest.checkpoint] = manifest
        return True

    def get(self, job_id: str, checkpoint: str) -> Manifest | None:
        """The manifest, if there is one."""
        return self._manifests.get(job_id, {}).get(checkpoint)

    def of(self, job_id: str) -> list[Manifest]:
        """Every manifest of a job, newest first."""
        return sorted(self._manifests.get(job_id, {}).values(), key=lambda m: m.checkpoint, reverse=True)


@dataclass(slots=True)
class Work:
    """What one job really does. One step is one second of work."""

    job_id: str
    name: str
    steps: int
    checkpoint_s: float
    save_s: float
    upload_s: float
    restore_s: float
    setup_s: float
    #: Steps at which it fails by itself, once each, with this exit code.
    errors: list[tuple[int, int]] = field(default_factory=list)

    def next_error(self, after_step: int) -> tuple[int, int] | None:
        """The next failure on the way, if any is left."""
        return min((error for error in self.errors if error[0] > after_step), default=None)


def make_work(dice: Dice, number: int, hours: float, checkpoint_s: float, error_rate: float) -> Work:
    """One job's truth, from its own stream."""
    stream = dice.stream(f"work {number}")
    steps = int(hours * 3600.0 * stream.uniform(0.6, 1.4))
    work = Work(
        job_id=f"job-{number}",
        name=f"train-{number}",
        steps=max(steps, 60),
        checkpoint_s=checkpoint_s,
        save_s=stream.choice((2.0, 20.0, 60.0)),
        upload_s=stream.choice((1.0, 10.0, 50.0)),
        restore_s=stream.choice((2.0, 15.0, 60.0)),
        setup_s=stream.choice((0.0, 10.0, 120.0)),
    )
    if stream.random() < error_rate:
        work.errors = [(int(work.steps * stream.random()), stream.choice((1, 33, 137))) for _ in range(stream.choice((1, 1, 2, 4)))]
    return work
