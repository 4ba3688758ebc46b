"""The loop: one writer thread steps the engine; effects run in worker threads and come back as events.

`record` is the door for everybody else: it returns after its events are committed, so a caller may acknowledge them. Submissions that arrive
together share one transaction; one that cannot be folded fails alone.
"""

from __future__ import annotations

import logging
import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spotd.core.events import Event
from spotd.core.plan import subject
from spotd.daemon.database import StoreError
from spotd.daemon.engine import PlanDoesNotSettle
from spotd.daemon.execute import execute
from spotd.daemon.journal_log import log_events

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from spotd.core.instance import LaunchRequest
    from spotd.core.plan import Effect, Hold, Snapshot
    from spotd.core.world import World
    from spotd.daemon.engine import Engine, Step
    from spotd.ports import Clock, Provider

_log = logging.getLogger(__name__)

#: Provider calls at a time. Launches and terminations of a correlated reclaim should not queue behind each other (known-faults A.19).
WORKERS = 32
_STORE_RETRY_S = 1.0
#: How often whoever waits for a commit looks whether the writer still lives.
_ALIVE_S = 1.0
_BATCH = 500


@dataclass(frozen=True, slots=True)
class _Submission:
    events: tuple[Event, ...]
    done: tuple[str, ...] = ()
    #: None: nobody waits, and what it says must not be lost.
    answer: Future[None] | None = field(default=None, compare=False)


class Loop:
    """Owns the writer thread and the workers. Implements `ports.Recorder`."""

    def __init__(
        self,
        engine: Engine,
        providers: Mapping[str, Provider],
        user_data: Callable[[LaunchRequest], str],
        clock: Clock,
        *,
        longest_sleep_s: float = 5.0,
    ) -> None:
        self._engine = engine
        self._providers = providers
        self._user_data = user_data
        self._clock = clock
        #: The loop looks at least this often, whatever the plan says.
        self._longest_sleep_s = longest_sleep_s
        self._inbox: queue.SimpleQueue[_Submission] = queue.SimpleQueue()
        self._unsaved: list[_Submission] = []
        self._stopping = threading.Event()
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="effect")
        self._writer = threading.Thread(target=self._run, name="writer", daemon=True)
        self.last_step_at = clock.monotonic()
        self._next_look: datetime | None = None

    @property
    def world(self) -> World:
        """The last committed world."""
        return self._engine.world

    def start(self) -> None:
        """Begin to step."""
        self._writer.start()
        self.wake()

    def stop(self) -> None:
        """Stop after the step under way. Instances and jobs run on; effects under way finish or are asked for again at the next start."""
        self._stopping.set()
        self.wake()
        if self._writer.ident is not None:  # else it was never started: the daemon could not listen
            self._writer.join(timeout=30)
        self._workers.shutdown(wait=True, cancel_futures=True)

    def wake(self) -> None:
        """Step soon."""
        self._inbox.put(_Submission(()))

    def record(self, events: Sequence[Event]) -> None:
        """Fold and commit, then return. Raises what the fold or the store raises, with nothing changed."""
        if threading.current_thread() is self._writer:
            raise RuntimeError("record() was called by the writer itself")
        answer: Future[None] = Future()
        self._inbox.put(_Submission(tuple(events), answer=answer))
        while True:
            try:
                return answer.result(timeout=_ALIVE_S)
            except TimeoutError:
                if not self._writer.is_alive() and not answer.done():
                    # Handed in after the last submission was taken: nobody will answer.
                    raise RuntimeError("spotd is stopping; ask again") from None

    def tell(self, events: Sequence[Event]) -> None:
        """Hand in events that nobody waits for and that must not be lost."""
        self._inbox.put(_Submission(tuple(events)))

    def heard(self, instance_id: str) -> None:
        """An agent called."""
        self._engine.heard(instance_id, self._clock.now())

    def snapshot(self) -> Snapshot:
        """What a plan made now would read."""
        return self._engine.snapshot(self._clock.now())

    def holds(self) -> Mapping[str, Hold]:
        """Why nothing is done about a job, as of the last plan."""
        return self._engine.holds

    def _run(self) -> None:
        while not self._stopping.is_set():
            batch = self._unsaved + self._take()
            self._unsaved = []
            self._process(batch)
            self.last_step_at = self._clock.monotonic()
        for submission in self._unsaved + self._drain_inbox():
            if submission.answer is not None:
                submission.answer.set_exception(RuntimeError("spotd is stopping; ask again"))

    def _take(self) -> list[_Submission]:
        """The next submissions, waited for no longer than until something is due."""
        try:
            first = self._inbox.get(timeout=self._sleep_s())
        except queue.Empty:
            return []
        return [first, *self._drain_inbox()]

    def _sleep_s(self) -> float:
        if self._unsaved:
            return _STORE_RETRY_S
        due = self._next_look
        if due is None:
            return self._longest_sleep_s
        return min(max((due - self._clock.now()).total_seconds(), 0.01), self._longest_sleep_s)

    def _drain_inbox(self) -> list[_Submission]:
        taken: list[_Submission] = []
        while len(taken) < _BATCH:
            try:
                taken.append(self._inbox.get_nowait())
            except queue.Empty:
                break
        return taken

    def _process(self, batch: list[_Submission]) -> None:
        try:
            step = self._step(batch)
        except StoreError as error:
            # Nothing is wrong with any of them, and each alone would wait for the same lock or disk.
            self._failed(batch, error)
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the loop goes on; each submission is then tried alone
            if len(batch) > 1:
                for submission in batch:
                    self._process([submission])
                return
            self._failed(batch, error)
            return
        for submission in batch:
            if submission.answer is not None:
                submission.answer.set_result(None)
        self._next_look = step.next_look
        for effect in step.effects:
            self._begin(effect)
        try:
            log_events(step.events)
        except Exception:  # noqa: BLE001 - a line that cannot be written must not end the thread that everybody waits for
            _log.exception("what was recorded could not be logged")

    def _begin(self, effect: Effect) -> None:
        try:
            self._workers.submit(self._carry_out, effect)
        except RuntimeError as error:
            # No thread can be started now. The effect is in the queue, and the next thread takes it.
            _log.error("%s waits for a worker: %s", type(effect).__name__, error)

    def _step(self, batch: list[_Submission]) -> Step:
        events = [event for submission in batch for event in submission.events]
        done = [identity for submission in batch for identity in submission.done]
        return self._engine.step(self._clock.now(), events, done)

    def _failed(self, batch: list[_Submission], error: Exception) -> None:
        for submission in batch:
            if submission.answer is not None:
                submission.answer.set_exception(error)
            elif submission.events or submission.done:
                _log.error("could not record %s: %s; trying again", [type(e).__name__ for e in submission.events], error)
                self._unsaved.append(submission)
        if isinstance(error, PlanDoesNotSettle) or not batch:
            _log.error("the plan could not be carried out: %s", error)
        if self._unsaved or not batch:
            self._stopping.wait(_STORE_RETRY_S)

    def _carry_out(self, effect: Effect) -> None:
        event = execute(effect, self._providers, self._user_data, self._clock)
        self._inbox.put(_Submission((event,), done=(subject(effect),)))
