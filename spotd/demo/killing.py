"""`kill -9` of the daemon in the middle of a run: it must change nothing but the log."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spotd.demo import witness
from spotd.demo.claim import Claim

if TYPE_CHECKING:
    from spotd.demo.daemon import Daemon
    from spotd.demo.scene import Stage
    from spotd.demo.story import Story
    from spotd.demo.witness import Stint

#: The attempt that the recorded market leaves in peace the longest: time to be killed, come back, and be seen to have adopted it.
_ATTEMPT = 2
_CLAIM = "kill -9 of the daemon changed nothing but the log"


@dataclass(frozen=True, slots=True)
class Killing:
    """What was, and what was found again."""

    attempt: int
    instance: str
    provider_id: str
    #: Pids of the two daemons.
    before: int | None
    after: int | None
    #: The trainer's process and step when the daemon died, and when the next one answered.
    process: int
    step: int
    process_after: int
    step_after: int
    seconds: float

    def claim(self, story: Story, stints: list[Stint]) -> Claim:
        """Whether the new daemon adopted the very same run."""
        attempt = next((a for a in story.attempts if a["number"] == self.attempt), None)
        machine = story.machine(self.attempt)
        same = attempt is not None and machine.get("id") == self.instance and machine.get("provider_id") == self.provider_id
        launches = sum(1 for e in story.events if e["kind"] == "launch_succeeded" and e["fields"]["instance_id"] == self.instance)
        starts = sum(1 for e in story.events if e["kind"] == "workload_started" and e["fields"]["instance_id"] == self.instance)
        stint = next((s for s in stints if s.pid == self.process), None)
        undisturbed = stint is not None and stint.first <= self.step <= self.step_after <= stint.last and self.process == self.process_after
        adopted = attempt is not None and attempt["reason"] == "reclaimed" and self.step_after > self.step
        evidence = (
            f"daemon {self.before} died at step {self.step}, daemon {self.after} answered {self.seconds:.1f} s later and adopted attempt "
            f"{self.attempt} on {self.provider_id}; process {self.process} trained on to step {self.step_after} meanwhile, "
            f"{launches} launch, {starts} start, 0 steps redone because of it"
        )
        held = same and launches == 1 and starts == 1 and undisturbed and adopted
        return Claim(_CLAIM, held, evidence if held else f"not adopted as it was: {evidence}")


def due(story: Story) -> bool:
    """Whether the moment has come: the attempt trains and has committed a checkpoint."""
    return any(a["number"] == _ATTEMPT and a["state"] == "running" and a["checkpoint"] is not None for a in story.attempts)


def never_done() -> Claim:
    """The claim when the moment never came."""
    return Claim(_CLAIM, held=False, evidence=f"attempt {_ATTEMPT} never came to run and save, so the daemon was not killed")


def kill(stage: Stage, daemon: Daemon, story: Story) -> Killing:
    """Kill the daemon, start it again, and note what runs before and after."""
    machine = story.machine(_ATTEMPT)
    before, began = daemon.pid, time.monotonic()
    last = witness.read(stage.witness)[-1]
    daemon.kill()
    daemon.start()
    now = witness.read(stage.witness)[-1]
    return Killing(
        attempt=_ATTEMPT,
        instance=machine["id"],
        provider_id=machine["provider_id"],
        before=before,
        after=daemon.pid,
        process=last.pid,
        step=last.last,
        process_after=now.pid,
        step_after=now.last,
        seconds=time.monotonic() - began,
    )
