"""How a database of any earlier spotd becomes one of this spotd: Alembic revisions, run when the store is opened."""
