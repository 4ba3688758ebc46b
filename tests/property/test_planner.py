"""`plan` on any snapshot that a cloud, agents and users can bring about, in any order, however absurd."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from spotd.core import events as e
from spotd.core.attempt import Checkpoint
from spotd.core.errors import ErrorKind, Scope
from spotd.core.instance import EndedBy, Instance, InstanceState, ObservedInstance, ObservedState
from spotd.core.job import Job, JobSpec, Retries
from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd.core.offer import Market, Offer, OfferKey
from spotd.core.plan import Effect, Launch, Resolve, Terminate
from spotd.core.planner import cases, plan
from spotd.core.policy import Policy, SpotHandlers
from tests.unit.core.stage import START, Stage, offer_key, policy

CAP = Decimal("2.00")
_REGIONS = ("east", "west")


class Play:
    """An engine, and the moves of everybody around it. A move that makes no sense now does nothing."""

    def __init__(self, the_policy: Policy, jobs: int, retries: int) -> None:
        self.policy = the_policy
        self.stage = Stage(the_policy)
        self.recorded: list[e.Event] = []
        for number in range(1, jobs + 1):
            spec = JobSpec("train", the_policy.name, "python train.py", retries=Retries(retries))
            job = Job(f"job-{number}", spec, "alice", START, waiting_since=START)
            self._step(lambda _, job=job: e.JobSubmitted(START, job))

    def _step(self, *events: Callable[..., e.Event], after: float = 1.0, done: tuple[Effect, ...] = ()) -> None:
        before = len(self.stage.ledger.events)
        self.stage.step(*events, after=after, done=done)
        self.recorded = self.stage.ledger.events[before:]

    def _pick(self, number: int) -> Instance | None:
        instances = sorted(self.stage.engine.world.instances.values(), key=lambda i: i.id)
        return instances[number % len(instances)] if instances else None

    def bring_up(self, number: int) -> None:
        """The newest launch goes well, and its workload runs as soon as its gate opens."""
        launches = [effect for effect in self.stage.effects if isinstance(effect, Launch)]
        if launches:
            effect = launches[number % len(launches)]
            self.stage.effects.remove(effect)
            token = effect.request.token
            self._step(lambda at: e.LaunchSucceeded(at, token, f"i-{token[:8]}", at), done=(effect,))
            self._step(lambda at: e.AgentBootstrapped(at, token, "n", "s", self.policy.replace_when_unreachable))
            self._step(lambda at: e.AgentReady(at, token, None, None, 1.0, 0.0, 0.0))
            gates = self.recorded
            self._step(lambda at: e.WorkloadStarted(at, token))
            self.recorded = gates + self.recorded

    def warn(self, number: int) -> None:
        """A machine whose workload may run is reclaimed."""
        world = self.stage.engine.world
        running = sorted(i.id for i in world.instances.values() if i.live and world.attempts[i.attempt_id].may_have_run)
        if running:
            token = running[number % len(running)]
            self._step(lambda at: e.NoticeSeen(at, token, Notice(NoticeKind.RECLAIM, NoticeSource.IMDS, at, at + timedelta(seconds=120))))

    def wait(self, number: int) -> None:
        """Time passes: seconds, minutes or hours."""
        self._step(after=(2.0, 30.0, 200.0, 900.0, 4000.0, 90000.0)[number % 6])

    def answer(self, number: int) -> None:
        """An effect comes back."""
        if not self.stage.effects:
            return
        effect = self.stage.effects.pop(number % len(self.stage.effects))
        match effect:
            case Launch(request) | Resolve(request):
                token = request.token
                choices: tuple[Callable[..., e.Event], ...] = (
                    lambda at: e.LaunchSucceeded(at, token, f"i-{token[:8]}", at),
                    lambda at: e.LaunchSucceeded(at, token, f"i-{token[:8]}", None),
                    lambda at: e.LaunchRefused(at, token, ErrorKind.NO_CAPACITY, Scope.ZONE, "c", "m"),
                    lambda at: e.LaunchRefused(at, token, ErrorKind.THROTTLED, Scope.PROVIDER, "c", "m", 30.0),
                    lambda at: e.LaunchRefused(at, token, ErrorKind.QUOTA_EXCEEDED, Scope.REGION, "c", "m"),
                    lambda at: e.LaunchUnknown(at, token, "timed out"),
                    lambda at: e.LaunchNotFound(at, token),
                )
                self._step(choices[number % len(choices)], done=(effect,))
            case Terminate(instance_id=identity) if identity is not None:
                ended: tuple[Callable[..., e.Event], ...] = (
                    lambda at: e.TerminateAcknowledged(at, identity),
                    lambda at: e.TerminateFailed(at, identity, "5xx"),
                )
                self._step(ended[number % 2], done=(effect,))
            case _:
                self._step(done=(effect,))

    def list(self, number: int) -> None:
        """A region is listed: each of its machines in some state, or missing."""
        region = _REGIONS[number % 2]
        rows = []
        for position, instance in enumerate(sorted(self.stage.engine.world.instances.values(), key=lambda i: i.id)):
            offer, state = instance.request.offer, (number >> (2 * position + 1)) % 5
            if offer.region != region or state == 4 or instance.provider_id is None:
                continue
            observed = (ObservedState.PENDING, ObservedState.RUNNING, ObservedState.ENDING, ObservedState.GONE)[state]
            by = tuple(EndedBy)[(number >> 3) % len(EndedBy)] if observed is ObservedState.GONE else None
            now = self.stage.now
            ended = now if by else None
            rows.append(ObservedInstance(instance.provider_id, instance.id, region, offer.zone, observed, instance.requested_at, ended, by, "code"))
        self._step(lambda at: e.Listed(at, at, "cloud", region, tuple(rows)), after=60.0)

    def speak(self, number: int) -> None:
        """An agent says something, whether it is its turn or not."""
        instance = self._pick(number // 16)
        if instance is None:
            return
        token = instance.id
        self.stage.engine.heard(token, self.stage.now)
        sequence = number % 7 + 1
        kind = tuple(NoticeKind)[number % len(NoticeKind)]
        left = timedelta(seconds=120 if number % 3 else 864000)
        choices: tuple[Callable[..., e.Event], ...] = (
            lambda at: e.AgentReady(at, token, None, None, 1.0, 0.0, 0.0),
            lambda at: e.WorkloadStarted(at, token),
            lambda at: e.NoticeSeen(at, token, Notice(kind, NoticeSource.IMDS, at, at + left)),
            lambda at: e.NoticeCancelled(at, token, kind),
            lambda at: e.WorkloadDrained(at, token, True, 5, None, 1.0, 120.0, None, ""),  # noqa: FBT003 - saved
            lambda at: e.WorkloadExited(at, token, number % 2, done=False, step=9),
            lambda at: e.StartFailed(at, token, "setup", 1, "setup exited with 1"),
            lambda at: e.CheckpointCommitted(
                at,
                token,
                Checkpoint(f"{instance.request.attempt:05d}-{sequence:06d}", instance.job_id, instance.request.attempt, sequence, 5, 1, 1, "s", at),
            ),
        )
        self._step(choices[number % len(choices)])

    def cancel(self, number: int) -> None:
        """A user has enough."""
        jobs = sorted(self.stage.engine.world.jobs)
        if jobs:
            self._step(lambda at: e.CancelRequested(at, jobs[number % len(jobs)], "alice"))

    def reprice(self, number: int) -> None:
        """Prices move, above the cap and above on-demand as well."""
        spot = ("0.50", "1.00", "1.90", "2.50", "4.00")
        prices = {
            offer_key("east"): spot[number % 5],
            offer_key("west"): spot[number // 5 % 5],
            offer_key("east", Market.ON_DEMAND): "1.95" if number % 2 else "3.00",
            offer_key("west", Market.ON_DEMAND): "3.00",
        }
        self.stage.price(prices)
        self._step()


_MOVES = (
    Play.bring_up,
    Play.bring_up,
    Play.warn,
    Play.wait,
    Play.wait,
    Play.answer,
    Play.answer,
    Play.answer,
    Play.list,
    Play.speak,
    Play.speak,
    Play.speak,
    Play.cancel,
    Play.reprice,
)
_Moves = st.lists(st.tuples(st.sampled_from(_MOVES), st.integers(0, 2**16)), min_size=5, max_size=40)
_Policies = st.builds(
    policy,
    spot_handlers=st.builds(SpotHandlers, max_preemptions=st.integers(0, 3)),
    max_hourly_price_usd=st.sampled_from([None, CAP]),
    replace_when_unreachable=st.sampled_from([None, timedelta(minutes=30)]),
    max_run_duration=st.sampled_from([timedelta(hours=2), timedelta(days=7)]),
    return_to_spot_after=st.sampled_from([None, timedelta(minutes=30)]),
)


@given(the_policy=_Policies, jobs=st.integers(1, 2), retries=st.integers(0, 2), moves=_Moves)
def test_the_planners_promises(the_policy: Policy, jobs: int, retries: int, moves: list[tuple[Callable[[Play, int], None], int]]) -> None:
    """After every move: one gate at most, prices within the caps, a plan that leaves nothing to plan, and a reason for every non-action."""
    play = Play(the_policy, jobs, retries)
    _promises(play)
    for move, number in moves:
        play.recorded = []
        move(play, number)
        _promises(play)


def _promises(play: Play) -> None:
    engine, now = play.stage.engine, play.stage.now
    snapshot = engine.snapshot(now)
    again = plan(snapshot)
    assert again.decisions == (), "a plan carried out leaves nothing to plan"
    held = {hold.job_id for hold in again.holds}
    for case in cases(snapshot):
        may_run = [a for a in case.active if a.may_have_run]
        assert len(may_run) <= 1, "one workload may run"
        assert case.job.id in held, f"nothing is done about {case.job.id}, and nobody says why"
    for event in play.recorded:
        match event:
            case e.GateOpened():
                _fenced(play, event)
            case e.LaunchRequested(instance=instance):
                _affordable(play, instance, engine.offers)
            case e.DrainOrdered():
                assert event.order.deadline > event.at, "asked before the deadline"
            case _:
                pass


def _fenced(play: Play, event: e.GateOpened) -> None:
    """Every other attempt of the job that may have run has said that it stopped, or its machine is gone, or it was given up by policy."""
    world = play.stage.engine.world
    opened = world.attempts.get(event.attempt_id)
    if opened is None:
        return
    for other in world.attempts.values():
        if other.job_id != opened.job_id or other.id == opened.id or not other.may_have_run or other.stopped_at is not None:
            continue
        machines = [i for i in world.instances.values() if i.attempt_id == other.id and i.try_number == other.tries]
        given_up = play.policy.replace_when_unreachable is not None
        assert given_up or all(i.state is InstanceState.GONE for i in machines)


def _affordable(play: Play, instance: Instance, offers: object) -> None:
    assert isinstance(offers, dict)
    price, key = instance.price_usd_per_hour, instance.request.offer
    cap = play.policy.max_hourly_price_usd
    assert cap is None or price <= cap
    if key.market is Market.SPOT:
        on_demand: Offer = offers[OfferKey(key.provider, key.region, key.zone, key.instance_type, Market.ON_DEMAND)]
        assert price < on_demand.price_usd_per_hour
        assert instance.request.max_price_usd_per_hour is not None
