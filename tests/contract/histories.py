"""Histories that could have happened: random events, each folded into the world before the next is drawn. For tests of stores and reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from hypothesis import strategies as st

from spotd.core import events as e
from spotd.core.attempt import Attempt, Checkpoint, DrainKind, DrainOrder, EndReason, Purpose
from spotd.core.errors import ErrorKind, Scope
from spotd.core.fold import fold
from spotd.core.ids import attempt_id, instance_id
from spotd.core.instance import EndedBy, Instance, LaunchRequest, ObservedInstance, ObservedState
from spotd.core.job import Job, JobSpec, Outcome, Retries
from spotd.core.lifecycle import IllegalTransition
from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd.core.offer import Market, OfferKey
from spotd.core.world import Changes, World

_Made = TypeVar("_Made")

DEPLOYMENT = "deployment-1"
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
OFFERS = tuple(
    OfferKey(provider, region, f"{region}{zone}", "gpu.8", market)
    for provider, region in (("local", "us-1"), ("local", "eu-1"), ("cloud", "us-1"))
    for zone in "ab"
    for market in Market
)

_text = st.text(max_size=12)
_prices = st.decimals(min_value="0.000001", max_value="99.5", places=6, allow_nan=False)
_moments = st.integers(0, 3_600_000_000).map(lambda us: timedelta(microseconds=us))
_seconds = st.floats(0, 1e6, allow_nan=False)


@dataclass(frozen=True, slots=True)
class Step:
    """What was committed at once, and the world after it."""

    events: tuple[e.Event, ...]
    changes: Changes
    world: World


class _Walk:
    """Draws one event at a time about what the world holds now."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.world = World(DEPLOYMENT)
        self.now = START
        #: How a job begins when all goes well, as far as drawn: random events alone seldom come to a running workload.
        begins: list[Callable[[], e.Event | None]] = [
            self._submit,
            self._place,
            self._first_launch,
            self._launched,
            self._ready,
            self._gate,
            self._started,
        ]
        self.opening = begins[: draw(st.integers(1, len(begins)))]

    def event(self) -> e.Event | None:
        """The next thing that happens; None when there is nothing it could happen to."""
        self.now += self.draw(_moments)
        if self.opening:
            return self.opening.pop(0)()
        makers: list[Callable[[], e.Event | None]] = [self._submit, self._alarm, self._about_job, self._about_job]
        makers += [self._about_attempt] * 4 + [self._about_instance] * 8 + [self._agent_word] * 8 + [self._listing] * 2
        return self._one(makers)

    def _one(self, makers: Sequence[Callable[[], _Made]]) -> _Made:
        return makers[self.draw(st.integers(0, len(makers) - 1))]()

    def _pick(self, rows: Any) -> Any:
        values = sorted(rows.values(), key=lambda row: row.id)
        return self.draw(st.sampled_from(values)) if values else None

    def _submit(self) -> e.Event:
        spec = JobSpec(
            name=self.draw(_text),
            policy="h100",
            run=self.draw(_text),
            setup=self.draw(st.none() | _text),
            labels=self.draw(st.dictionaries(_text, _text, max_size=2)),
            env=self.draw(st.dictionaries(_text, _text, max_size=2)),
            estimated_runtime=self.draw(st.none() | _moments),
            retries=Retries(2, tuple(self.draw(st.lists(st.integers(1, 255), max_size=2)))),
        )
        job = Job(f"job-{len(self.world.jobs)}", spec, self.draw(_text), self.now, waiting_since=self.now)
        return e.JobSubmitted(self.now, job)

    def _place(self) -> e.Event:
        job: Job = self._pick(self.world.jobs)
        number = job.attempts + 1
        return e.AttemptPlaced(self.now, job.id, attempt_id(job.id, number), number, self.draw(st.sampled_from(Purpose)))

    def _first_launch(self) -> e.Event:
        return self._launch(self._pick(self.world.attempts))

    def _launched(self) -> e.Event:
        instance: Instance = self._pick(self.world.instances)
        return e.LaunchSucceeded(self.now, instance.id, f"i-{instance.id[:8]}", self.now)

    def _ready(self) -> e.Event:
        return e.AgentReady(self.now, self._pick(self.world.instances).id, None, None, 1.5, 0.1, 0.0)

    def _gate(self) -> e.Event:
        return e.GateOpened(self.now, self._pick(self.world.attempts).id, self.draw(_prices), "first")

    def _started(self) -> e.Event:
        return e.WorkloadStarted(self.now, self._pick(self.world.instances).id)

    def _about_job(self) -> e.Event | None:
        job = self._pick(self.world.jobs)
        if job is None:
            return None
        placed = self._place()
        finished = e.JobFinished(self.now, job.id, self.draw(st.sampled_from(Outcome)), self.draw(_text))
        retried = e.JobRetried(self.now, job.id, job.attempts, self.draw(st.booleans()), self.now, "again")
        events: list[e.Event] = [placed, placed, placed, finished, retried, e.CancelRequested(self.now, job.id, "alice")]
        return self.draw(st.sampled_from(events))

    def _alarm(self) -> e.Event:
        alarm = e.AlarmRaised(self.now, self.draw(st.sampled_from(e.AlarmKind)), "subject", self.draw(_text))
        events: list[e.Event] = [alarm, e.PolicyLoaded(self.now, "h100", "")]
        return self.draw(st.sampled_from(events))

    def _about_attempt(self) -> e.Event | None:
        attempt: Attempt | None = self._pick(self.world.attempts)
        if attempt is None:
            return None
        order = DrainOrder("order", self.draw(st.sampled_from(DrainKind)), self.now, self.now + timedelta(minutes=2))
        makers: list[Callable[[], e.Event]] = [
            lambda: e.GateOpened(self.now, attempt.id, self.draw(st.none() | _prices), "first"),
            lambda: e.DrainOrdered(self.now, attempt.id, order, "cheaper elsewhere"),
            lambda: e.AttemptEnded(self.now, attempt.id, self.draw(st.sampled_from(EndReason)), self.draw(_text)),
            lambda: self._launch(attempt),
            lambda: self._launch(attempt),
        ]
        return self._one(makers)

    def _launch(self, attempt: Attempt) -> e.Event:
        offer = self.draw(st.sampled_from(OFFERS))
        number = attempt.tries + 1
        token = instance_id(DEPLOYMENT, attempt.id, 0, number, offer)
        cap = self.draw(st.none() | _prices)
        labels = self.draw(st.dictionaries(_text, _text, max_size=1))
        expires = self.now + timedelta(days=7)
        request = LaunchRequest(token, DEPLOYMENT, attempt.job_id, "name", attempt.number, 0, offer, cap, expires, labels)
        instance = Instance(token, attempt.job_id, attempt.id, 0, number, request, self.draw(_prices), "cheapest", self.now)
        return e.LaunchRequested(self.now, instance)

    def _about_instance(self) -> e.Event | None:
        instance: Instance | None = self._pick(self.world.instances)
        if instance is None:
            return None
        kind, scope = self.draw(st.sampled_from(ErrorKind)), self.draw(st.sampled_from(Scope))
        launched = self.draw(st.none() | st.just(self.now))
        makers: list[Callable[[], e.Event]] = [
            lambda: e.LaunchSucceeded(self.now, instance.id, f"i-{instance.id[:8]}", launched),
            lambda: e.LaunchSucceeded(self.now, instance.id, f"i-{instance.id[:8]}", self.now),
            lambda: e.LaunchRefused(self.now, instance.id, kind, scope, "Code", self.draw(_text), self.draw(st.none() | _seconds)),
            lambda: e.LaunchUnknown(self.now, instance.id, "timed out"),
            lambda: e.LaunchNotFound(self.now, instance.id),
            lambda: e.LaunchPending(self.now, instance.id),
            lambda: e.LaunchRepeated(self.now, instance.id),
            lambda: e.PriceMoved(self.now, instance.id, self.draw(_prices)),
            lambda: e.TerminateRequested(self.now, instance.id, "unwanted"),
            lambda: e.TerminateAcknowledged(self.now, instance.id),
            lambda: e.TerminateFailed(self.now, instance.id, "503"),
            lambda: e.AbsenceProved(self.now, instance.id),
        ]
        return self._one(makers)

    def _agent_word(self) -> e.Event | None:
        instance: Instance | None = self._pick(self.world.instances)
        if instance is None:
            return None
        attempt = self.world.attempts[instance.attempt_id]
        step = self.draw(st.none() | st.integers(0, 10**9))
        loss = self.draw(st.none() | st.floats(allow_nan=False))
        kind = self.draw(st.sampled_from(NoticeKind))
        notice = Notice(kind, self.draw(st.sampled_from(NoticeSource)), self.now, self.now + timedelta(minutes=2))
        sequence = self.draw(st.integers(1, 5))
        name = f"{attempt.number:05}-{sequence:06}"
        checkpoint = Checkpoint(name, attempt.job_id, attempt.number, sequence, step, 2, 1000, "ab", self.now, self.draw(_seconds))
        makers: list[Callable[[], e.Event]] = [
            lambda: e.AgentBootstrapped(self.now, instance.id, "nonce", "session"),
            lambda: e.AgentReady(self.now, instance.id, attempt.checkpoint, step, 1.5, 0.1, 0.0),
            lambda: e.WorkloadStarted(self.now, instance.id),
            lambda: e.ProgressReported(self.now, instance.id, step, loss),
            lambda: e.NoticeSeen(self.now, instance.id, notice),
            lambda: e.NoticeCancelled(self.now, instance.id, kind),
            lambda: e.CheckpointCommitted(self.now, instance.id, checkpoint),
            lambda: e.WorkloadDrained(self.now, instance.id, self.draw(st.booleans()), step, name, 1.0, 120.0, None, ""),
            lambda: e.WorkloadExited(self.now, instance.id, self.draw(st.sampled_from([0, 1])), done=False, step=step),
            lambda: e.StartFailed(self.now, instance.id, "setup", 1, self.draw(_text)),
        ]
        return self._one(makers)

    def _listing(self) -> e.Event:
        provider, region = self.draw(st.sampled_from([("local", "us-1"), ("local", "eu-1"), ("cloud", "us-1")]))
        rows = [ObservedInstance("i-stray", None, region, f"{region}a", ObservedState.RUNNING, None)]
        for instance in self.world.instances.values():
            offer = instance.request.offer
            if (offer.provider, offer.region) == (provider, region):
                state = self.draw(st.sampled_from(ObservedState))
                gone = state is ObservedState.GONE
                by = self.draw(st.sampled_from(EndedBy)) if gone else None
                launched = self.draw(st.none() | st.just(self.now))
                identity = instance.provider_id or f"i-{instance.id[:8]}"
                ended = self.now if gone else None
                rows.append(ObservedInstance(identity, instance.id, region, offer.zone, state, launched, ended, by, "code"))
        seen = tuple(self.draw(st.lists(st.sampled_from(rows), unique_by=lambda row: row.provider_id)))
        return e.Listed(self.now, self.now, provider, region, seen)


@st.composite
def histories(draw: st.DrawFn, max_steps: int = 16) -> list[Step]:
    """What was committed, in order. An event that the tables of states do not allow is left out, as the engine never records one."""
    walk = _Walk(draw)
    steps: list[Step] = []
    for _ in range(draw(st.integers(max_steps // 2, max_steps))):
        batch: list[e.Event] = []
        before = walk.world
        for _ in range(draw(st.integers(1, 4))):
            event = walk.event()
            if event is None:
                continue
            try:
                walk.world, _ = fold(walk.world, [event])
            except IllegalTransition:
                continue
            batch.append(event)
        walk.world, changes = fold(before, batch)
        steps.append(Step(tuple(batch), changes, walk.world))
    return steps
