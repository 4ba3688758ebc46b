"""Ledger facts → spend, baseline, saving and waste (DESIGN §9). Counted, never estimated: what is not known is None, not zero.

What is counted, exactly:

* All time here is *billed* time: seconds × billing speed (1 on clouds), of each instance from `launched_at` to its end, or to now. A gang of N
  machines counts N seconds a second.
* **spend** is what the provider charges by its dated terms (`billing`), minimum charges included, credits taken off. Disks, addresses, egress and
  checkpoint storage are not in it: no facts about them are recorded yet.
* **useful** is the time in which a workload ran, less its lost work.
* **lost**: an attempt that ended otherwise than by exiting with code 0 lost what it did after its last committed checkpoint, all of it if it
  committed none. A checkpoint counts from the moment its manifest was accepted, so work done while it was uploading counts as useful. A
  running attempt has lost nothing yet; its last minutes may turn from useful to lost when it ends.
* **baseline** is useful time × the on-demand price recorded when the workload started. Where no price was known then, it and the saving are None.
* **saving** is baseline − spend, for the same span of time. It is negative when spot cost more.
* **waste** is the rest of the billed time, by cause; useful and waste make up all billed time, exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum, unique
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from spotd.core.attempt import Attempt, EndReason
from spotd.core.billing import credited, terms_at, usd_from
from spotd.core.instance import EndedBy, Interval
from spotd.core.money import ZERO_USD
from spotd.core.offer import OfferKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US
_SECONDS_PER_HOUR = 3600
#: Stands for "no limit" among instants counted in microseconds.
_FOREVER_US = 2**62


@unique
class Cause(StrEnum):
    """Where billed time went that was not useful."""

    #: Launch until the workload starts: boot, workdir, restore, setup.
    BOOT = "boot"
    #: Ready, and waiting at the gate for the attempt before it to stop.
    GATE = "gate"
    #: Work after the last committed checkpoint, to be done again.
    LOST = "lost"
    #: From the end of the workload (or of an attempt that never ran one) until the provider stops billing.
    DRAIN = "drain"
    #: What a minimum charge bills beyond the time used, and machines of tries that were given up before they answered.
    OTHER = "other"


@unique
class GroupBy(StrEnum):
    """What one row of a report stands for."""

    JOB = "job"
    ATTEMPT = "attempt"
    POLICY = "policy"
    PROVIDER = "provider"
    REGION = "region"
    MARKET = "market"
    OWNER = "owner"
    #: Days in UTC. An instance that ran through midnight counts on both sides of it.
    DAY = "day"


@dataclass(frozen=True, slots=True)
class Billing:
    """How a provider bills: two of its capabilities."""

    rule: str
    speed: int = 1


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """The facts about one instance: all that money is computed from."""

    instance_id: str
    job_id: str
    job_name: str
    owner: str
    policy: str
    offer: OfferKey
    #: In order; only the last may be open.
    intervals: tuple[Interval, ...]
    launched_at: datetime | None
    ended_at: datetime | None
    ended_by: EndedBy | None
    attempt: Attempt
    #: A newer try of the attempt took its place: it never ran the workload.
    superseded: bool = False


@dataclass(frozen=True, slots=True)
class Waste:
    """Billed time that was not useful, and what was paid for it."""

    cause: Cause
    seconds: Decimal
    usd: Decimal


@dataclass(frozen=True, slots=True)
class Savings:
    """One row of a report. Amounts are unrounded; sums are rounded once, when they are shown."""

    #: What it is about: a job's id, `id/attempt number`, a policy's name …; the total's is empty.
    key: str
    #: The same for people: a job's name instead of its id.
    title: str
    jobs: int
    attempts: int
    instances: int
    spend_usd: Decimal
    #: What the provider waived (an instance reclaimed in its first hour on AWS): not part of the spend.
    credited_usd: Decimal
    useful_seconds: Decimal
    useful_usd: Decimal
    #: One line per cause, in the order of `Cause`, zeros included.
    waste: tuple[Waste, ...]
    #: None where some useful time has no known on-demand price.
    baseline_usd: Decimal | None
    #: That useful time.
    unpriced_seconds: Decimal

    @property
    def billed_seconds(self) -> Decimal:
        """All billed time: useful and waste."""
        return self.useful_seconds + sum((line.seconds for line in self.waste), Decimal(0))

    @property
    def useful_hours(self) -> Decimal:
        """Useful billed time in hours."""
        return self.useful_seconds / _SECONDS_PER_HOUR

    @property
    def waste_usd(self) -> Decimal:
        """What was paid for time that was not useful."""
        return sum((line.usd for line in self.waste), ZERO_USD)

    @property
    def saving_usd(self) -> Decimal | None:
        """Baseline − spend; None where the baseline is not known."""
        return None if self.baseline_usd is None else self.baseline_usd - self.spend_usd

    @property
    def saving_pct(self) -> Decimal | None:
        """The saving in per cent of the baseline; None where that is not known, or nothing."""
        if self.saving_usd is None or not self.baseline_usd:
            return None
        return self.saving_usd * 100 / self.baseline_usd


@dataclass(frozen=True, slots=True)
class Report:
    """Savings over a span of time, as the command line renders them."""

    since: datetime | None
    until: datetime
    by: GroupBy
    rows: tuple[Savings, ...]
    total: Savings
    #: Providers whose way of billing is not known, and how many instances of theirs are in no figure above.
    left_out: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


def report(
    rows: Iterable[LedgerRow],
    billing: Mapping[str, Billing],
    by: GroupBy,
    now: datetime,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Report:
    """Add up the ledger from `since` to `until`, neither of them meaning all of it; what lies after `now` has not happened.

    Rows must hold whole instances: whether a charge is waived or a minimum is due depends on all of an instance's life, also where only a part of
    it is reported. The minimum is counted at its launch.
    """
    end = now if until is None else min(until, now)
    window = (-_FOREVER_US if since is None else _us(since), _FOREVER_US if end == now else _us(end))
    groups: dict[str, _Tally] = {}
    left_out: Counter[str] = Counter()
    for row in rows:
        how = billing.get(row.offer.provider)
        if how is None:
            left_out[row.offer.provider] += 1
            continue
        for piece in _pieces(row, how, now):
            for part in _cut(piece, window, by):
                key, title = (part.day, part.day) if by is GroupBy.DAY else _group(row, by)
                tally = groups.get(key)
                if tally is None:
                    tally = groups[key] = _Tally(key, title)
                tally.add(part, row)
    total = _Tally("", "")
    for tally in groups.values():
        total.merge(tally)
    ordered = sorted(groups.values(), key=lambda tally: (tally.title, tally.key))
    return Report(since, end, by, tuple(t.savings() for t in ordered), total.savings(), MappingProxyType(dict(left_out)))


def _us(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def _group(row: LedgerRow, by: GroupBy) -> tuple[str, str]:
    match by:
        case GroupBy.JOB:
            return row.job_id, row.job_name
        case GroupBy.ATTEMPT:
            return f"{row.job_id}/{row.attempt.number}", f"{row.job_name}/{row.attempt.number}"
        case GroupBy.POLICY:
            word = row.policy
        case GroupBy.PROVIDER:
            word = row.offer.provider
        case GroupBy.REGION:
            word = row.offer.region
        case GroupBy.MARKET:
            word = row.offer.market.value
        case _:
            word = row.owner
    return word, word


class _Piece(NamedTuple):
    """A stretch of an instance's life with one cause (None: useful) and one price."""

    cause: Cause | None
    began_us: int
    ended_us: int
    billed_us: int
    price: Decimal
    waived: bool
    day: str = ""


def _pieces(row: LedgerRow, how: Billing, now: datetime) -> Iterator[_Piece]:
    """All billed time of an instance. What never ran costs nothing."""
    if row.launched_at is None or row.ended_by is EndedBy.NEVER_RAN or not row.intervals:
        return
    terms = terms_at(how.rule, row.launched_at)
    waived = credited(terms, how.speed, row.offer.market, row.launched_at, row.ended_at, row.ended_by)
    launched, ended = _us(row.launched_at), _us(row.ended_at or now)
    phases = _phases(row, launched, max(ended, launched))
    counted = 0
    for interval in row.intervals:
        began = max(_us(interval.started_at), launched)
        finished = ended if interval.ended_at is None else min(_us(interval.ended_at), ended)
        counted += max(finished - began, 0) * how.speed
        for cause, start, stop in phases:
            first, last = max(began, start), min(finished, stop)
            if first < last:
                yield _Piece(cause, first, last, (last - first) * how.speed, interval.price_usd_per_hour, waived)
    missing = terms.minimum_s * _SECOND_US - counted
    if missing > 0:
        yield _Piece(Cause.OTHER, launched, launched, missing, row.intervals[-1].price_usd_per_hour, waived)


def _phases(row: LedgerRow, launched: int, ended: int) -> list[tuple[Cause | None, int, int]]:
    """An instance's life from launch to end, divided without gap or overlap.

    The attempt's times are the daemon's, the instance's are the provider's: each is moved into what the ones before it leave.
    """
    if row.superseded:
        return [(Cause.OTHER, launched, ended)]
    attempt = row.attempt
    stopped = attempt.stopped_at or attempt.ended_at
    finish = ended if stopped is None else min(max(_us(stopped), launched), ended)
    started = finish if attempt.started_at is None else _us(attempt.started_at)
    opened = started if attempt.gate_opened_at is None else _us(attempt.gate_opened_at)
    ready = min(opened, started) if attempt.ready_at is None else _us(attempt.ready_at)
    kept, after = _kept_until(attempt, finish)
    marks = ((Cause.BOOT, ready), (Cause.GATE, opened), (Cause.BOOT, started), (None, kept), (after, finish))
    phases: list[tuple[Cause | None, int, int]] = []
    at = launched
    for cause, mark in marks:
        stop = min(max(mark, at), finish)
        if at < stop:
            phases.append((cause, at, stop))
            at = stop
    if at < ended:
        phases.append((Cause.DRAIN, at, ended))
    return phases


def _kept_until(attempt: Attempt, finish: int) -> tuple[int, Cause]:
    """Until when an attempt's work is kept, and what the time from there to the end of its workload is."""
    exited_well = attempt.reason is EndReason.EXITED and attempt.exit_code == 0
    if not attempt.ended or exited_well:
        return finish, Cause.LOST
    if attempt.checkpoint_at is None:
        return -_FOREVER_US, Cause.LOST
    # It answered a warning with a checkpoint that holds its last step: what followed was stopping, not work.
    behind = attempt.step is not None and attempt.checkpoint_step is not None and attempt.step > attempt.checkpoint_step
    return _us(attempt.checkpoint_at), Cause.DRAIN if attempt.saved and not behind else Cause.LOST


def _cut(piece: _Piece, window: tuple[int, int], by: GroupBy) -> Iterator[_Piece]:
    """The part of a piece that lies in the window, day by day where days are asked for."""
    if piece.began_us == piece.ended_us:
        if window[0] <= piece.began_us < window[1]:
            yield piece._replace(day=_day(piece.began_us)) if by is GroupBy.DAY else piece
        return
    speed = piece.billed_us // (piece.ended_us - piece.began_us)
    began, ended = max(piece.began_us, window[0]), min(piece.ended_us, window[1])
    if by is not GroupBy.DAY:
        if began < ended:
            yield piece._replace(began_us=began, ended_us=ended, billed_us=(ended - began) * speed)
        return
    while began < ended:
        stop = min(ended, began - began % _DAY_US + _DAY_US)
        yield piece._replace(began_us=began, ended_us=stop, billed_us=(stop - began) * speed, day=_day(began))
        began = stop


def _day(us: int) -> str:
    return (_EPOCH + us * _MICROSECOND).date().isoformat()


class _Tally:
    """Sums of one group: billed microseconds, and hourly prices × microseconds, both exact."""

    def __init__(self, key: str, title: str) -> None:
        self.key = key
        self.title = title
        self._us: Counter[Cause | None] = Counter()
        self._paid: dict[Cause | None, Decimal] = {}
        self._credited = Decimal(0)
        self._baseline = Decimal(0)
        self._unpriced_us = 0
        self._jobs: set[str] = set()
        self._attempts: set[str] = set()
        self._instances: set[str] = set()

    def add(self, piece: _Piece, row: LedgerRow) -> None:
        """One more piece of an instance."""
        self._jobs.add(row.job_id)
        self._attempts.add(row.attempt.id)
        self._instances.add(row.instance_id)
        self._us[piece.cause] += piece.billed_us
        amount = piece.price * piece.billed_us
        if piece.waived:
            self._credited += amount
        else:
            self._paid[piece.cause] = self._paid.get(piece.cause, ZERO_USD) + amount
        if piece.cause is None:
            if row.attempt.baseline_usd_per_hour is None:
                self._unpriced_us += piece.billed_us
            else:
                self._baseline += row.attempt.baseline_usd_per_hour * piece.billed_us

    def merge(self, other: _Tally) -> None:
        """All pieces of another group. A job in both is one job."""
        self._jobs |= other._jobs
        self._attempts |= other._attempts
        self._instances |= other._instances
        self._us.update(other._us)
        for cause, amount in other._paid.items():
            self._paid[cause] = self._paid.get(cause, ZERO_USD) + amount
        self._credited += other._credited
        self._baseline += other._baseline
        self._unpriced_us += other._unpriced_us

    def savings(self) -> Savings:
        """The row of the report."""
        return Savings(
            key=self.key,
            title=self.title,
            jobs=len(self._jobs),
            attempts=len(self._attempts),
            instances=len(self._instances),
            spend_usd=usd_from(sum(self._paid.values(), ZERO_USD)),
            credited_usd=usd_from(self._credited),
            useful_seconds=_seconds(self._us[None]),
            useful_usd=usd_from(self._paid.get(None, ZERO_USD)),
            waste=tuple(Waste(c, _seconds(self._us[c]), usd_from(self._paid.get(c, ZERO_USD))) for c in Cause),
            baseline_usd=None if self._unpriced_us else usd_from(self._baseline),
            unpriced_seconds=_seconds(self._unpriced_us),
        )


def _seconds(microseconds: int) -> Decimal:
    return Decimal(microseconds) / _SECOND_US
