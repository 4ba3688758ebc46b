"""One drain, from notice to report: the hands of `spotd.node.drain`.

Its state is in the journal, so a restarted agent goes on where it was.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from spotd.node import drain
from spotd.node.clock import Clock
from spotd.node.drain import Decision, Hook, Step
from spotd.node.journal import Journal
from spotd.node.places import Places
from spotd.node.replicator import Replicator
from spotd.node.spec import Spec
from spotd.node.task import Exit, Task
from spotd.node.voice import say

_HOOK_OUTPUT = 16 << 20
_OVERTIME_S = 30.0  # uploads go on so long after the deadline: a reclaim may be late, a drain asked for by the daemon has slack
_ENDS_ITSELF = (
    0,
    130,
    143,
)  # exit codes of a job that understood a notice or the shutdown's SIGTERM/SIGINT (facts/reclaim.md §5, 58)
_SIGNALS = (2, 15)


@dataclasses.dataclass(frozen=True)
class Cause:
    """Why to stop and until when; *id* names the notice or order."""

    id: str
    kind: str
    source: str
    deadline_at: float


class Drainer:
    """`step` is called several times a second until it returns True. *run* is the job's task, None if it never started."""

    def __init__(
        self,
        spec: Spec,
        places: Places,
        journal: Journal,
        clock: Clock,
        replicator: Replicator | None,
        run: Task,
        hook: Task,
    ) -> None:
        self._spec = spec
        self._places = places
        self._journal = journal
        self._clock = clock
        self._replicator = replicator
        self._run = run
        self._hook = hook
        self._flushing = False

    def begin(self, cause: Cause) -> None:
        """Record the drain and tell the job; a second cause can only bring the deadline forward."""
        now = self._clock.monotonic()
        record = self._journal.get("drain")
        if record is not None:
            if cause.deadline_at < record["deadline_at"]:
                self._put({**record, "deadline_at": cause.deadline_at})
                self._tell(record["kind"], cause)
                self._limit(cause.deadline_at)
            return
        if self._replicator is not None:
            self._replicator.look()
        record = {
            "id": cause.id,
            "kind": cause.kind,
            "source": cause.source,
            "deadline_at": cause.deadline_at,
            "noticed_at": now,
            "given_s": max(0.0, cause.deadline_at - now),
            "ordinal": 0 if self._replicator is None else self._replicator.view().ordinal,
            "why": None,
            "problems": [],
        }
        # The job's file first: every second counts, and a drain that is told twice does no harm.
        told = self._tell(cause.kind, cause)
        self._put(record)
        # On a full disk writing the record has made some room.
        if not told and not self._tell(cause.kind, cause):
            self._put(self._problem(record, "the notice file could not be written"))
        self._limit(cause.deadline_at)

    def step(self) -> bool:
        """Do what is due; True once the job is gone, uploads are over and the report is in the journal."""
        record = self._note_hook(self._journal.get("drain"))
        ended = self._run.exit() if self._run.launched else None
        running = self._run.launched and ended is None
        if not self._flushing:
            decision = self._decide(record, running=running)
            self._act(record, decision)
            if decision.step is not Step.FINISH:
                return False
            self._flushing = True
            if self._replicator is not None:
                limit = max(record["deadline_at"], self._clock.monotonic()) + _OVERTIME_S
                by_itself = ended is not None and not ended.asked and ended.code == 0
                trigger = "exit" if by_itself and self._replicator.view().done else "notice"
                self._replicator.finish(trigger, succeeded=by_itself, give_up_at=limit)
        if self._replicator is not None and self._replicator.view().unsettled and not self._too_late(record):
            return False
        self._report(self._journal.get("drain"), ended)
        return True

    def _decide(self, record: dict[str, Any], *, running: bool) -> Decision:
        now = self._clock.monotonic()
        if self._replicator is None:
            return Decision(Step.FINISH if not running else Step.END_JOB, "the job had not begun")
        view = self._replicator.view()
        committed = self._journal.get("committed") or {}
        return drain.decide(
            drain.View(
                now=now,
                noticed_at=record["noticed_at"],
                deadline_at=record["deadline_at"],
                reserve_s=self._spec.drain_reserve_s,
                job_running=running,
                hook=self._hook_state(record),
                announced_since=view.ordinal > record["ordinal"],
                ever_announced=view.ordinal > 0,
                quiet=view.quiet,
                committed_since=committed.get("committed_at", -1.0) >= record["noticed_at"],
                upload_s=view.upload_s,
                save_s=view.save_s,
                saving_since=view.saving_since,
            )
        )

    def _note_hook(self, record: dict[str, Any]) -> dict[str, Any]:
        """Measure the hook once it has ended, and look at what it left before anything is decided about a tree at rest."""
        if record.get("hook_s") is not None or not self._hook.launched or self._hook.exit() is None:
            return record
        now = self._clock.monotonic()
        if self._replicator is not None:
            self._replicator.look(rescan=True)
        record = {**record, "hook_s": round(now - record.get("hook_at", now), 3)}
        self._put(record)
        return record

    def _hook_state(self, record: dict[str, Any]) -> Hook:
        if self._spec.hook is None:
            return Hook.NONE
        if not self._hook.launched:
            return Hook.FAILED if record.get("hook_failed") else Hook.PENDING
        ended = self._hook.exit()
        if ended is None:
            return Hook.RUNNING
        return Hook.SAVED if ended.code == 0 else Hook.FAILED

    def _act(self, record: dict[str, Any], decision: Decision) -> None:
        left = record["deadline_at"] - self._clock.monotonic()
        if decision.step is Step.START_HOOK:
            self._put({**record, "hook_at": self._clock.monotonic()})
            self._start_hook(left)
        elif decision.step is Step.END_HOOK and record.get("hook_ended_at") is None:
            self._put({**self._problem(record, decision.why), "hook_ended_at": self._clock.monotonic()})
            self._hook.end(max(0.1, min(5.0, 0.1 * record["given_s"])))
        elif decision.step is Step.END_JOB and record.get("why") is None:
            self._put({**record, "why": decision.why})
            self._run.end(max(0.2, min(3.0, left / 4.0)))

    def _start_hook(self, left: float) -> None:
        environment = self._places.environment(self._spec, os.environ, (self._journal.get("restored") or {}).get("path", ""))
        environment["SPOTD_DEADLINE_EPOCH"] = f"{self._clock.epoch() + left:.3f}"
        environment["SPOTD_SECONDS_LEFT"] = str(max(0, int(left)))
        try:
            self._hook.start(
                self._spec.hook or "",
                self._places.work,
                environment,
                log=self._places.log,
                user=self._places.user,
                output_limit=_HOOK_OUTPUT,
            )
        except OSError as error:
            record = self._problem(self._journal.get("drain"), f"the hook could not be started: {error}")
            self._put({**record, "hook_failed": True})

    def _limit(self, deadline_at: float) -> None:
        if self._replicator is not None:
            self._replicator.limit(deadline_at + _OVERTIME_S)

    def _tell(self, kind: str, cause: Cause) -> bool:
        left = max(0.0, cause.deadline_at - self._clock.monotonic())
        try:
            self._places.write_notice(kind, round(self._clock.epoch() + left, 3), round(left, 3), cause.source, cause.id)
        except OSError as error:
            say(f"the notice file cannot be written: {error}")
            return False
        return True

    def _too_late(self, record: dict[str, Any]) -> bool:
        return bool(self._clock.monotonic() >= max(record["deadline_at"], record.get("hook_ended_at") or 0.0) + _OVERTIME_S)

    def _report(self, record: dict[str, Any], ended: Exit | None) -> None:
        """Queue `drained`; or `exited`, for a job that was done, or crashed on its own although it had a notice."""
        view = None if self._replicator is None else self._replicator.view()
        done = view is not None and view.done
        if ended is not None and not ended.asked and record["why"] is None and self._is_own_end(ended, done=done):
            how = {
                "code": ended.code,
                "signal": ended.signal,
                "done": done,
                "step": None if view is None else view.step,
            }
            self._journal.say("exited", how, once="end", phase="exited", ended_at=self._clock.monotonic())
            return
        committed = self._journal.get("committed") or {}
        hook = self._hook.exit() if self._hook.launched else None
        now = self._clock.monotonic()
        saved = committed.get("committed_at", -1.0) >= record["noticed_at"]
        reached = None if view is None else view.step
        fields: dict[str, Any] = {
            "kind": record["kind"],
            "step": committed["step"] if saved and committed["step"] is not None else reached,
            "checkpoint": committed.get("checkpoint"),
            "saved": saved,
            "seconds_used": round(now - record["noticed_at"], 3),
            "seconds_given": round(record["given_s"], 3),
            "hook_exit": None if hook is None else _exit_number(hook),
            "hook_s": record.get("hook_s"),
            "detail": self._detail(record, ended, None if view is None else view.problem)[:2000],
        }
        self._journal.say("drained", fields, once="end", phase="drained", ended_at=now)

    def _is_own_end(self, ended: Exit, *, done: bool) -> bool:
        if ended.code == 0:
            return done
        return ended.code not in _ENDS_ITSELF and ended.signal not in _SIGNALS

    def _detail(self, record: dict[str, Any], ended: Exit | None, problem: str | None) -> str:
        if not self._run.launched:
            parts = ["the job had not begun"]
        elif record.get("why"):
            parts = [record["why"]]
        else:
            parts = ["the job ended by itself"]
        if ended is not None and ended.lost:
            parts.append("its shim was killed")
        return "; ".join([*parts, *record["problems"], *([problem] if problem else [])])

    def _problem(self, record: dict[str, Any], text: str) -> dict[str, Any]:
        return {**record, "problems": [*record["problems"], text]}

    def _put(self, record: dict[str, Any]) -> None:
        self._journal.put(drain=record)


def _exit_number(ended: Exit) -> int:
    """Return the exit code, the negated signal, or 127 for what could not be started, as a shell would."""
    if ended.code is not None:
        return ended.code
    return 127 if ended.signal is None else -ended.signal
