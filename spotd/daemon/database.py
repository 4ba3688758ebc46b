"""Opening the database file, and saying in a sentence what is wrong with it and what to do.

The one writer takes the write lock at BEGIN, so that it waits there and never half-way; readers are read-only connections. WAL lets both work
at once. `synchronous=FULL` makes a commit survive a power cut, which DESIGN §4 rule 1 rests on.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.pool import QueuePool

from spotd.daemon.schema import HEAD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy.engine import Connection, Engine

#: A backup or an operator's shell may hold the write lock for a minute. One call waits for it this long, well within the watchdog's minute
#: (systemd/spotd.service); whoever called tries again.
LOCK_WAIT_S = 20.0
#: Low 8 bits of SQLite's result codes (sqlite.org/rescode.html).
_CODE_MASK = 0xFF


class StoreError(Exception):
    """Base: the database said no. Its text is one sentence or two for an operator."""


class StoreUnavailable(StoreError):
    """Nothing was written, and the same call may succeed later: the disk is full, the lock is taken, the place cannot be written."""


class StoreCorrupt(StoreError):
    """The file is damaged, or is no database of spotd."""


class StoreTooNew(StoreError):
    """A newer spotd wrote it."""


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Say what the database's refusals mean. Errors of ours (a broken constraint, a wrong statement) pass through as they are."""
    try:
        yield
    except sa.exc.TimeoutError as error:
        raise StoreUnavailable(f"All connections to {path} are busy; nothing was done. Try again.") from error
    except sa.exc.DBAPIError as error:
        meaning = _meaning(path, error.orig)
        if meaning is None:
            raise
        raise meaning from error
    except sqlite3.Error as error:
        meaning = _meaning(path, error)
        if meaning is None:
            raise
        raise meaning from error


def _meaning(path: Path, error: BaseException | None) -> StoreError | None:
    """What an operator should know and do about an error of SQLite; None when it is not the file's."""
    code = getattr(error, "sqlite_errorcode", None)
    match None if code is None else code & _CODE_MASK:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreUnavailable(
                f"Another process holds the write lock of {path} and did not let go in time; nothing was written. "
                f"`fuser {path}` names it: let it finish or end it."
            )
        case sqlite3.SQLITE_FULL:
            return StoreUnavailable(f"The disk of {path} is full; nothing was written. Free space on it: spotd goes on by itself.")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_AUTH:
            return StoreUnavailable(
                f"{path} cannot be opened, or not written to ({error}); nothing was written. "
                f"It and its directory must exist, lie on a writable disk and belong to spotd's user."
            )
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_NOLFS | sqlite3.SQLITE_PROTOCOL:
            return StoreUnavailable(f"The disk of {path} does not work ({error}); nothing was written. See `dmesg` about it.")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return corrupt(path, str(error))
        case _:
            return None


def corrupt(path: Path, what: str) -> StoreCorrupt:
    """The sentence about a damaged file. It is never repaired or replaced by itself: it says which machines are ours."""
    return StoreCorrupt(
        f"{path} is damaged ({' '.join(what.split())}). Stop spotd and restore it from a backup, or save what can be read with "
        f"`sqlite3 {path.name} .recover`. Do not delete it: it is the record of which instances are running."
    )


def writer(path: Path, lock_wait_s: float = LOCK_WAIT_S) -> Engine:
    """The engine of the one writer: one connection, the write lock taken at BEGIN. Creates the file if there is none, for its owner only."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.fchmod(descriptor, 0o600)
        os.close(descriptor)
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be opened for writing ({error.strerror}). Its directory must exist, lie on a writable disk and belong to spotd's user."
        ) from error
    engine = _engine(path, "rw", lock_wait_s, connections=1)

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _: object) -> None:
        mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        if mode != "wal":
            raise StoreUnavailable(f"{path} lies on a disk where SQLite cannot keep a write-ahead log. Use a local disk for the state directory.")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def readers(path: Path, connections: int = 8) -> Engine:
    """The engine of the readers: a pool of connections that cannot write, one for each thread that asks at a time."""
    engine = _engine(path, "ro", lock_wait_s=10.0, connections=connections)

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


def _engine(path: Path, mode: str, lock_wait_s: float, connections: int) -> Engine:
    address = f"{path.absolute().as_uri()}?mode={mode}"

    def connect() -> sqlite3.Connection:
        # Transactions are ours to begin (see the listeners), and a connection is handed from thread to thread, never shared.
        return sqlite3.connect(address, uri=True, timeout=lock_wait_s, isolation_level=None, check_same_thread=False)

    # A thread that finds all connections in use waits as long as the one before it may wait for the lock, and a little longer.
    wait_s = lock_wait_s + 15
    return sa.create_engine("sqlite+pysqlite://", creator=connect, poolclass=QueuePool, pool_size=connections, max_overflow=0, pool_timeout=wait_s)


def prepare(engine: Engine, path: Path) -> None:
    """Check the file and bring its tables to this version. A file that was created and never filled counts as new."""
    with told(path), engine.begin() as connection:
        problems = [row[0] for row in connection.exec_driver_sql("PRAGMA quick_check(5)")]
        if problems != ["ok"]:
            raise corrupt(path, "; ".join(problems))
        tables = sa.inspect(connection).get_table_names()
        found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() if "alembic_version" in tables else None
        if found is None and tables:
            raise StoreCorrupt(f"{path} is not a database of spotd: it holds {', '.join(sorted(tables)[:5])}. Give spotd another state directory.")
        if found != HEAD:
            _migrate(connection, path, found)


def _migrate(connection: Connection, path: Path, found: str | None) -> None:
    from alembic import command  # noqa: PLC0415 - half a second that only the first start after an upgrade needs
    from alembic.config import Config  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", "spotd.daemon:migrations")
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise StoreTooNew(
            f"{path} was written by a newer spotd (its tables are version {found}, this one knows up to {HEAD}). "
            f"Install that spotd again, or restore the database from before the upgrade."
        )
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
