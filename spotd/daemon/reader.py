"""Reading the database while the daemon writes: for the API's threads. Connections of its own, which cannot write and never wait for the writer."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

import sqlalchemy as sa

from spotd.core.instance import EndedBy, Interval
from spotd.core.offer import Market, Offer, OfferKey
from spotd.core.savings import LedgerRow
from spotd.daemon import codec, database, schema

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from sqlalchemy.engine import Connection

    from spotd.core.attempt import Attempt, Checkpoint
    from spotd.core.events import Event
    from spotd.core.instance import Instance
    from spotd.core.job import Job

#: Rows fetched at a time where there may be a million.
_CHUNK = 5_000


class UnknownJob(LookupError):
    """No job has this id, name or beginning of an id."""


class AmbiguousJob(LookupError):
    """Several jobs could be meant; `ids` are theirs."""

    def __init__(self, word: str, ids: Sequence[str]) -> None:
        self.ids = tuple(ids)
        super().__init__(f"{word!r} could be {' or '.join(self.ids)}: give more of the id.")


@dataclass(frozen=True, slots=True)
class JournalRow:
    """One line of the journal. `body` is the event's JSON, readable whichever version of spotd wrote it."""

    seq: int
    at: datetime
    kind: str
    job_id: str | None
    attempt_id: str | None
    instance_id: str | None
    body: str

    def fields(self) -> dict[str, Any]:
        """The event as plain JSON values."""
        return codec.fields(self.body)

    def event(self) -> Event:
        """The event itself. KeyError or ValueError if it is of another version of spotd."""
        return codec.event(self.kind, self.body)


class Reader:
    """Questions about the past and the present. Each answer is one consistent state of the database. May be used by many threads at once."""

    def __init__(self, path: Path, connections: int = 8) -> None:
        self._path = path
        self._engine = database.readers(path, connections)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Release the connections."""
        self._engine.dispose()

    def jobs(
        self,
        *,
        owner: str | None = None,
        policy: str | None = None,
        unfinished: bool = False,
        label: tuple[str, str] | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Jobs that fit every filter given, the newest first."""
        job = schema.jobs.c
        query = sa.select(job.body).order_by(job.submitted_at.desc(), job.id)
        if owner is not None:
            query = query.where(job.owner == owner)
        if policy is not None:
            query = query.where(job.policy == policy)
        if unfinished:
            query = query.where(job.outcome.is_(None))
        if label is None:
            query = query.limit(limit)
        found: list[Job] = []
        with self._read() as connection:
            # Labels are in the body only: they are compared here, as far as the limit needs it.
            for body in connection.execute(query).scalars().yield_per(200):
                if len(found) >= limit:
                    break
                one = codec.job(body)
                if label is None or one.spec.labels.get(label[0]) == label[1]:
                    found.append(one)
        return found

    def job(self, word: str) -> Job:
        """The job meant by an id, the beginning of one id only, or a name (the newest of that name). Raises UnknownJob or AmbiguousJob."""
        job = schema.jobs.c
        by_name = sa.select(job.id, job.body).where(job.name == word).order_by(job.submitted_at.desc(), job.id).limit(1)
        by_start = sa.select(job.id, job.body).where(sa.func.substr(job.id, 1, len(word)) == word).order_by(job.id).limit(10)
        with self._read() as connection:
            exact = connection.execute(sa.select(job.body).where(job.id == word)).scalar()
            if exact is not None:
                return codec.job(exact)
            found = {row.id: row.body for row in connection.execute(by_name)}
            if word:
                found |= {row.id: row.body for row in connection.execute(by_start)}
        if not found:
            raise UnknownJob(f"There is no job {word!r}.")
        if len(found) > 1:
            raise AmbiguousJob(word, sorted(found))
        return codec.job(next(iter(found.values())))

    def attempts(self, job_id: str) -> list[Attempt]:
        """A job's attempts, oldest first."""
        attempt = schema.attempts.c
        query = sa.select(attempt.body).where(attempt.job_id == job_id).order_by(attempt.number)
        return [codec.attempt(body) for body in self._bodies(query)]

    def instances(self, job_id: str) -> list[Instance]:
        """Every try of a job and the machine it became, oldest first."""
        query = sa.select(schema.instances.c.body).where(schema.instances.c.job_id == job_id)
        return sorted((codec.instance(body) for body in self._bodies(query)), key=lambda i: (i.requested_at, i.try_number, i.id))

    def checkpoints(self, job_id: str) -> list[Checkpoint]:
        """A job's committed checkpoints, oldest first."""
        checkpoint = schema.checkpoints.c
        query = sa.select(checkpoint.body).where(checkpoint.job_id == job_id).order_by(checkpoint.attempt, checkpoint.sequence)
        return [codec.checkpoint(body) for body in self._bodies(query)]

    def intervals(self, instance_ids: Collection[str]) -> dict[str, tuple[Interval, ...]]:
        """The ledger's intervals of some instances, oldest first."""
        interval = schema.intervals
        query = sa.select(interval).where(interval.c.instance_id.in_(instance_ids)).order_by(interval.c.instance_id, interval.c.number)
        found: dict[str, tuple[Interval, ...]] = {}
        with self._read() as connection:
            for row in connection.execute(query):
                found[row.instance_id] = (*found.get(row.instance_id, ()), Interval(*row))
        return found

    def journal(
        self,
        after_seq: int = 0,
        limit: int = 1_000,
        job_id: str | None = None,
        kinds: Collection[str] | None = None,
    ) -> list[JournalRow]:
        """What happened after that sequence number, oldest first. Ask again with the last one's `seq` for the rest."""
        row = schema.journal
        query = sa.select(row).where(row.c.seq > after_seq).order_by(row.c.seq).limit(limit)
        if job_id is not None:
            query = query.where(row.c.job_id == job_id)
        if kinds is not None:
            query = query.where(row.c.kind.in_(kinds))
        with self._read() as connection:
            return [JournalRow(*found) for found in connection.execute(query)]

    def last_seq(self) -> int:
        """The sequence number of the newest line of the journal, 0 when it is empty: where to begin to follow it."""
        with self._read() as connection:
            return connection.execute(sa.select(sa.func.max(schema.journal.c.seq))).scalar() or 0

    def prices(
        self,
        *,
        provider: str | None = None,
        region: str | None = None,
        zone: str | None = None,
        instance_type: str | None = None,
        market: Market | None = None,
        since: datetime | None = None,
        limit: int = 100_000,
    ) -> list[Offer]:
        """Changes of price, oldest first, the newest `limit` of them. With `since`, also the price of each offer that was in force then."""
        price = schema.prices.c
        wanted = {"provider": provider, "region": region, "zone": zone, "instance_type": instance_type}
        fits = [price[name] == value for name, value in wanted.items() if value is not None]
        if market is not None:
            fits.append(price.market == market.value)
        query = sa.select(schema.prices).where(*fits).order_by(price.seen_at.desc(), *_offer_key(price)).limit(limit)
        with self._read() as connection:
            before: list[Offer] = []
            if since is not None:
                newest = sa.select(*_offer_key(price), sa.func.max(price.seen_at).label("seen_at"))
                newest_before = newest.where(price.seen_at < since, *fits).group_by(*_offer_key(price)).subquery()
                same = sa.and_(*(price[column.name] == column for column in newest_before.c))
                before = [_offer(row) for row in connection.execute(sa.select(schema.prices).join(newest_before, same))]
                query = query.where(price.seen_at >= since)
            found = [_offer(row) for row in connection.execute(query)]
        return sorted(before, key=lambda o: (o.seen_at, o.key)) + found[::-1]

    def ledger(self, since: datetime | None = None, until: datetime | None = None, job_id: str | None = None) -> Generator[LedgerRow]:
        """Every instance (of one job) that was billed at some time from `since` to `until`, whole, with the facts of its attempt and job.

        Rows come one by one, as there may be a million; the database is read in one consistent state, which is held until the last.
        """
        job, attempt, instance, interval = schema.jobs.c, schema.attempts.c, schema.instances.c, schema.intervals
        within: list[sa.ColumnElement[bool]] = [instance.launched_at.is_not(None)]
        if since is not None:
            within.append(instance.ended_at.is_(None) | (instance.ended_at > since))
        if until is not None:
            within.append(instance.launched_at < until)
        if job_id is not None:
            within.append(instance.job_id == job_id)
        newer = schema.instances.alias("newer")
        same_rank = (newer.c.attempt_id == instance.attempt_id) & (newer.c.rank == instance.rank)
        superseded = sa.exists().where(same_rank, newer.c.try_number > instance.try_number)
        instances = (
            sa.select(
                *(instance.id, *_offer_key(instance), instance.launched_at, instance.ended_at, instance.ended_by),
                *(job.id.label("job_id"), job.name, job.owner, job.policy, attempt.body.label("attempt")),
                superseded.label("superseded"),
            )
            .join_from(schema.instances, schema.attempts, attempt.id == instance.attempt_id)
            .join(schema.jobs, job.id == instance.job_id)
            .where(*within)
            .order_by(instance.id)
        )
        intervals = (
            sa.select(interval)
            .join(schema.instances, instance.id == interval.c.instance_id)
            .where(*within)
            .order_by(interval.c.instance_id, interval.c.number)
        )
        with self._read() as connection:
            # Both are in the order of the instances' ids: merged as they come, never held as a whole.
            ledger = connection.execution_options(yield_per=_CHUNK).execute(intervals)
            pending = next(ledger, None)
            for row in connection.execution_options(yield_per=_CHUNK).execute(instances):
                theirs: list[Interval] = []
                while pending is not None and pending.instance_id == row.id:
                    theirs.append(Interval(*pending))
                    pending = next(ledger, None)
                yield _ledger_row(row, tuple(theirs))

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        with database.told(self._path), self._engine.begin() as connection:
            yield connection

    def _bodies(self, query: sa.Select[Any]) -> Sequence[str]:
        with self._read() as connection:
            return connection.execute(query).scalars().all()


def _offer_key(columns: Any) -> tuple[sa.Column[str], ...]:
    return (columns.provider, columns.region, columns.zone, columns.instance_type, columns.market)


def _key(row: Any) -> OfferKey:
    return OfferKey(row.provider, row.region, row.zone, row.instance_type, Market(row.market))


def _offer(row: Any) -> Offer:
    return Offer(_key(row), row.price_usd_per_hour, row.seen_at)


def _ledger_row(row: Any, intervals: tuple[Interval, ...]) -> LedgerRow:
    attempt = codec.attempt(row.attempt)
    return LedgerRow(
        instance_id=row.id,
        job_id=row.job_id,
        job_name=row.name,
        owner=row.owner,
        policy=row.policy,
        offer=_key(row),
        intervals=intervals,
        launched_at=row.launched_at,
        ended_at=row.ended_at,
        ended_by=None if row.ended_by is None else EndedBy(row.ended_by),
        attempt=attempt,
        superseded=bool(row.superseded),
    )
