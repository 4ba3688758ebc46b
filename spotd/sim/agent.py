"""The software of one simulated instance: agent, shim and workload, as docs/agent-protocol.md and DESIGN §6 say they behave.

The workload is the shim's: an agent that hangs or dies leaves it running. What an agent that hangs would have done (`do`) it does when it is
restarted, from its journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from spotd.core.instance import EndedBy
from spotd.daemon import agent_messages as m
from spotd.sim.cloud import NOTICE_S
from spotd.sim.drain import Drain
from spotd.sim.leases import Leases
from spotd.sim.link import Link
from spotd.sim.saver import Saver

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotd.sim.agents_api import Answer
    from spotd.sim.host import Host
    from spotd.sim.machine import Machine, Reclaim
    from spotd.sim.shelf import Manifest, Work
    from spotd.sim.witness import Run

    Phase = Literal["workdir", "restore", "setup", "agent"]
    Kind = Literal["reclaim", "rebalance", "maintenance", "shutdown"]
    Source = Literal["imds", "signal", "agent"]

ENDED = ("drained", "exited", "failed", "stopped")
_POLL_S = 2.0
_CANCELLED_AFTER_S = 300.0
_SHUTDOWN_S = 25.0


class Agent:
    """Phases as in the real agent: booting, ready, running, draining, and the ends drained, exited, failed, stopped."""

    def __init__(self, machine: Machine, work: Work, host: Host) -> None:
        assert machine.request is not None  # noqa: S101 - only machines that were asked for have an agent
        self.machine = machine
        self.work = work
        self.host = host
        self.timeline = host.timeline
        self.dice = host.dice
        self.token = machine.request.token
        self.attempt = machine.request.attempt
        self.alive = True
        self.hung = False
        self.phase = "booting"
        self.ended_s: float | None = None
        self.spec: dict[str, Any] = {}
        self.restored: Manifest | None = None
        self.run: Run | None = None
        #: Sees no warning of its machine's metadata server.
        self.blind = False
        self.link = Link(self, host)
        self.saver = Saver(self)
        self.drain = Drain(self)
        self.leases = Leases(self)
        self._deferred: list[Callable[[], None]] = []
        self._restoring = False

    @property
    def responsive(self) -> bool:
        """Whether the agent's process does anything."""
        return self.alive and not self.hung

    @property
    def state(self) -> str:
        """Its word for where it is."""
        return "exited" if self.phase == "stopped" else self.phase

    @property
    def step(self) -> int | None:
        """How far its job is."""
        return None if self.run is None else self.run.step(self.timeline.now_s)

    def do(self, action: Callable[[], None]) -> None:
        """Act, now or when the agent is itself again."""
        if not self.alive:
            return
        if self.hung:
            self._deferred.append(action)
        else:
            action()

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Act after a while."""
        self.timeline.after(delay_s, lambda: self.do(action))

    def hang(self) -> None:
        """The agent stops doing anything; its job runs on."""
        if self.responsive:
            self.hung = True
            self.link.changed()

    def restart(self) -> None:
        """It is started again by systemd: it goes on from its journal."""
        if self.alive and self.hung:
            self.hung = False
            self.link.changed()
            deferred, self._deferred = self._deferred, []
            for action in deferred:
                self.do(action)

    def gone(self) -> None:
        """Nothing executes here any more."""
        self.alive = False
        if self.run is not None:
            self.host.witness.stop(self.run, "its machine is gone")

    # Booting -------------------------------------------------------------------------------------------------------------

    def started(self) -> None:
        """The agent's first act."""
        self.leases.began()
        self.link.changed()
        self.link.soon()

    def bootstrapped(self, spec: dict[str, Any]) -> None:
        """It knows its job: fetch, restore, set up."""
        if self.spec or self.phase != "booting":
            return
        self.spec = spec
        self.leases.armed()
        self.later(self.work.restore_s, self._restore)

    def _restore(self) -> None:
        if self.phase != "booting":
            return
        resume = [str(entry["checkpoint"]) for entry in self.spec["resume"]]
        if self.fetch(resume, required=bool(self.spec["resume_required"])):
            self.later(self.work.setup_s, self._set_up)

    def fetch(self, resume: list[str], *, required: bool) -> bool:
        """Restore the first checkpoint that verifies. None, though there should be one: this job does not start here."""
        shelf = self.host.shelf
        found = (shelf.get(self.work.job_id, checkpoint) for checkpoint in resume)
        self.restored = next((manifest for manifest in found if manifest is not None and manifest.verifies), None)
        if self.restored is None and required:
            self._fail("restore", None, "no checkpoint verifies, and this job had some")
            return False
        return True

    def _fail(self, phase: Phase, code: int | None, detail: str) -> None:
        self.link.say(lambda seq, age: m.Failed.model_construct(seq=seq, age_s=age, type="failed", phase=phase, code=code, detail=detail))
        self.end("failed")

    def _set_up(self) -> None:
        if self.phase != "booting":
            return
        if not self.host.cloud.healed and self.dice.chance("setup fails", self.host.draws.setup_fails):
            self._fail("setup", 1, "setup exited with 1")
            return
        self.phase = "ready"
        restored = self.restored
        self.link.say(
            lambda seq, age: m.Ready.model_construct(
                seq=seq,
                age_s=age,
                type="ready",
                restored_checkpoint=None if restored is None else restored.checkpoint,
                restored_step=None if restored is None else restored.step,
                boot_s=60.0,
                restore_s=self.work.restore_s,
                setup_s=self.work.setup_s,
                skipped_checkpoints=[],
            )
        )

    # What the daemon says --------------------------------------------------------------------------------------------------

    def answered(self, answer: Answer) -> None:
        """Carry out a directive."""
        order = answer.order
        if order.stop is not None and self.phase not in ENDED:
            if self.run is not None and self.run.stopped_s is None:
                self.host.checks.told_to_stop(self, order.stop)
            self.kill(f"told to stop ({order.stop})")
            self.end("stopped")
        elif order.drain is not None and self.phase not in ENDED:
            self.drain.begin(order.drain.id, order.drain.kind.value, self.timeline.now_s + (order.drain_seconds or 0.0))
        elif order.gate_open and self.phase == "ready" and not self._restoring:
            self._gate(answer.resume)
        if order.power_off:
            self.power_off("told")

    def _gate(self, resume: tuple[str, ...] | None) -> None:
        """The gate is open. What was committed while it waited is restored before the job starts."""
        newest = resume[0] if resume else None
        if newest is not None and (self.restored is None or self.restored.checkpoint != newest):
            self._restoring = True
            self.later(self.work.restore_s, lambda: self._restore_again(list(resume or ())))
        else:
            self._start()

    def _restore_again(self, resume: list[str]) -> None:
        if self.phase == "ready" and self.fetch(resume, required=True):
            self._start()

    def _start(self) -> None:
        restored = self.restored
        self.phase = "running"
        checkpoint, step = (None, 0) if restored is None else (restored.checkpoint, restored.step)
        self.run = self.host.witness.start(self.work, self.machine, self.attempt, checkpoint, step)
        self.link.say(
            lambda seq, age: m.Started.model_construct(
                seq=seq, age_s=age, type="started", restored_checkpoint=checkpoint, restored_step=None if restored is None else step
            )
        )
        self.saver.began()
        self._schedule_end(self.run)

    def _schedule_end(self, run: Run) -> None:
        error = self.work.next_error(run.first_step)
        step, code = error if error is not None else (self.work.steps, 0)
        self.timeline.after(max(step - run.first_step, 0), lambda: self._workload_ends(run, code, error))

    # The workload's end ------------------------------------------------------------------------------------------------------

    def _workload_ends(self, run: Run, code: int, error: tuple[int, int] | None) -> None:
        if run.stopped_s is not None:
            return
        if error is not None and error in self.work.errors:
            self.work.errors.remove(error)
        self.host.witness.stop(run, f"exit code {code}")
        self.do(lambda: self._exited(run, code))

    def _exited(self, run: Run, code: int) -> None:
        if self.phase not in {"running", "draining"}:
            return
        if self.phase == "draining" and code != 0:
            self.drain.job_ended()
            return
        self.drain.forget()
        if code == 0:
            self.saver.save(run.work.steps, "exit", lambda: self.say_exited(code, done=True))
        else:
            self.say_exited(code, done=False)

    def say_exited(self, code: int, *, done: bool) -> None:
        """The job ended by itself and its last checkpoint is committed."""
        if self.phase in ENDED:
            return
        step = self.step
        killed = code - 128 if code > 128 else None
        plain = None if killed is not None else code
        self.link.say(lambda seq, age: m.Exited.model_construct(seq=seq, age_s=age, type="exited", code=plain, signal=killed, done=done, step=step))
        self.end("exited")

    def kill(self, why: str) -> None:
        """End the workload's processes."""
        if self.run is not None:
            self.host.witness.stop(self.run, why)

    def end(self, phase: str) -> None:
        """Nothing is left to do here but to be heard."""
        self.phase = phase
        self.ended_s = self.timeline.now_s
        self.leases.ended()

    def power_off(self, why: str) -> None:
        """Leave the machine behind."""
        self.kill(f"power off ({why})")
        if self.machine.up:
            self.host.story.say("agent", f"{self.machine.provider_id} powers itself off ({why})")
            self.host.cloud.shut_down(self.machine, EndedBy.GUEST, "Client.InstanceInitiatedShutdown", 5.0)

    # Warnings ------------------------------------------------------------------------------------------------------------------

    def warned(self, reclaim: Reclaim) -> None:
        """The metadata server shows a warning; it is seen at the next look, if this agent sees any."""
        if reclaim.told and not self.blind:
            self.later(self.dice.between("poll", 0.05, _POLL_S), lambda: self._notice(reclaim))

    def _notice(self, reclaim: Reclaim) -> None:
        if reclaim.cancelled and self.timeline.now_s > reclaim.deadline_s:
            return
        kind = reclaim.kind
        self._say_notice(kind, kind, "imds", "terminate", reclaim.deadline_s - self.timeline.now_s)
        if kind == "reclaim":
            self.drain.begin(kind, kind, reclaim.deadline_s)
        else:
            # Maintenance is announced ahead: the job is stopped when the usual notice begins (spotd/node/notices.py).
            self.later(max(reclaim.deadline_s - self.timeline.now_s - NOTICE_S, 0.0), lambda: self._maintain(reclaim))
        after = reclaim.deadline_s - self.timeline.now_s + _CANCELLED_AFTER_S
        self.later(max(after, 0.0), lambda: self._withdrawn(kind))

    def _maintain(self, reclaim: Reclaim) -> None:
        if self.machine.reclaim is reclaim:
            self.drain.begin(reclaim.kind, reclaim.kind, reclaim.deadline_s)

    def _say_notice(self, name: str, kind: Kind, source: Source, action: str, left_s: float | None) -> None:
        self.link.say(
            lambda seq, age: m.NoticeSaid.model_construct(
                seq=seq,
                age_s=age,
                type="notice",
                notice_id=name,
                kind=kind,
                source=source,
                action=action,
                seconds_left=None if left_s is None else max(left_s, 0.0),
            )
        )

    def _withdrawn(self, kind: Kind) -> None:
        if self.machine.reclaim is None and self.machine.up:
            self.link.say(lambda seq, age: m.NoticeWithdrawn.model_construct(seq=seq, age_s=age, type="notice_cancelled", notice_id=kind, kind=kind))

    def hinted(self) -> None:
        """A rebalance recommendation: told, and nothing else."""
        if not self.blind:
            self.do(lambda: self._say_notice("hint", "rebalance", "imds", "rebalance", None))

    def shutting_down(self) -> None:
        """SIGTERM from the operating system: the last word."""
        if self.responsive and self.phase not in ENDED and self.spec:
            self.own_notice("shutdown", "signal", "SIGTERM", _SHUTDOWN_S)

    def own_notice(self, name: str, source: Source, action: str, left_s: float) -> None:
        """Stop the job for a reason that this machine knows itself."""
        self._say_notice(name, "shutdown", source, action, left_s)
        self.drain.begin(name, "shutdown", self.timeline.now_s + left_s)

    def silence_began(self) -> None:
        """Nobody answers from now on."""
        self.leases.silence_began()
