"""Alembic's entry: run the revisions on the connection that `database` hands over.

That connection is in a transaction already, and SQLite and PostgreSQL both roll tables back like rows: a migration that is cut short leaves the
database as it was. So no revision may begin or end a transaction.
"""

from __future__ import annotations

from alembic import context

from spotd.daemon.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
