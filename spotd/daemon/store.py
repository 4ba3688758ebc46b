"""The one writer: current rows and the journal in one SQLite file, in one transaction per commit."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from spotd.core.instance import Interval
from spotd.core.offer import Market, Offer, OfferKey
from spotd.core.world import World
from spotd.daemon import codec, database, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from sqlalchemy.engine import Connection, Engine

    from spotd.core.attempt import Attempt, Checkpoint
    from spotd.core.events import Event
    from spotd.core.instance import Instance
    from spotd.core.job import Job
    from spotd.core.survival import Lifetime
    from spotd.core.world import Changes, Cooldown, CooldownKey

_Value = TypeVar("_Value")


class SqlStore:
    """`ports.Store` on SQLite. The writer commits; prices may come from other threads. Readers have their own connections (`reader.Reader`).

    A commit that raises has written nothing and may be tried again: the current rows, the journal and what this object remembers are as before.
    """

    def __init__(self, engine: Engine, path: Path, deployment: str) -> None:
        """Use `SqlStore.open`."""
        self._engine = engine
        self._path = path
        self._deployment = deployment
        self._upserts = {table.name: schema.upsert(table, engine.dialect) for table in schema.metadata.sorted_tables}
        self._append = sa.insert(schema.journal)
        self._last_prices: dict[OfferKey, Offer] = {}
        self._pricing = threading.Lock()

    @classmethod
    def open(cls, path: Path, deployment: str, *, lock_wait_s: float = database.LOCK_WAIT_S) -> SqlStore:
        """Open the database, creating it or bringing it to this version. Raises a StoreError that says what to do."""
        engine = database.writer(path, lock_wait_s)
        try:
            database.prepare(engine, path)
            store = cls(engine, path, deployment)
            store._remember_prices()
        except BaseException:
            engine.dispose()
            raise
        return store

    def load(self) -> World:
        """All that belongs to jobs which are unfinished or own a live instance; open intervals, cooldowns and lifetimes.

        A finished job whose last instance still lives is among them: its attempt says how that instance is to be ended.
        """
        job, attempt, instance, checkpoint, interval = (
            schema.jobs.c,
            schema.attempts.c,
            schema.instances.c,
            schema.checkpoints.c,
            schema.intervals.c,
        )
        owners = sa.select(instance.job_id).where(instance.state != "gone")
        kept = sa.select(job.id).where(job.outcome.is_(None) | job.id.in_(owners))
        with database.told(self._path), self._engine.begin() as connection:
            jobs = _bodies(connection, sa.select(job.body).where(job.id.in_(kept)))
            attempts = _bodies(connection, sa.select(attempt.body).where(attempt.job_id.in_(kept)).order_by(attempt.job_id, attempt.number))
            instances = _bodies(connection, sa.select(instance.body).where(instance.job_id.in_(kept)))
            checkpoints = _bodies(
                connection,
                sa.select(checkpoint.body).where(checkpoint.job_id.in_(kept)).order_by(checkpoint.job_id, checkpoint.attempt, checkpoint.sequence),
            )
            open_intervals = connection.execute(sa.select(schema.intervals).where(interval.ended_at.is_(None))).all()
            cooldowns = _bodies(connection, sa.select(schema.cooldowns.c.body))
            lifetimes = _bodies(connection, sa.select(schema.lifetimes.c.body))
        return World(
            deployment=self._deployment,
            jobs={j.id: j for j in self._values(codec.job, jobs)},
            attempts={a.id: a for a in self._values(codec.attempt, attempts)},
            instances={i.id: i for i in self._values(codec.instance, instances)},
            checkpoints=_by_job(self._values(codec.checkpoint, checkpoints)),
            intervals={row.instance_id: Interval(*row) for row in open_intervals},
            cooldowns={c.key: c for c in self._values(codec.cooldown, cooldowns)},
            lifetimes={x.offer: x for x in self._values(codec.lifetime, lifetimes)},
        )

    def _values(self, decode: Callable[[str], _Value], bodies: Sequence[str]) -> list[_Value]:
        try:
            return [decode(body) for body in bodies]
        except ValueError as error:
            # Starting without this row would forget a job or an instance that costs money.
            raise database.corrupt(self._path, f"a row cannot be read: {error}") from error

    def commit(self, events: Sequence[Event], changes: Changes) -> None:
        """Write rows and journal durably in one transaction, or raise a StoreError and write nothing."""
        rows: list[tuple[str, list[dict[str, Any]]]] = [
            # In the order of their foreign keys.
            ("jobs", [_job_row(x) for x in changes.jobs]),
            ("attempts", [_attempt_row(x) for x in changes.attempts]),
            ("instances", [_instance_row(x) for x in changes.instances]),
            ("checkpoints", [_checkpoint_row(x) for x in changes.checkpoints]),
            ("intervals", [_interval_row(x) for x in changes.intervals]),
            ("cooldowns", [_cooldown_row(x) for x in changes.cooldowns]),
            ("lifetimes", [_lifetime_row(x) for x in changes.lifetimes]),
        ]
        journaled = [event for event in events if event.journaled]
        if not journaled and not any(values for _, values in rows):
            return
        with database.told(self._path), self._engine.begin() as connection:
            for table, values in rows:
                if values:
                    connection.execute(self._upserts[table], values)
            if journaled:
                connection.execute(self._append, _journal_rows(connection, journaled, changes))

    def record_prices(self, offers: Sequence[Offer]) -> None:
        """Write the prices that differ from the last one known of their offer. An answer older than that one is no news."""
        with self._pricing:
            self._record_prices(offers)

    def _record_prices(self, offers: Sequence[Offer]) -> None:
        news: dict[OfferKey, list[Offer]] = {}
        for offer in offers:
            past = news[offer.key][-1] if offer.key in news else self._last_prices.get(offer.key)
            if past is None or (offer.seen_at > past.seen_at and offer.price_usd_per_hour != past.price_usd_per_hour):
                news.setdefault(offer.key, []).append(offer)
        if not news:
            return
        rows = [_price_row(offer) for changes in news.values() for offer in changes]
        with database.told(self._path), self._engine.begin() as connection:
            connection.execute(self._upserts["prices"], rows)
        self._last_prices.update((key, changes[-1]) for key, changes in news.items())

    def close(self) -> None:
        """Release the file."""
        self._engine.dispose()

    def _remember_prices(self) -> None:
        price = schema.prices.c
        key = (price.provider, price.region, price.zone, price.instance_type, price.market)
        newest = sa.select(*key, sa.func.max(price.seen_at).label("seen_at")).group_by(*key).subquery()
        same = sa.and_(*(price[name] == newest.c[name] for name in (*(column.name for column in key), "seen_at")))
        with database.told(self._path), self._engine.begin() as connection:
            for row in connection.execute(sa.select(schema.prices).join(newest, same)):
                offer = OfferKey(row.provider, row.region, row.zone, row.instance_type, Market(row.market))
                self._last_prices[offer] = Offer(offer, row.price_usd_per_hour, row.seen_at)


def _bodies(connection: Connection, query: sa.Select[Any]) -> Sequence[str]:
    return connection.execute(query).scalars().all()


def _by_job(checkpoints: Iterable[Checkpoint]) -> dict[str, tuple[Checkpoint, ...]]:
    grouped: dict[str, list[Checkpoint]] = {}
    for checkpoint in checkpoints:
        grouped.setdefault(checkpoint.job_id, []).append(checkpoint)
    return {job_id: tuple(theirs) for job_id, theirs in grouped.items()}


def _job_row(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "name": job.spec.name,
        "owner": job.owner,
        "policy": job.spec.policy,
        "outcome": None if job.outcome is None else job.outcome.value,
        "submitted_at": job.submitted_at,
        "body": codec.encode(job),
    }


def _attempt_row(attempt: Attempt) -> dict[str, Any]:
    return {
        "id": attempt.id,
        "job_id": attempt.job_id,
        "number": attempt.number,
        "state": attempt.state.value,
        "body": codec.encode(attempt),
    }


def _instance_row(instance: Instance) -> dict[str, Any]:
    return {
        "id": instance.id,
        "job_id": instance.job_id,
        "attempt_id": instance.attempt_id,
        "rank": instance.rank,
        "try_number": instance.try_number,
        "state": instance.state.value,
        **_offer_row(instance.request.offer),
        "provider_id": instance.provider_id,
        "launched_at": instance.launched_at,
        "ended_at": instance.ended_at,
        "ended_by": None if instance.ended_by is None else instance.ended_by.value,
        "body": codec.encode(instance),
    }


def _checkpoint_row(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "job_id": checkpoint.job_id,
        "id": checkpoint.id,
        "attempt": checkpoint.attempt,
        "sequence": checkpoint.sequence,
        "committed_at": checkpoint.committed_at,
        "body": codec.encode(checkpoint),
    }


def _interval_row(interval: Interval) -> dict[str, Any]:
    return {
        "instance_id": interval.instance_id,
        "number": interval.number,
        "price_usd_per_hour": interval.price_usd_per_hour,
        "started_at": interval.started_at,
        "ended_at": interval.ended_at,
    }


def _cooldown_row(cooldown: Cooldown) -> dict[str, Any]:
    return {**_offer_row(cooldown.key), "until": cooldown.until, "body": codec.encode(cooldown)}


def _lifetime_row(lifetime: Lifetime) -> dict[str, Any]:
    return {**_offer_row(lifetime.offer), "as_of": lifetime.as_of, "body": codec.encode(lifetime)}


def _price_row(offer: Offer) -> dict[str, Any]:
    return {**_offer_row(offer.key), "seen_at": offer.seen_at, "price_usd_per_hour": offer.price_usd_per_hour}


def _offer_row(key: OfferKey | CooldownKey) -> dict[str, Any]:
    return {
        "provider": key.provider,
        "region": key.region,
        "zone": key.zone,
        "instance_type": key.instance_type,
        "market": key.market.value,
    }


def _journal_rows(connection: Connection, events: Sequence[Event], changes: Changes) -> list[dict[str, Any]]:
    """What the journal keeps of events. Most name one id only: the others are filled in, so that a job's events are found by its id."""
    named = [codec.subjects(event) for event in events]
    of_attempts = {a.id: a.job_id for a in changes.attempts}
    of_instances = {i.id: (i.job_id, i.attempt_id) for i in changes.instances}
    # An event mostly changes what it is about. What is left was said about rows that it did not change (a late word, a repeated one).
    if unknown := {i for _, _, i in named if i is not None and i not in of_instances}:
        instance = schema.instances.c
        query = sa.select(instance.id, instance.job_id, instance.attempt_id).where(instance.id.in_(unknown))
        of_instances |= {row.id: (row.job_id, row.attempt_id) for row in connection.execute(query)}
    if unknown := {a for job, a, _ in named if a is not None and job is None and a not in of_attempts}:
        attempt = schema.attempts.c
        query = sa.select(attempt.id, attempt.job_id).where(attempt.id.in_(unknown))
        of_attempts |= {row.id: row.job_id for row in connection.execute(query)}
    rows = []
    for event, (job_id, attempt_id, instance_id) in zip(events, named, strict=True):
        owner = of_instances.get(instance_id or "", (of_attempts.get(attempt_id or ""), None))
        rows.append(
            {
                "at": event.at,
                "kind": codec.kind_of(event),
                "job_id": job_id or owner[0],
                "attempt_id": attempt_id or owner[1],
                "instance_id": instance_id,
                "body": codec.encode(event),
            }
        )
    return rows
