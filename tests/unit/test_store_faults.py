"""What the database does when the disk, the lock or the file fails: a sentence that says what to do, and nothing half-written."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from spotd.core import events as e
from spotd.core.attempt import Purpose
from spotd.core.fold import fold
from spotd.core.job import Job, JobSpec
from spotd.core.offer import Market, Offer, OfferKey
from spotd.core.world import Changes, World
from spotd.daemon import schema
from spotd.daemon.database import StoreCorrupt, StoreTooNew, StoreUnavailable
from spotd.daemon.reader import Reader
from spotd.daemon.store import SqlStore

START = datetime(2026, 3, 1, tzinfo=UTC)
DEPLOYMENT = "deployment-1"


def submission(number: int) -> tuple[tuple[e.Event, ...], Changes]:
    """A job with an attempt, as the engine commits it."""
    name = f"job-{number}"
    job = Job(name, JobSpec("train", "h100", "python train.py" * 20), "alice", START)
    events = (e.JobSubmitted(START, job), e.AttemptPlaced(START, name, f"attempt-{number}", 1, Purpose.START))
    return events, fold(World(DEPLOYMENT), events)[1]


def submit(store: SqlStore, *numbers: int) -> None:
    """Commit some."""
    for number in numbers:
        store.commit(*submission(number))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database is."""
    return tmp_path / "spotd.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    """A store that waits for a lock no longer than a test should."""
    opened = SqlStore.open(path, DEPLOYMENT, lock_wait_s=0.05)
    yield opened
    opened.close()


def test_the_database_is_its_owners_only(path: Path, store: SqlStore) -> None:
    """The file and the two beside it cannot be read by others, even if somebody had opened it up."""
    path.chmod(0o644)
    store.close()
    SqlStore.open(path, DEPLOYMENT).close()
    store = SqlStore.open(path, DEPLOYMENT)
    submit(store, 1)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in path.parent.iterdir()}
    store.close()
    assert modes == {"spotd.db": 0o600, "spotd.db-wal": 0o600, "spotd.db-shm": 0o600}


def test_a_commit_waits_for_the_disk(store: SqlStore) -> None:
    """Write-ahead log, full synchronisation, foreign keys: what a power cut and a bug must not get around."""
    with store._engine.connect() as connection:
        values = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous", "foreign_keys")}
    assert values == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_a_full_disk_writes_nothing_and_passes(path: Path, store: SqlStore) -> None:
    """When the disk is full a commit raises a sentence and leaves no trace; once there is room the same commit succeeds."""
    submit(store, 1)
    with store._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    before = store.load()
    with pytest.raises(StoreUnavailable, match=r"is full; nothing was written\. Free space"):
        submit(store, *range(2, 60))
    kept = store.load()
    assert len(kept.jobs) == len(kept.attempts) < 59
    assert before.jobs.items() <= kept.jobs.items()
    with store._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1000000")
    submit(store, *range(1, 60))
    assert len(store.load().jobs) == 59
    with Reader(path) as reader:
        # The one that failed, and those that had been committed, each left two lines per commit and no more.
        assert len(reader.journal()) % 2 == 0


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """No file of this process can grow beyond `size` bytes: writes fail part-way, as on a disk that fills up or breaks."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("room", range(0, 40_000, 3_777))
def test_a_write_cut_short_anywhere_is_no_write(path: Path, store: SqlStore, room: int) -> None:
    """Wherever within a commit the disk stops taking bytes, the rows and the journal are those of before it."""
    submit(store, 1)
    before = store.load()
    size = path.with_name("spotd.db-wal").stat().st_size
    many = fold(World(DEPLOYMENT), [event for number in range(2, 80) for event in submission(number)[0]])[1]
    with files_limited_to(size + room), pytest.raises(StoreUnavailable):
        store.commit([event for number in range(2, 80) for event in submission(number)[0]], many)
    assert store.load() == before
    store.close()
    again = SqlStore.open(path, DEPLOYMENT)
    assert again.load() == before
    again.commit((), many)
    assert len(again.load().jobs) == 79
    again.close()


@pytest.mark.parametrize("size", [0, 1_000, 5_000, 20_000, 60_000])
def test_a_first_start_cut_short_is_repeated(path: Path, size: int) -> None:
    """Migrations that a disk cuts short leave a database that the next start takes for new, never one with half its tables."""
    with files_limited_to(size), pytest.raises(StoreUnavailable):
        SqlStore.open(path, DEPLOYMENT)
    store = SqlStore.open(path, DEPLOYMENT)
    submit(store, 1)
    assert len(store.load().jobs) == 1
    store.close()


def test_a_lock_held_by_another_process_is_waited_for(path: Path, store: SqlStore) -> None:
    """Whoever holds the write lock for a moment delays a commit and does not fail it."""
    patient = SqlStore.open(path, DEPLOYMENT, lock_wait_s=30)
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        committing = threading.Thread(target=submit, args=(patient, 1))
        committing.start()
        committing.join(0.05)
        assert committing.is_alive()
        other.execute("ROLLBACK")
        committing.join(20)
        assert not committing.is_alive()
    assert len(patient.load().jobs) == 1
    patient.close()


def test_a_lock_that_is_never_let_go_is_a_sentence(path: Path, store: SqlStore) -> None:
    """Beyond the bound the commit is given up with nothing written, and succeeds when it is tried again later."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="Another process holds the write lock"):
            submit(store, 1)
        with Reader(path) as reader:
            assert reader.jobs() == []
        other.execute("ROLLBACK")
    submit(store, 1)
    assert len(store.load().jobs) == 1


def test_prices_that_could_not_be_written_are_written_the_next_time(path: Path, store: SqlStore) -> None:
    """What the store remembers of prices is what it wrote, not what it was told."""
    offer = Offer(OfferKey("local", "us-1", "us-1a", "gpu.8", Market.SPOT), Decimal("1.5"), START)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable):
            store.record_prices([offer])
        other.execute("ROLLBACK")
    store.record_prices([offer])
    with Reader(path) as reader:
        assert reader.prices() == [offer]


def test_a_row_that_breaks_a_rule_writes_nothing(path: Path, store: SqlStore) -> None:
    """A commit is all or nothing also when the fault is ours: an attempt without its job takes the job beside it down."""
    events, changes = submission(1)
    _, orphan = submission(2)
    with pytest.raises(sa.exc.IntegrityError):
        store.commit(events, Changes(jobs=changes.jobs, attempts=orphan.attempts))
    assert store.load() == World(DEPLOYMENT)
    with Reader(path) as reader:
        assert reader.journal() == []


@pytest.fixture
def closed_directory() -> Iterator[Path]:
    """A directory that this process may read and not write. Root may always write, so root becomes nobody."""
    directory = Path(tempfile.mkdtemp())
    SqlStore.open(directory / "spotd.db", DEPLOYMENT).close()
    directory.chmod(0o555)
    (directory / "spotd.db").chmod(0o444)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield directory
    finally:
        if root:
            os.seteuid(0)
        directory.chmod(0o755)
        shutil.rmtree(directory)


@pytest.mark.parametrize("name", ["spotd.db", "new.db"])
def test_a_directory_that_cannot_be_written_is_a_sentence(closed_directory: Path, name: str) -> None:
    """Neither an existing database nor a new one can be opened there, and the sentence says what is needed."""
    with pytest.raises(StoreUnavailable, match=r"Its directory must exist, lie on a writable disk and belong to spotd's user"):
        SqlStore.open(closed_directory / name, DEPLOYMENT)


def test_a_directory_that_does_not_exist_is_a_sentence(tmp_path: Path) -> None:
    """So is one that is not there, for the store and for a reader."""
    with pytest.raises(StoreUnavailable, match="Its directory must exist"):
        SqlStore.open(tmp_path / "nowhere" / "spotd.db", DEPLOYMENT)
    with Reader(tmp_path / "nowhere" / "spotd.db") as reader, pytest.raises(StoreUnavailable, match="must exist"):
        reader.jobs()


def filled(path: Path) -> bytes:
    """A database with some jobs, closed; its bytes."""
    store = SqlStore.open(path, DEPLOYMENT)
    submit(store, *range(40))
    store.close()
    return path.read_bytes()


@pytest.mark.parametrize("damage", ["no database", "cut short", "overwritten", "first page lost"])
def test_a_damaged_file_is_refused(path: Path, damage: str) -> None:
    """A file that is not whole is not worked on, and the sentence tells to restore it and not to delete it."""
    good = filled(path)
    bad = {
        "no database": b"Dear diary, " * 1000,
        "cut short": good[: len(good) // 2],
        "overwritten": good[:8192] + b"\xa5" * 16384 + good[8192 + 16384 :],
        "first page lost": b"\0" * 4096 + good[4096:],
    }[damage]
    path.write_bytes(bad)
    with pytest.raises(StoreCorrupt, match=r"restore it from a backup.*Do not delete it"):
        SqlStore.open(path, DEPLOYMENT)
    assert path.read_bytes() == bad


def test_a_row_that_cannot_be_read_stops_the_start(path: Path) -> None:
    """A daemon never starts without a job or an instance because their row is unreadable: it could launch a second one."""
    filled(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("""UPDATE jobs SET body = '{"id": "job-7"}' WHERE id = 'job-7'""")
        other.commit()
    store = SqlStore.open(path, DEPLOYMENT)
    with pytest.raises(StoreCorrupt, match=r"a row cannot be read: .*spec.*restore it from a backup") as refused:
        store.load()
    assert "\n" not in str(refused.value)
    store.close()


def test_an_empty_file_is_a_new_database(path: Path) -> None:
    """A crash right after the file was created leaves nothing to repair."""
    path.touch()
    store = SqlStore.open(path, DEPLOYMENT)
    assert store.load() == World(DEPLOYMENT)
    store.close()


def test_somebody_elses_database_is_left_alone(path: Path) -> None:
    """A database of another program is refused, and no table of ours is put into it."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE recipes (name TEXT)")
    with pytest.raises(StoreCorrupt, match="not a database of spotd: it holds recipes"):
        SqlStore.open(path, DEPLOYMENT)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall() == [("recipes",)]


def test_a_database_of_a_newer_spotd_is_refused(path: Path) -> None:
    """Its tables may mean what this spotd does not know: it says which version it met and what to install."""
    filled(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("UPDATE alembic_version SET version_num = '0999'")
        other.commit()
    with pytest.raises(StoreTooNew, match=r"newer spotd .its tables are version 0999, this one knows up to 0001.*Install that spotd again"):
        SqlStore.open(path, DEPLOYMENT)


def test_the_migrations_build_the_tables_of_the_schema(path: Path, store: SqlStore) -> None:
    """What the revisions build, one after the other, is what the code works with; the newest one is the schema's."""
    from alembic.autogenerate import compare_metadata  # noqa: PLC0415

    with store._engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []
    config = Config()
    config.set_main_option("script_location", "spotd.daemon:migrations")
    assert ScriptDirectory.from_config(config).get_current_head() == schema.HEAD


def test_postgres_could_hold_these_tables() -> None:
    """Every table and the one writing statement can be put in PostgreSQL's words."""
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415
    from sqlalchemy.schema import CreateIndex, CreateTable  # noqa: PLC0415

    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    for table in schema.metadata.sorted_tables:
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=dialect))
        assert "ON CONFLICT" in str(schema.upsert(table, dialect).compile(dialect=dialect))
        for index in table.indexes:
            assert "CREATE INDEX" in str(CreateIndex(index).compile(dialect=dialect))


COMMITTER = """
import pathlib, sys
sys.path.insert(0, sys.argv[2])
from tests.unit.test_store_faults import DEPLOYMENT, SqlStore, submit
store = SqlStore.open(pathlib.Path(sys.argv[1]), DEPLOYMENT)
for number in range(100_000):
    submit(store, number)
    print(number, flush=True)
"""


def test_what_was_committed_outlives_kill_9(path: Path) -> None:
    """A writer killed at any moment has lost nothing it had been told was written, and left no half of a commit."""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", COMMITTER, path, root], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(150)]
        writer.kill()
        told += [int(line) for line in writer.stdout.read().splitlines()]
    store = SqlStore.open(path, DEPLOYMENT)
    world = store.load()
    store.close()
    assert {f"job-{number}" for number in told} <= set(world.jobs)
    assert {a.job_id for a in world.attempts.values()} == set(world.jobs)
    with Reader(path) as reader:
        assert len(reader.journal(limit=1_000_000)) == 2 * len(world.jobs)
