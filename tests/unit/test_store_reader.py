"""What the API's threads ask of the database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from spotd.core import events as e
from spotd.core.attempt import Checkpoint, EndReason, Purpose
from spotd.core.errors import ErrorKind, Scope
from spotd.core.fold import fold
from spotd.core.instance import EndedBy, Instance, Interval, LaunchRequest, ObservedInstance, ObservedState
from spotd.core.job import Job, JobSpec, Outcome
from spotd.core.notice import NoticeKind
from spotd.core.offer import Market, Offer, OfferKey
from spotd.core.world import World
from spotd.daemon.database import StoreUnavailable
from spotd.daemon.reader import AmbiguousJob, Reader, UnknownJob
from spotd.daemon.report import savings_report
from spotd.daemon.store import SqlStore

START = datetime(2026, 3, 1, tzinfo=UTC)
OFFER = OfferKey("local", "us-1", "us-1a", "gpu.8", Market.SPOT)
DEPLOYMENT = "deployment-1"


def minutes(count: float) -> datetime:
    """That long after the start."""
    return START + timedelta(minutes=count)


class Daemon:
    """Commits what happens, as the engine does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = SqlStore.open(path, DEPLOYMENT)
        self.world = World(DEPLOYMENT)

    def happens(self, *events: e.Event) -> None:
        """Fold and commit."""
        self.world, changes = fold(self.world, events)
        self.store.commit(events, changes)

    def submit(self, identity: str, name: str = "train", owner: str = "alice", policy: str = "h100", at: float = 0, **labels: str) -> None:
        """A job."""
        self.happens(e.JobSubmitted(minutes(at), Job(identity, JobSpec(name, policy, "run", labels=labels), owner, minutes(at))))

    def place(self, job: str, number: int = 1, at: float = 0) -> None:
        """An attempt `job-number`."""
        self.happens(e.AttemptPlaced(minutes(at), job, f"{job}-{number}", number, Purpose.START))

    def launch(self, job: str, identity: str, number: int = 1, try_number: int = 1, at: float = 0, usd: str = "1.20") -> None:
        """An instance of that attempt."""
        request = LaunchRequest(identity, DEPLOYMENT, job, "train", number, 0, OFFER, None, minutes(at + 10_000))
        instance = Instance(identity, job, f"{job}-{number}", 0, try_number, request, Decimal(usd), "cheapest", minutes(at))
        self.happens(e.LaunchRequested(minutes(at), instance))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon's writing half."""
    made = Daemon(tmp_path / "spotd.db")
    yield made
    made.store.close()


@pytest.fixture
def reader(daemon: Daemon) -> Iterator[Reader]:
    """A reader beside it."""
    with Reader(daemon.path) as made:
        yield made


@pytest.fixture
def some_jobs(daemon: Daemon) -> None:
    """Five jobs of two people."""
    daemon.submit("aa11", "train", "alice", "h100", at=0, project="legal")
    daemon.submit("aa22", "train", "bob", "h100", at=1, project="legal")
    daemon.submit("bb33", "eval", "alice", "a100", at=2, project="vision")
    daemon.submit("bb44", "bb3", "alice", "a100", at=3)
    daemon.submit("cc55", "aa11", "alice", "a100", at=4)
    daemon.happens(e.JobFinished(minutes(5), "aa11", Outcome.SUCCEEDED, "done"))


@pytest.mark.usefixtures("some_jobs")
def test_jobs_come_newest_first_and_fit_every_filter(reader: Reader) -> None:
    """Filters are combined, and the limit takes the newest."""

    def ids(jobs: list[Job]) -> list[str]:
        return [job.id for job in jobs]

    assert ids(reader.jobs()) == ["cc55", "bb44", "bb33", "aa22", "aa11"]
    assert ids(reader.jobs(limit=2)) == ["cc55", "bb44"]
    assert ids(reader.jobs(owner="bob")) == ["aa22"]
    assert ids(reader.jobs(owner="alice", policy="h100")) == ["aa11"]
    assert ids(reader.jobs(policy="h100", unfinished=True)) == ["aa22"]
    assert ids(reader.jobs(label=("project", "legal"))) == ["aa22", "aa11"]
    assert ids(reader.jobs(label=("project", "legal"), limit=1)) == ["aa22"]
    assert reader.jobs(label=("project", "none")) == []


@pytest.mark.usefixtures("some_jobs")
@pytest.mark.parametrize(("word", "found"), [("aa22", "aa22"), ("aa2", "aa22"), ("train", "aa22"), ("eval", "bb33"), ("c", "cc55"), ("aa11", "aa11")])
def test_a_job_is_found_by_id_start_or_name(reader: Reader, word: str, found: str) -> None:
    """A whole id is that job even if another one has it for a name; a name is the newest job of that name."""
    assert reader.job(word).id == found


@pytest.mark.usefixtures("some_jobs")
@pytest.mark.parametrize(("word", "ids"), [("aa", ("aa11", "aa22")), ("bb3", ("bb33", "bb44"))])
def test_a_word_for_several_jobs_lists_them(reader: Reader, word: str, ids: tuple[str, ...]) -> None:
    """The beginning of several ids, or of one and the name of another: the error lists whom it could mean."""
    with pytest.raises(AmbiguousJob, match=" or ".join(ids)) as refused:
        reader.job(word)
    assert refused.value.ids == ids


@pytest.mark.usefixtures("some_jobs")
@pytest.mark.parametrize("word", ["", "zz", "aa111", "%", "_", "AA22", "'; DROP TABLE jobs; --", "\0", "ä" * 1000])
def test_a_word_for_no_job_is_an_error(reader: Reader, word: str) -> None:
    """No pattern, no other case, no SQL: a word means what it says."""
    with pytest.raises(UnknownJob):
        reader.job(word)


def test_a_jobs_story_is_told_in_order(daemon: Daemon, reader: Reader) -> None:
    """Attempts by number, tries by time, checkpoints by age, intervals by number."""
    daemon.submit("job")
    daemon.place("job")
    daemon.launch("job", "z-first", at=1)
    daemon.happens(e.LaunchRefused(minutes(2), "z-first", ErrorKind.NO_CAPACITY, Scope.ZONE, "ICE", "none left"))
    daemon.launch("job", "a-second", try_number=2, at=3)
    daemon.happens(e.LaunchSucceeded(minutes(4), "a-second", "i-2", minutes(4)))
    daemon.happens(e.PriceMoved(minutes(5), "a-second", Decimal("1.30")))
    for sequence in (2, 1):
        checkpoint = Checkpoint(f"00001-{sequence:06}", "job", 1, sequence, 10, 1, 1, "ab", minutes(6))
        daemon.happens(e.CheckpointCommitted(minutes(6), "a-second", checkpoint))
    assert [a.number for a in reader.attempts("job")] == [1]
    assert [i.id for i in reader.instances("job")] == ["z-first", "a-second"]
    assert [c.sequence for c in reader.checkpoints("job")] == [1, 2]
    expected = (
        Interval("a-second", 1, Decimal("1.20"), minutes(4), minutes(5)),
        Interval("a-second", 2, Decimal("1.30"), minutes(5)),
    )
    assert reader.intervals(["a-second", "z-first"]) == {"a-second": expected}
    for ask in (reader.attempts, reader.instances, reader.checkpoints):
        assert ask("nobody") == []


def test_the_journal_is_followed_by_sequence_number(daemon: Daemon, reader: Reader) -> None:
    """Rows after a number, oldest first, as many as asked for; a job's rows include what names only its instance or attempt."""
    assert reader.last_seq() == 0
    daemon.submit("job")
    daemon.place("job")
    daemon.submit("other")
    daemon.launch("job", "i-1")
    daemon.happens(e.ProgressReported(minutes(1), "i-1", 5, 0.5))
    daemon.happens(e.TerminateFailed(minutes(2), "i-1", "503"), e.LaunchUnknown(minutes(2), "i-1", "?"))
    daemon.happens(e.AttemptEnded(minutes(3), "job-1", EndReason.CANCELLED, ""))
    # Said again about rows that it does not change: whose they are is looked up.
    daemon.happens(e.AttemptEnded(minutes(4), "job-1", EndReason.CANCELLED, ""), e.NoticeCancelled(minutes(4), "i-1", NoticeKind.RECLAIM))
    rows = reader.journal()
    assert [row.seq for row in rows] == list(range(1, 10))
    assert reader.last_seq() == 9
    assert [row.seq for row in reader.journal(after_seq=3, limit=2)] == [4, 5]
    mine = reader.journal(job_id="job")
    assert [row.kind for row in mine] == [
        "job_submitted",
        "attempt_placed",
        "launch_requested",
        "terminate_failed",
        "launch_unknown",
        "attempt_ended",
        "attempt_ended",
        "notice_cancelled",
    ]
    assert {row.attempt_id for row in mine[1:]} == {"job-1"}
    assert [row.seq for row in reader.journal(kinds=["attempt_ended", "job_submitted"])] == [1, 3, 7, 8]
    assert mine[3].fields() == {"at": "2026-03-01T00:02:00Z", "instance_id": "i-1", "message": "503"}
    assert mine[3].event() == e.TerminateFailed(minutes(2), "i-1", "503")
    assert mine[3].at == minutes(2)


def test_prices_since_a_time_include_the_one_in_force_then(daemon: Daemon, reader: Reader) -> None:
    """A chart that begins at noon begins with the price of noon, whenever that was first seen."""
    other = OfferKey("local", "eu-1", "eu-1a", "gpu.8", Market.ON_DEMAND)
    seen = [
        Offer(OFFER, Decimal("1.0"), minutes(0)),
        Offer(OFFER, Decimal("1.5"), minutes(10)),
        Offer(other, Decimal("4.0"), minutes(11)),
        Offer(OFFER, Decimal("1.1"), minutes(20)),
    ]
    daemon.store.record_prices(seen)
    assert reader.prices() == seen
    assert reader.prices(since=minutes(15)) == seen[1:]
    assert reader.prices(since=minutes(10)) == [seen[0], *seen[1:]]
    assert reader.prices(since=minutes(15), market=Market.SPOT) == [seen[1], seen[3]]
    assert reader.prices(region="eu-1") == [seen[2]]
    assert reader.prices(provider="local", zone="us-1a", instance_type="gpu.8", limit=1) == [seen[3]]


def ran(daemon: Daemon, identity: str, start: float, end: float | None, number: int = 1) -> None:
    """An instance of `job` that was billed in that time."""
    daemon.place("job", number, at=start)
    daemon.launch("job", identity, number=number, at=start)
    daemon.happens(e.LaunchSucceeded(minutes(start), identity, f"i-{identity}", minutes(start)))
    if end is not None:
        row = ObservedInstance(f"i-{identity}", identity, "us-1", "us-1a", ObservedState.GONE, minutes(start), minutes(end), EndedBy.US)
        daemon.happens(e.Listed(minutes(end), minutes(end), "local", "us-1", (row,)))


def test_the_ledger_gives_whole_instances_of_a_span_of_time(daemon: Daemon, reader: Reader) -> None:
    """Every instance that was billed within it, with all its intervals; what lies outside is left out."""
    daemon.submit("job")
    ran(daemon, "early", 0, 10, number=1)
    ran(daemon, "middle", 5, 30, number=2)
    ran(daemon, "late", 20, None, number=3)
    daemon.happens(e.PriceMoved(minutes(25), "late", Decimal(2)))

    def names(since: float | None = None, until: float | None = None) -> list[str]:
        begin, end = None if since is None else minutes(since), None if until is None else minutes(until)
        return [row.instance_id for row in reader.ledger(begin, end)]

    assert names() == ["early", "late", "middle"]
    assert names(since=10) == ["late", "middle"]
    assert names(since=9, until=20) == ["early", "middle"]
    assert names(until=5) == ["early"]
    assert names(since=1000) == ["late"]
    assert [row.instance_id for row in reader.ledger(job_id="nobody")] == []
    late = next(row for row in reader.ledger() if row.instance_id == "late")
    assert [i.price_usd_per_hour for i in late.intervals] == [Decimal("1.20"), Decimal(2)]
    assert (late.job_name, late.owner, late.policy, late.offer) == ("train", "alice", "h100", OFFER)
    assert late.attempt == reader.attempts("job")[2]
    assert not late.superseded


def test_an_earlier_try_is_known_to_have_been_replaced(daemon: Daemon, reader: Reader) -> None:
    """Of two machines of one attempt and rank only the newest try did its work."""
    daemon.submit("job")
    daemon.place("job")
    daemon.launch("job", "first", try_number=1)
    daemon.launch("job", "second", try_number=2)
    daemon.happens(e.LaunchSucceeded(minutes(1), "first", "i-1", minutes(1)), e.LaunchSucceeded(minutes(1), "second", "i-2", minutes(1)))
    assert {row.instance_id: row.superseded for row in reader.ledger()} == {"first": True, "second": False}


def test_the_report_is_made_of_what_is_stored(daemon: Daemon, reader: Reader) -> None:
    """From the events to the figures that are shown: an hour of work at 1.20, wanted at 3.00."""
    daemon.submit("job")
    daemon.place("job")
    daemon.launch("job", "i")
    daemon.happens(e.LaunchSucceeded(minutes(0), "i", "i-1", minutes(0)))
    daemon.happens(e.AgentReady(minutes(6), "i", None, None, 1.0, 0.0, 0.0), e.GateOpened(minutes(6), "job-1", Decimal("3.00"), "first"))
    daemon.happens(e.WorkloadStarted(minutes(6), "i"))
    daemon.happens(e.WorkloadExited(minutes(66), "i", 0, done=True, step=9))
    row = ObservedInstance("i-1", "i", "us-1", "us-1a", ObservedState.GONE, minutes(0), minutes(68), EndedBy.US)
    daemon.happens(e.Listed(minutes(70), minutes(70), "local", "us-1", (row,)))
    report = savings_report(reader, {"local": ("aws", 1)}, now=minutes(100), by="policy")
    assert report["rows"] == [{**report["total"], "key": "h100", "title": "h100"}]
    total = report["total"]
    assert (total["spend_usd"], total["baseline_usd"], total["saving_usd"]) == ("1.360000", "3.000000", "1.640000")
    assert total["saving_pct"] == 54.67
    assert total["waste"]["boot"] == {"hours": 0.1, "usd": "0.120000"}
    assert total["waste"]["drain"]["usd"] == "0.040000"
    assert report["left_out"] == {}
    assert savings_report(reader, {}, now=minutes(100))["left_out"] == {"local": 1}
    with pytest.raises(ValueError, match="no report by 'mood'; known: job, attempt, policy"):
        savings_report(reader, {}, now=minutes(100), by="mood")


def test_a_reader_cannot_write(reader: Reader) -> None:
    """Whatever a handler does, the connections of readers refuse to change anything."""
    with pytest.raises(StoreUnavailable), reader._read() as connection:
        connection.exec_driver_sql("DELETE FROM journal")


@pytest.mark.usefixtures("some_jobs")
def test_many_threads_read_while_one_writes(daemon: Daemon, reader: Reader) -> None:
    """Readers never wait for the writer nor fail because of it, and each answer is one state: an attempt's job is always there."""
    stop = threading.Event()
    problems: list[str] = []

    def read() -> None:
        while not stop.is_set():
            try:
                for job in reader.jobs(unfinished=True):
                    reader.attempts(job.id)
                reader.journal(after_seq=5)
                sum(1 for _ in reader.ledger())
            except Exception as error:  # noqa: BLE001 - whatever it is, the test must show it
                problems.append(repr(error))
                return

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for number in range(30):
        daemon.submit(f"dd{number}", at=10)
        ran_job = f"dd{number}"
        daemon.happens(e.AttemptPlaced(minutes(10), ran_job, f"{ran_job}-1", 1, Purpose.START))
    stop.set()
    for thread in threads:
        thread.join(20)
    assert problems == []
    assert len(reader.jobs(limit=1000)) == 35


def test_a_ledger_that_is_not_read_to_its_end_gives_its_connection_back(daemon: Daemon) -> None:
    """An answer that its caller gave up on holds nothing."""
    daemon.submit("job")
    ran(daemon, "one", 0, 5, number=1)
    ran(daemon, "two", 5, 9, number=2)
    with Reader(daemon.path, connections=1) as reader:
        rows = reader.ledger()
        next(rows)
        rows.close()
        assert len(list(reader.ledger())) == 2


def test_a_row_that_changed_is_read_as_it_is_now(daemon: Daemon, reader: Reader) -> None:
    """A reader sees each commit as soon as it is made."""
    daemon.submit("job")
    job = replace(reader.job("job"), cancel_requested_at=minutes(1))
    daemon.happens(e.CancelRequested(minutes(1), "job", "alice"))
    assert reader.job("job") == job
