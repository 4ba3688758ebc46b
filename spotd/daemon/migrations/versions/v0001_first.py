"""The tables of the first release."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_TIME = sa.DateTime(timezone=True)
_ID = sa.String(64)


def _offer() -> list[sa.Column[str]]:
    names = ("provider", "region", "zone", "instance_type", "market")
    return [sa.Column(name, sa.String(100), nullable=False) for name in names]


_OFFER_KEY = ("provider", "region", "zone", "instance_type", "market")


def upgrade() -> None:
    """Build them."""
    _jobs_and_attempts()
    _instances()
    _checkpoints_and_beliefs()
    _prices_and_journal()


def _jobs_and_attempts() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("outcome", sa.String(20)),
        sa.Column("submitted_at", _TIME, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    for column in ("name", "owner", "policy", "outcome", "submitted_at"):
        op.create_index(f"ix_jobs_{column}", "jobs", [column])
    op.create_table(
        "attempts",
        sa.Column("id", _ID, nullable=False),
        sa.Column("job_id", _ID, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_attempts"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_attempts_job_id_jobs"),
        sa.UniqueConstraint("job_id", "number", name="uq_attempts_job_id_number"),
    )


def _instances() -> None:
    op.create_table(
        "instances",
        sa.Column("id", _ID, nullable=False),
        sa.Column("job_id", _ID, nullable=False),
        sa.Column("attempt_id", _ID, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("try_number", sa.Integer, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        *_offer(),
        sa.Column("provider_id", sa.Text),
        sa.Column("launched_at", _TIME),
        sa.Column("ended_at", _TIME),
        sa.Column("ended_by", sa.String(20)),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_instances"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_instances_job_id_jobs"),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name="fk_instances_attempt_id_attempts"),
    )
    for column in ("job_id", "attempt_id", "provider_id", "launched_at", "ended_at"):
        op.create_index(f"ix_instances_{column}", "instances", [column])
    live = sa.text("state != 'gone'")
    op.create_index("ix_instances_live", "instances", ["job_id"], sqlite_where=live, postgresql_where=live)
    op.create_table(
        "intervals",
        sa.Column("instance_id", _ID, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("price_usd_per_hour", sa.String(40), nullable=False),
        sa.Column("started_at", _TIME, nullable=False),
        sa.Column("ended_at", _TIME),
        sa.PrimaryKeyConstraint("instance_id", "number", name="pk_intervals"),
        sa.ForeignKeyConstraint(["instance_id"], ["instances.id"], name="fk_intervals_instance_id_instances"),
    )
    still_open = sa.text("ended_at IS NULL")
    op.create_index("ix_intervals_open", "intervals", ["instance_id"], sqlite_where=still_open, postgresql_where=still_open)


def _checkpoints_and_beliefs() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("job_id", _ID, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("committed_at", _TIME, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "id", name="pk_checkpoints"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_checkpoints_job_id_jobs"),
    )
    op.create_table(
        "cooldowns",
        *_offer(),
        sa.Column("until", _TIME, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint(*_OFFER_KEY, name="pk_cooldowns"),
    )
    op.create_table(
        "lifetimes",
        *_offer(),
        sa.Column("as_of", _TIME, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint(*_OFFER_KEY, name="pk_lifetimes"),
    )


def _prices_and_journal() -> None:
    op.create_table(
        "prices",
        *_offer(),
        sa.Column("seen_at", _TIME, nullable=False),
        sa.Column("price_usd_per_hour", sa.String(40), nullable=False),
        sa.PrimaryKeyConstraint(*_OFFER_KEY, "seen_at", name="pk_prices"),
    )
    op.create_index("ix_prices_seen_at", "prices", ["seen_at"])
    op.create_table(
        "journal",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("job_id", _ID),
        sa.Column("attempt_id", _ID),
        sa.Column("instance_id", _ID),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_journal"),
        sqlite_autoincrement=True,
    )
    for column in ("at", "job_id"):
        op.create_index(f"ix_journal_{column}", "journal", [column])
