"""Alembic's entry: run the revisions on the connection that `database` hands over, all in its one transaction."""

from __future__ import annotations

from alembic import context

from spotd.daemon.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite rolls tables back like rows, which Alembic does not expect of it: a migration cut short leaves the database as it was.
    transactional_ddl=True,
    # SQLite alters few things in place: a later revision that changes a column copies the table.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
