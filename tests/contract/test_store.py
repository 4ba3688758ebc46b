"""What every store promises: the one of the daemon and the one in memory pass the same suite."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotd.core import events as e
from spotd.core.attempt import Purpose
from spotd.core.events import Event
from spotd.core.fold import fold
from spotd.core.job import Job, JobSpec, Outcome
from spotd.core.offer import Offer
from spotd.core.world import Changes, World
from spotd.daemon.reader import Reader
from spotd.daemon.store import SqlStore
from spotd.ports import Store
from spotd.testing.memory_store import MemoryStore
from tests.contract.histories import DEPLOYMENT, OFFERS, START, Step, histories


class Place(Protocol):
    """Where one store lives, so that it can be opened again and looked into."""

    def open(self) -> SqlStore | MemoryStore:
        """The store, as a daemon that starts would open it."""

    def journal(self) -> list[Event]:
        """What its journal holds."""

    def prices(self) -> list[Offer]:
        """The changes of price that it holds, oldest first."""


class OnDisk:
    """A directory with a database."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "spotd.db"

    def open(self) -> SqlStore:  # noqa: D102 - as in the protocol
        return SqlStore.open(self.path, DEPLOYMENT)

    def journal(self) -> list[Event]:  # noqa: D102
        with Reader(self.path) as reader:
            return [row.event() for row in reader.journal(limit=10_000)]

    def prices(self) -> list[Offer]:  # noqa: D102
        with Reader(self.path) as reader:
            return list(reader.prices())


class InMemory:
    """One object that lives on."""

    def __init__(self) -> None:
        self.store = MemoryStore(DEPLOYMENT)

    def open(self) -> MemoryStore:  # noqa: D102
        return self.store

    def journal(self) -> list[Event]:  # noqa: D102
        return list(self.store.journal)

    def prices(self) -> list[Offer]:  # noqa: D102
        return list(self.store.prices)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with its tables and nothing in them, to be copied: migrations need run only once."""
    place = OnDisk(tmp_path_factory.mktemp("empty"))
    place.open().close()
    return place.path


@pytest.fixture(params=["sql", "memory"])
def new_place(request: pytest.FixtureRequest, empty_database: Path) -> Callable[[], Iterator[Place]]:
    """Makes fresh stores of one kind, as often as a property needs."""

    def on_disk() -> Iterator[Place]:
        with tempfile.TemporaryDirectory() as directory:
            place = OnDisk(Path(directory))
            shutil.copy(empty_database, place.path)
            yield place

    def in_memory() -> Iterator[Place]:
        yield InMemory()

    return on_disk if request.param == "sql" else in_memory


@pytest.fixture
def place(new_place: Callable[[], Iterator[Place]]) -> Iterator[Place]:
    """One fresh store."""
    with contextmanager(new_place)() as fresh:
        yield fresh


def restricted(world: World) -> World:
    """What of a world a store must bring back, worked out from the words of the port and not from any store."""
    busy = {instance.job_id for instance in world.instances.values() if instance.live}
    kept = {job.id for job in world.jobs.values() if job.outcome is None or job.id in busy}
    return World(
        deployment=world.deployment,
        jobs={k: v for k, v in world.jobs.items() if k in kept},
        attempts={k: v for k, v in world.attempts.items() if v.job_id in kept},
        instances={k: v for k, v in world.instances.items() if v.job_id in kept},
        checkpoints={k: v for k, v in world.checkpoints.items() if k in kept},
        intervals=world.intervals,
        cooldowns=world.cooldowns,
        lifetimes=world.lifetimes,
    )


def commit_all(store: Store, steps: list[Step]) -> None:
    """Commit a history."""
    for step in steps:
        store.commit(step.events, step.changes)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(steps=histories())
def test_what_is_loaded_is_the_world_that_was_committed(new_place: Callable[[], Iterator[Place]], steps: list[Step]) -> None:
    """After any history, a store that is opened anew gives the world of its last commit, as far as `load` promises it."""
    with contextmanager(new_place)() as place:
        store = place.open()
        commit_all(store, steps)
        store.close()
        again = place.open()
        loaded = again.load()
        again.close()
    assert loaded == restricted(steps[-1].world)


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(steps=histories(max_steps=12))
def test_the_journal_keeps_what_happened_in_order(new_place: Callable[[], Iterator[Place]], steps: list[Step]) -> None:
    """The journal holds exactly the journaled events, in the order of their commits, equal to what was committed."""
    with contextmanager(new_place)() as place:
        store = place.open()
        commit_all(store, steps)
        kept = place.journal()
        store.close()
    assert kept == [event for step in steps for event in step.events if event.journaled]


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(steps=histories(max_steps=10), cut=st.integers(0, 9))
def test_history_goes_on_after_a_restart(new_place: Callable[[], Iterator[Place]], steps: list[Step], cut: int) -> None:
    """A store opened anew takes further commits, and the end is the same as without the restart."""
    with contextmanager(new_place)() as place:
        store = place.open()
        commit_all(store, steps[:cut])
        store.close()
        store = place.open()
        store.load()
        commit_all(store, steps[cut:])
        loaded = store.load()
        store.close()
    assert loaded == restricted(steps[-1].world)


def submitted(name: str = "job-0") -> tuple[Event, ...]:
    """A job and its first attempt."""
    job = Job(name, JobSpec("train", "h100", "python train.py"), "alice", START)
    return (e.JobSubmitted(START, job), e.AttemptPlaced(START, name, f"{name}-1", 1, Purpose.START))


def test_a_new_store_holds_nothing(place: Place) -> None:
    """The first start of a deployment loads an empty world that bears its name."""
    store = place.open()
    assert store.load() == World(DEPLOYMENT)
    store.close()


def test_a_finished_job_is_not_loaded(place: Place) -> None:
    """A job with an outcome and nothing alive is history: only the journal and the readers know it."""
    store = place.open()
    events = (*submitted(), e.JobFinished(START, "job-0", Outcome.SUCCEEDED, "done"))
    _, changes = fold(World(DEPLOYMENT), events)
    store.commit(events, changes)
    assert store.load().jobs == {}
    assert len(place.journal()) == 3
    store.close()


def test_rows_are_overwritten_by_key(place: Place) -> None:
    """A row that changes again and again is one row: the last one counts."""
    store = place.open()
    events = submitted()
    world, changes = fold(World(DEPLOYMENT), events)
    store.commit(events, changes)
    for errors in (1, 2, 3):
        store.commit((), Changes(jobs=(replace(world.jobs["job-0"], errors=errors),)))
    assert store.load().jobs["job-0"].errors == 3
    assert len(place.journal()) == 2
    store.close()


def test_an_empty_commit_is_nothing(place: Place) -> None:
    """Committing no events and no rows is allowed and changes nothing."""
    store = place.open()
    store.commit((), Changes())
    assert store.load() == World(DEPLOYMENT)
    assert place.journal() == []
    store.close()


def offer(usd: str, minutes: int, key: int = 0) -> Offer:
    """An offer as seen some minutes after the start."""
    return Offer(OFFERS[key], Decimal(usd), START + timedelta(minutes=minutes))


def test_only_changes_of_price_are_kept(place: Place) -> None:
    """A price seen again is not written again; one that comes back after a change is."""
    store = place.open()
    store.record_prices([offer("1.10", 0), offer("2.5", 0, key=1)])
    store.record_prices([offer("1.10", 1), offer("2.5", 1, key=1)])
    store.record_prices([offer("1.1", 2), offer("2.4", 2, key=1)])
    store.record_prices([offer("1.20", 3)])
    store.record_prices([offer("1.10", 4)])
    expected = [offer("1.10", 0), offer("2.5", 0, key=1), offer("2.4", 2, key=1), offer("1.20", 3), offer("1.10", 4)]
    assert sorted(place.prices(), key=lambda o: (o.seen_at, o.key)) == sorted(expected, key=lambda o: (o.seen_at, o.key))
    store.close()


def test_changes_of_price_within_one_call_are_all_kept(place: Place) -> None:
    """An answer that holds a history of prices is kept as that history."""
    store = place.open()
    store.record_prices([offer("1.10", 0), offer("1.20", 1), offer("1.20", 2), offer("1.10", 3)])
    assert place.prices() == [offer("1.10", 0), offer("1.20", 1), offer("1.10", 3)]
    store.close()


def test_an_older_answer_is_no_news(place: Place) -> None:
    """A price seen before the last known one does not become the last one, whatever order answers arrive in."""
    store = place.open()
    store.record_prices([offer("1.10", 5)])
    store.record_prices([offer("1.30", 4)])
    store.record_prices([offer("1.10", 6)])
    assert place.prices() == [offer("1.10", 5)]
    store.close()


def test_the_last_prices_are_known_after_a_restart(place: Place) -> None:
    """A restart does not write every price again."""
    store = place.open()
    store.record_prices([offer("1.10", 0), offer("1.20", 1), offer("3", 0, key=2)])
    store.close()
    store = place.open()
    store.record_prices([offer("1.20", 2), offer("3.00", 2, key=2)])
    assert len(place.prices()) == 3
    store.close()
