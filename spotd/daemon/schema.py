"""The tables. Key and index columns are typed, the rest of a value is one JSON body (see `codec`); what money is computed from has columns.

Only what PostgreSQL has as well is used. `migrations` builds these tables step by step; a test holds that both come to the same.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeDecorator

if TYPE_CHECKING:
    from sqlalchemy.dialects.postgresql.dml import Insert as PostgresInsert
    from sqlalchemy.dialects.sqlite.dml import Insert as SqliteInsert
    from sqlalchemy.engine import Dialect

#: The newest migration. Alembic is slow to import (0.5 s) and only asked when a database does not say this.
HEAD = "0001"


class UtcDateTime(TypeDecorator[datetime]):
    """An instant. SQLite keeps it as sortable text in UTC, PostgreSQL as timestamptz; a naive one is refused."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - SQLAlchemy's signature
        """To UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """SQLite forgets the zone, and it was UTC."""
        if value is None or value.tzinfo is not None:
            return value
        return value.replace(tzinfo=UTC)


class Usd(TypeDecorator[Decimal]):
    """An exact amount in dollars, as its digits: SQLite would make a float of a number."""

    impl = sa.String(40)
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """To digits, never with an exponent."""
        return None if value is None else format(value, "f")

    def process_result_value(self, value: str | None, dialect: Dialect) -> Decimal | None:  # noqa: ARG002
        """Back, digit by digit."""
        return None if value is None else Decimal(value)


metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _offer_columns(*, key: bool) -> list[sa.Column[Any]]:
    """The five names of an offer; of a cooldown's key, where a zone and a type may be `*`."""
    names = ("provider", "region", "zone", "instance_type", "market")
    return [sa.Column(name, sa.String(100), primary_key=key, nullable=False) for name in names]


jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("name", sa.Text, nullable=False, index=True),
    sa.Column("owner", sa.Text, nullable=False, index=True),
    sa.Column("policy", sa.Text, nullable=False, index=True),
    #: None: unfinished.
    sa.Column("outcome", sa.String(20), index=True),
    sa.Column("submitted_at", UtcDateTime, nullable=False, index=True),
    sa.Column("body", sa.Text, nullable=False),
)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("job_id", sa.ForeignKey("jobs.id"), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.UniqueConstraint("job_id", "number"),
)

instances = sa.Table(
    "instances",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("job_id", sa.ForeignKey("jobs.id"), nullable=False, index=True),
    sa.Column("attempt_id", sa.ForeignKey("attempts.id"), nullable=False, index=True),
    sa.Column("rank", sa.Integer, nullable=False),
    sa.Column("try_number", sa.Integer, nullable=False),
    sa.Column("state", sa.String(20), nullable=False),
    *_offer_columns(key=False),
    sa.Column("provider_id", sa.Text, index=True),
    sa.Column("launched_at", UtcDateTime, index=True),
    sa.Column("ended_at", UtcDateTime, index=True),
    sa.Column("ended_by", sa.String(20)),
    sa.Column("body", sa.Text, nullable=False),
)
sa.Index(
    "ix_instances_live",
    instances.c.job_id,
    sqlite_where=instances.c.state != "gone",
    postgresql_where=instances.c.state != "gone",
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("job_id", sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("sequence", sa.Integer, nullable=False),
    sa.Column("committed_at", UtcDateTime, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)

intervals = sa.Table(
    "intervals",
    metadata,
    sa.Column("instance_id", sa.ForeignKey("instances.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("price_usd_per_hour", Usd, nullable=False),
    sa.Column("started_at", UtcDateTime, nullable=False),
    #: None: open.
    sa.Column("ended_at", UtcDateTime),
)
sa.Index(
    "ix_intervals_open",
    intervals.c.instance_id,
    sqlite_where=intervals.c.ended_at.is_(None),
    postgresql_where=intervals.c.ended_at.is_(None),
)

cooldowns = sa.Table(
    "cooldowns",
    metadata,
    *_offer_columns(key=True),
    sa.Column("until", UtcDateTime, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)

lifetimes = sa.Table(
    "lifetimes",
    metadata,
    *_offer_columns(key=True),
    sa.Column("as_of", UtcDateTime, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)

prices = sa.Table(
    "prices",
    metadata,
    *_offer_columns(key=True),
    #: When the provider was asked and this price was new.
    sa.Column("seen_at", UtcDateTime, primary_key=True, index=True),
    sa.Column("price_usd_per_hour", Usd, nullable=False),
)

journal = sa.Table(
    "journal",
    metadata,
    # SQLite numbers rows by itself only where the type is spelt INTEGER.
    sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("at", UtcDateTime, nullable=False, index=True),
    sa.Column("kind", sa.String(40), nullable=False),
    # No foreign keys: the journal outlives what it is about.
    sa.Column("job_id", sa.String(64), index=True),
    sa.Column("attempt_id", sa.String(64)),
    sa.Column("instance_id", sa.String(64)),
    sa.Column("body", sa.Text, nullable=False),
    # A sequence number is never given out twice, so that `after_seq` of a reader stays true.
    sqlite_autoincrement=True,
)


def upsert(table: sa.Table, dialect: Dialect) -> SqliteInsert | PostgresInsert:
    """Insert, or overwrite the row with the same key: one statement that both databases have."""
    statement: SqliteInsert | PostgresInsert
    if dialect.name == "postgresql":
        # Where it is not used it does not cost the daemon's start 40 ms.
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415

        statement = postgresql.insert(table)
    else:
        statement = sqlite.insert(table)
    keys = [column.name for column in table.primary_key]
    rest = {column.name: statement.excluded[column.name] for column in table.columns if column.name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=rest)
