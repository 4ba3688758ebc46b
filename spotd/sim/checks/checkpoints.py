"""Rule 6: a workload resumes from the newest committed checkpoint that verifies, or does not start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotd.core.events import CheckpointCommitted, GateOpened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spotd.core.events import Event
    from spotd.sim.checks import Checks
    from spotd.sim.witness import Run


class Checkpoints:
    """Compares what a workload resumes from with what the object store held when its gate was opened."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        #: (job, attempt number) -> when its gate was opened, in true time.
        self._gates: dict[tuple[str, int], float] = {}

    def committed(self, events: Sequence[Event]) -> None:
        """Note when the daemon learned of a checkpoint, and when a gate was opened."""
        sim = self._checks.sim
        for event in events:
            if isinstance(event, CheckpointCommitted):
                manifest = sim.shelf.get(event.checkpoint.job_id, event.checkpoint.id)
                if manifest is None:
                    self._checks.violated("checkpoints", f"{event.checkpoint.id} was recorded and has no manifest")
                elif manifest.recorded_s is None:
                    manifest.recorded_s = self._checks.now_s
            elif isinstance(event, GateOpened):
                attempt = sim.store.attempts[event.attempt_id]
                self._gates[attempt.job_id, attempt.number] = self._checks.now_s

    def at_end(self) -> None:
        """A manifest is written last: whatever died before it left none."""
        sim = self._checks.sim
        for job in sim.works:
            for manifest in sim.shelf.of(job):
                if not manifest.complete:
                    self._checks.violated("checkpoints", f"{manifest.checkpoint} of {job} has a manifest and not all of its objects")

    def workload_started(self, run: Run) -> None:
        """Look at what it begins with."""
        sim, job = self._checks.sim, run.work.job_id
        opened = self._gates.get((job, run.attempt))
        if opened is None:
            self._checks.violated("gate", f"{job} runs in attempt {run.attempt}, whose gate was never opened")
            return
        where = f"{job}, attempt {run.attempt}"
        if run.restored is not None:
            manifest = sim.shelf.get(job, run.restored)
            if manifest is None or not manifest.verifies:
                self._checks.violated("checkpoints", f"{where} resumes from {run.restored}, which does not verify")
                return
        # Whether anybody told the daemon or not: a checkpoint exists when its manifest exists.
        known = [m for m in sim.shelf.of(job) if m.committed_s <= opened]
        sound = [m for m in known if m.verifies]
        if sound and (run.restored is None or run.restored < sound[0].checkpoint):
            self._checks.violated("checkpoints", f"{where} resumes from {run.restored or 'nothing'}, and {sound[0].checkpoint} was committed before")
        elif known and not sound and run.restored is None:
            self._checks.violated("checkpoints", f"{where} begins from zero, although its job had checkpoints")
