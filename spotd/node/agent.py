"""The agent: one loop that brings a job up, watches over it and sees it out.

What was decided is in the journal before it is done, so `kill -9` at any line loses nothing: the next agent reads the phase and goes on. The job
itself belongs to its shim and does not notice. Phases: booting, ready (at the gate), running, draining, and the ends drained, exited, failed and
stopped (the daemon wanted the processes gone; on the wire that is ``exited`` without a message).
"""

from __future__ import annotations

import os
import threading
from typing import Any

from spotd.node import files, leases, procfs
from spotd.node.alarm import Alarm
from spotd.node.boot import Boot, Failed
from spotd.node.clock import Clock
from spotd.node.drainer import Cause, Drainer
from spotd.node.gpu import GpuMeter
from spotd.node.imds import ImdsWatcher
from spotd.node.journal import Journal
from spotd.node.link import Answer, Link
from spotd.node.logstream import LogStream
from spotd.node.places import Places
from spotd.node.power import Power
from spotd.node.replicator import Replicator
from spotd.node.spec import Spec
from spotd.node.targets import Targets
from spotd.node.task import Exit, Task
from spotd.node.upload import Source, Uploader
from spotd.node.voice import say, say_with_traceback
from spotd.node.watch import Watch
from spotd.node.web import Web

_TICK_S = 0.1
_IDLE_TICK_S = 0.5
#: What an instance has from the OS's SIGTERM on; the shortest of the clouds' shutdowns is 30 s (facts/reclaim.md §0.1).
_SHUTDOWN_S = 25.0
_FAREWELL_S = 5.0
#: How long the end of a job is held back for its output. Little: a replacement may be waiting at its gate.
_LAST_WORDS_S = 1.0
_ENDED = ("drained", "exited", "failed", "stopped")


class Agent:
    """One instance's agent. `run` returns when the power is off or the OS wants us gone."""

    def __init__(
        self,
        web: Web,
        session: str,
        spec: Spec,
        places: Places,
        journal: Journal,
        clock: Clock,
        instance: str,
        power: Power,
    ) -> None:
        self._spec = spec
        self._places = places
        self._journal = journal
        self._clock = clock
        self._power = power
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._answer = Answer()
        self._told_off = False
        self._terminated = threading.Event()
        self._instance = instance
        self._targets = Targets()
        self._link = Link(web, session, journal, clock, places.contact, spec.heartbeat_s, self._report, self._heard)
        self._link.last_words = self._last_words
        self._logs = LogStream(web, session, places.log, clock)
        self._run = Task(places.task("run"), "run", instance, clock)
        self._setup = Task(places.task("setup"), "setup", instance, clock)
        self._hook = Task(places.task("hook"), "hook", instance, clock)
        self._boot = Boot(web, session, spec, places, journal, clock, self._setup)
        self._gpu = GpuMeter(clock)
        self._alarm = Alarm(instance, spec.notice_s, places, journal, clock, self._alarmed)
        self._watch = Watch(ImdsWatcher(clock, spec.notice_s), spec.poll_s, clock, self._alarm.seen) if spec.watch == "imds" else None
        self._web = web
        self._replicator: Replicator | None = None
        self._drainer: Drainer | None = None
        self._boot_begun = False
        self._rounds = {
            "booting": self._tick_booting,
            "ready": self._tick_ready,
            "running": self._tick_running,
            "draining": self._tick_draining,
        }
        self._finishing = False
        self._complaint = ""
        if journal.get("first_at") is None:
            journal.put(first_at=clock.monotonic(), phase="booting")

    @property
    def phase(self) -> str:
        """Where the job stands on this instance."""
        return str(self._journal.get("phase"))

    def terminate(self) -> None:
        """The OS shuts down (SIGTERM): the last word. Safe to call from a signal handler."""
        self._terminated.set()
        self._wake.set()

    def run(self) -> int:
        """Do everything; the exit code."""
        self._gpu.start()
        if self._run.launched and self.phase not in _ENDED:
            self._follow()
        self._link.start()
        self._logs.start()
        if self._watch is not None:
            self._watch.start()
        if self.phase == "draining":
            self._drainer = self._new_drainer()
        while True:
            try:
                over = self._tick()
            except Exception as error:  # noqa: BLE001 - a full disk or process table passes; an agent that died of it would help nobody
                self._complain(error)
                over = False
            if over:
                return self._leave()
            self._clock.wait(self._wake, _IDLE_TICK_S if self.phase in _ENDED else _TICK_S)
            self._wake.clear()

    def _complain(self, error: Exception) -> None:
        """Say it on stderr, not ten times a second."""
        complaint = f"{self.phase}: {type(error).__name__}: {error}"
        if complaint != self._complaint:
            (say if isinstance(error, OSError) else say_with_traceback)(complaint)
        self._complaint = complaint

    # What other threads bring in ------------------------------------------------------------------------------------------

    def _report(self) -> dict[str, Any]:
        phase = self.phase
        progress = {"step": None, "loss": None, "checkpoint_step": (self._journal.get("restored") or {}).get("step")}
        if self._replicator is not None:
            progress = self._replicator.export()
        if self._gpu.utilisation is not None:
            progress["gpu_util"] = self._gpu.utilisation
        if self._watch is not None and self._watch.unknown:
            progress["metadata_unknown"] = self._watch.unknown
        state = "exited" if phase == "stopped" else phase
        return {"state": state, "acknowledged_drain": self._journal.get("acknowledged_drain"), "progress": progress}

    def _last_words(self) -> None:
        """The job's output up to its end goes before the news of it: the line that says why is the last one."""
        self._logs.flush(_LAST_WORDS_S)

    def _heard(self, answer: Answer) -> None:
        self._targets.hear(answer.uploads)
        with self._lock:
            self._answer = answer
            self._told_off = self._told_off or answer.power_off
        self._wake.set()

    def _alarmed(self) -> None:
        self._link.wake()
        self._wake.set()

    # The loop -------------------------------------------------------------------------------------------------------------

    def _tick(self) -> bool:
        """One round; True when the agent's life is over."""
        self._journal.retry()
        with self._lock:
            answer = self._answer
        if answer.stop is not None and self.phase != "stopped":
            self._stop_job()
        elif self.phase not in _ENDED:
            self._causes(answer)
            self._rounds[self.phase](answer)
        self._acknowledge_drain(answer)
        if self._terminated.is_set() and self.phase in _ENDED:
            return True
        return self._leases()

    def _causes(self, answer: Answer) -> None:
        """Begin or tighten the drain for whatever wants the job stopped."""
        now = self._clock.monotonic()
        if self._terminated.is_set():
            deadline_at = self._alarm.own("shutdown", "signal", "SIGTERM", _SHUTDOWN_S)
            self._drain(Cause("shutdown", "shutdown", "signal", deadline_at))
        notice = self._alarm.stopping()
        if notice is not None and notice.deadline_at is not None:
            self._drain(Cause(notice.id, notice.kind, notice.source, notice.deadline_at))
        order = answer.drain
        if order is not None and order.id != self._journal.get("acknowledged_drain"):
            self._drain(Cause(order.id, order.kind, "spotd", now + order.seconds))

    def _acknowledge_drain(self, answer: Answer) -> None:
        if answer.drain is not None and answer.drain.id != self._journal.get("acknowledged_drain"):
            self._journal.put(acknowledged_drain=answer.drain.id)
            self._link.wake()

    def _drain(self, cause: Cause) -> None:
        if self._drainer is None:
            if not self._run.launched:
                self._boot.cancel()
            self._drainer = self._new_drainer()
        record = self._journal.get("drain")
        if record is None or cause.deadline_at < record["deadline_at"]:
            self._drainer.begin(cause)
            self._link.wake()
        if self.phase != "draining":
            self._journal.put(phase="draining")
            self._link.wake()

    def _new_drainer(self) -> Drainer:
        return Drainer(self._spec, self._places, self._journal, self._clock, self._replicator, self._run, self._hook)

    def _tick_booting(self, answer: Answer) -> None:
        if answer.resume is not None:
            self._boot.hear(answer.resume)
        if not self._boot_begun:
            self._boot_begun = True
            self._boot.start()
        if not self._boot.over:
            return
        failed = self._boot.failed
        if failed is not None:
            self._say_failed(failed)
        else:
            restored = self._journal.get("restored") or {}
            fields = {
                "restored_checkpoint": restored.get("checkpoint"),
                "restored_step": restored.get("step"),
                "boot_s": round(self._clock.monotonic() - self._journal.get("first_at"), 3),
                "restore_s": self._journal.get("restore_s"),
                "setup_s": self._journal.get("setup_s"),
            }
            if restored.get("skipped"):
                fields["skipped_checkpoints"] = restored["skipped"]
            self._journal.say("ready", fields, once="ready", phase="ready")
        self._link.wake()

    def _tick_ready(self, answer: Answer) -> None:
        if not self._run.launched and self._restores(answer):
            return
        if not answer.gate_open and not self._run.launched:
            return
        if not self._run.launched:
            self._launch()
        ended = self._run.exit()
        if ended is not None and ended.error is not None:
            self._say_exited(ended)
        elif ended is not None or self._run.begun:
            restored = self._journal.get("restored") or {}
            resumed = {"restored_checkpoint": restored.get("checkpoint"), "restored_step": restored.get("step")}
            self._journal.say("started", resumed, once="started", phase="running")
            self._link.wake()

    def _launch(self) -> None:
        """Start the job's shim; `Task.exit` starts it again should we die on the way."""
        environment = self._places.environment(self._spec, os.environ, (self._journal.get("restored") or {}).get("path", ""))
        limit = leases.fence_s(self._spec.stop_when_unreachable_s, self._spec.notice_s)
        fence = None if limit is None else {"file": self._places.contact, "limit_s": limit}
        if self._replicator is None:
            # Before the job begins: what lies in its directory now is no checkpoint of this attempt.
            self._follow()
        self._run.start(self._spec.run, self._places.work, environment, log=self._places.log, user=self._places.user, fence=fence)

    def _restores(self, answer: Answer) -> bool:
        """Whether a checkpoint newer than ours is there and being fetched, before the gate and at it; says so if it cannot be had."""
        if answer.resume is not None and not self._boot_begun:
            self._boot.resumed()
            self._boot_begun = True
        if answer.resume is None or not self._boot.offer(answer.resume):
            return False
        if self._boot.over and self._boot.failed is not None:
            self._say_failed(self._boot.failed)
        return True

    def _say_failed(self, failed: Failed) -> None:
        fields = {"phase": failed.phase, "code": failed.code, "detail": failed.detail[:2000]}
        self._journal.say("failed", fields, once="end", phase="failed", ended_at=self._clock.monotonic())
        self._link.wake()

    def _tick_running(self, _answer: Answer) -> None:
        ended = self._run.exit()
        if ended is None:
            return
        if self._replicator is not None:
            if self._journal.get("exit_at") is None:
                self._journal.put(exit_at=self._clock.monotonic())
            # A store that stays away must not hold back the news for ever.
            limit = self._journal.get("exit_at") + self._spec.idle_timeout_s
            if not self._finishing:
                self._finishing = True
                self._replicator.finish("exit", succeeded=ended.code == 0, give_up_at=limit)
            if self._replicator.view().unsettled and self._clock.monotonic() < limit:
                return
            self._replicator.stop()
        self._say_exited(ended)

    def _say_exited(self, ended: Exit) -> None:
        view = None if self._replicator is None else self._replicator.view()
        if ended.error is not None:
            fields: dict[str, Any] = {"phase": "agent", "code": None, "detail": ended.error}
            self._journal.say("failed", fields, once="end", phase="failed", ended_at=self._clock.monotonic())
        else:
            done = view is not None and view.done
            fields = {"code": ended.code, "signal": ended.signal, "done": done, "step": None if view is None else view.step}
            self._journal.say("exited", fields, once="end", phase="exited", ended_at=self._clock.monotonic())
        self._link.wake()

    def _tick_draining(self, _answer: Answer) -> None:
        if self._drainer is not None and self._boot_is_out() and self._drainer.step():
            if self._replicator is not None:
                self._replicator.stop()
            self._link.wake()

    def _boot_is_out(self) -> bool:
        """Whether no boot step runs any more (an agent restarted in a drain finds at most a setup to end)."""
        if self._boot_begun:
            return self._boot.over
        self._setup.end(1.0)
        return not self._setup.launched or self._setup.exit() is not None

    def _follow(self) -> None:
        """Watch the job's progress and checkpoints from here on."""
        directory = self._places.checkpoints(self._spec)
        source = Source(self._spec.job_id, self._spec.attempt, directory or self._places.work, self._places.agent)
        uploader = Uploader(self._web, self._journal, self._clock, source, self._targets, self._link.wake)
        if not os.path.exists(self._places.progress):
            files.write_bytes(self._places.progress, b"", owner=self._places.owner)
        self._replicator = Replicator(self._journal, self._clock, self._places.progress, directory, uploader, self._run.pids)
        self._replicator.start()

    def _stop_job(self) -> None:
        """End everything at once, upload nothing, report no success."""
        self._boot.cancel()
        if self._replicator is not None:
            self._replicator.stop()
        for task in (self._run, self._hook, self._setup):
            task.end(1.0)
        left = [task for task in (self._run, self._hook, self._setup) if task.launched and task.exit() is None]
        if not left and self._boot_is_out():
            self._journal.put(phase="stopped", ended_at=self._clock.monotonic())
            self._link.wake()

    # The end --------------------------------------------------------------------------------------------------------------

    def _leases(self) -> bool:
        now = self._clock.monotonic()
        phase = self.phase
        due = leases.due(
            leases.View(
                phase=phase,
                age_s=now - self._journal.get("first_at"),
                silence_s=now - self._link.contact_at,
                idle_s=now - (self._journal.get("ended_at") or now),
                told_off=self._told_off,
                own_drain=self._journal.get("own_drain"),
                unsaid=bool(self._journal.unacknowledged()),
                idle_timeout_s=self._spec.idle_timeout_s,
                max_lifetime_s=self._spec.max_lifetime_s,
                stop_when_unreachable_s=self._spec.stop_when_unreachable_s,
            )
        )
        if due is None:
            return False
        if due.what == "drain":
            deadline_at = self._alarm.own("lease", "agent", due.why, self._spec.notice_s)
            self._journal.put(own_drain=due.why)
            self._drain(Cause("lease", "shutdown", "agent", deadline_at))
            return False
        if self._run.launched and self._run.exit() is None:
            self._run.end(1.0)  # power_off with a job that still runs: told so, or lifetime over; its processes end in order
            return False
        self._logs.flush(_FAREWELL_S if not self._link.failing else 0.5)
        return self._power.off(due.why)

    def _leave(self) -> int:
        """Say what is unsaid, for a few seconds, and stop the threads."""
        ends = self._clock.monotonic() + _FAREWELL_S
        never = threading.Event()
        while self._journal.unacknowledged() and self._clock.monotonic() < ends:
            self._link.wake()
            self._clock.wait(never, 0.1)
        self._logs.flush(1.0)
        self._link.stop()
        self._logs.stop()
        if self._watch is not None:
            self._watch.stop()
        if self._replicator is not None:
            self._replicator.stop()
        return 0


def new_journal(places: Places, clock: Clock) -> Journal:
    """Return the journal of *places*, with some disk kept back for it."""
    return Journal(places.journal, clock, procfs.boot_id(), files.Ballast(os.path.join(places.agent, "ballast")))
