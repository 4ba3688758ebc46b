"""Checkpoints of a simulated job: announced, uploaded, and committed by a manifest that is written last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from spotd.daemon import agent_messages as m
from spotd.sim.shelf import Manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotd.sim.agent import Agent

    Trigger = Literal["announced", "quiet", "notice", "exit"]


class Saver:
    """Replicates one job's checkpoints from one machine."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._sequence = 0
        self.last: Manifest | None = None
        self.last_s = -1.0

    def began(self) -> None:
        """The job runs: it announces a checkpoint every interval."""
        self._agent.timeline.after(self._agent.work.checkpoint_s, self._periodic)

    def _periodic(self) -> None:
        agent = self._agent
        run = agent.run
        if not agent.alive or run is None or run.stopped_s is not None:
            return
        step = run.step(agent.timeline.now_s)
        agent.timeline.after(agent.work.checkpoint_s, self._periodic)
        # A hung agent replicates nothing; the job goes on announcing, and the next candidate is taken when the agent is back.
        agent.timeline.after(agent.work.save_s, lambda: self._announced(step))

    def _announced(self, step: int) -> None:
        if self._agent.responsive and self._agent.phase == "running" and self._agent.run is not None and self._agent.run.stopped_s is None:
            self.save(step, "announced", lambda: None)

    def save(self, step: int, trigger: Trigger, then: Callable[[], None]) -> None:
        """Upload the objects, then write the manifest, then say so, then go on."""
        upload_s = self._agent.work.upload_s
        self._agent.timeline.after(upload_s, lambda: self._agent.do(lambda: self._commit(step, trigger, then)))

    def _commit(self, step: int, trigger: Trigger, then: Callable[[], None]) -> None:
        agent, host = self._agent, self._agent.host
        if agent.phase in {"drained", "exited", "failed", "stopped"}:
            return
        self._sequence += 1
        name = f"{agent.attempt:05d}-{self._sequence:06d}"
        manifest = Manifest(agent.work.job_id, name, agent.attempt, self._sequence, step, agent.timeline.now_s)
        if not host.shelf.put(manifest):
            host.checks.violated("checkpoints", f"{name} of {agent.work.job_id} was written twice")
        host.story.say("store", f"{agent.work.job_id} has checkpoint {name} (step {step}, {trigger})")
        if not host.cloud.healed and agent.dice.chance("bit rot", host.draws.bit_rot):
            manifest.rotten = True
            host.story.say("store", f"{name} of {agent.work.job_id} is spoilt")
        if not host.cloud.healed and agent.dice.chance("manifest reply lost", host.draws.manifest_reply_lost):
            # Create-only: the second PUT finds this very manifest and is a success.
            agent.later(5.0, lambda: self._committed(manifest, trigger, then))
        else:
            self._committed(manifest, trigger, then)

    def _committed(self, manifest: Manifest, trigger: Trigger, then: Callable[[], None]) -> None:
        agent = self._agent
        self.last, self.last_s = manifest, agent.timeline.now_s
        agent.link.say(
            lambda seq, age: m.CheckpointSaid.model_construct(
                seq=seq,
                age_s=age,
                type="checkpoint",
                checkpoint=manifest.checkpoint,
                sequence=manifest.sequence,
                step=manifest.step,
                files=1,
                bytes=1_000_000,
                manifest_sha256=manifest.sha256,
                save_s=agent.work.save_s,
                upload_s=agent.work.upload_s,
                trigger=trigger,
            )
        )
        then()
