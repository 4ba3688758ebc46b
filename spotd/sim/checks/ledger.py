"""Rule 7: the ledger equals the simulated cloud's own meter, as far as the daemon could know: who ended what, when, at which price."""

from __future__ import annotations

from bisect import bisect_left
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING

from spotd.core.billing import charge
from spotd.core.events import LaunchRequested
from spotd.core.instance import EndedBy, Instance, InstanceState, Interval
from spotd.core.offer import Market
from spotd.sim.timeline import stamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spotd.core.events import Event
    from spotd.core.world import Changes
    from spotd.sim.checks import Checks
    from spotd.sim.machine import Machine

_HOUR_S = Decimal(3600)
_MINIMUM_S = 60.0
#: A price that was told is in the ledger this much later at most: a step, retried commits, and the daemon's clock that is off.
_SLOW_S = 90.0


class Ledger:
    """Reads the stored rows at the end."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._sweeps: dict[str, list[float]] = {}
        self._asked: dict[str, float] = {}
        #: When the daemon learned that a machine ran, and that it was gone.
        self._learned: dict[str, float] = {}
        self._settled: dict[str, float] = {}
        #: How wrong the daemon's clock was at most: it dates the changes of prices.
        self._skew_s = 0.0
        #: What the meter says beyond the ledger, for prices that moved between two looks.
        self.unseen_usd = Decimal(0)
        self.spent_usd = Decimal(0)

    def committed(self, events: Sequence[Event], changes: Changes) -> None:
        """When a launch was decided upon, and when was learned what became of it, in true time."""
        for row in changes.instances:
            if row.launched_at is not None:
                self._learned.setdefault(row.id, self._checks.now_s)
            if row.state is InstanceState.GONE:
                self._settled.setdefault(row.id, self._checks.now_s)
        for event in events:
            if isinstance(event, LaunchRequested):
                self._asked[event.instance.id] = self._checks.now_s

    def swept(self, regions: Sequence[str]) -> None:
        """The daemon was told the prices of these regions."""
        self._skew_s = max(self._skew_s, abs(self._checks.sim.clock.offset_s()))
        for region in regions:
            self._sweeps.setdefault(region, []).append(self._checks.now_s)

    def at_end(self) -> None:
        """Every machine that became one."""
        sim = self._checks.sim
        intervals: dict[str, list[Interval]] = {}
        for (instance_id, _), interval in sorted(sim.store.intervals.items()):
            intervals.setdefault(instance_id, []).append(interval)
        for row in sim.store.instances.values():
            machine = sim.cloud.by_token.get((row.request.offer.zone, row.id))
            if machine is not None and not machine.alive and row.state is InstanceState.GONE:
                self._compare(row, machine, intervals.get(row.id, []))

    def _compare(self, row: Instance, machine: Machine, intervals: list[Interval]) -> None:
        seen = row.end_code == machine.end_code
        name = machine.provider_id
        if machine.running_s is None:
            if intervals:
                self._checks.violated("ledger", f"{name} never ran and has intervals")
            return
        if not seen:
            # Its row had vanished before anybody looked: the ledger can only say when it was last known to be wanted.
            return
        if row.launched_at != stamp(machine.running_s) or row.ended_at != stamp(machine.ended_s or 0.0):
            self._checks.violated("ledger", f"{name} ran {machine.running_s:.0f} to {machine.ended_s:.0f}, stored: {row.launched_at} {row.ended_at}")
        if row.ended_by is not machine.ended_by and not self._excused(row, machine):
            self._checks.violated("ledger", f"{name} was ended by {machine.ended_by}, stored: {row.ended_by}")
        self._contiguous(row, intervals)
        self._money(row, machine, intervals)

    @staticmethod
    def _excused(row: Instance, machine: Machine) -> bool:
        """Words of the cloud that mean the same: a user's terminate is ours if we had asked for one."""
        words = {EndedBy.US, EndedBy.EXTERNAL}
        if machine.ended_by in words and row.ended_by in words:
            ours = machine.terminated_s is not None or row.terminate_requested_at is not None
            return ours if row.ended_by is EndedBy.US else machine.external_s is not None
        return machine.ended_by is EndedBy.UNKNOWN and row.ended_by in {EndedBy.US, EndedBy.RECLAIM, EndedBy.UNKNOWN}

    def _contiguous(self, row: Instance, intervals: list[Interval]) -> None:
        if not intervals or intervals[0].started_at != row.launched_at or intervals[-1].ended_at is None:
            self._checks.violated("ledger", f"{row.provider_id}: intervals do not cover its life: {intervals}")
            return
        for earlier, later in pairwise(intervals):
            if earlier.ended_at != later.started_at or later.number != earlier.number + 1:
                self._checks.violated("ledger", f"{row.provider_id}: intervals {earlier.number} and {later.number} do not meet")

    def _money(self, row: Instance, machine: Machine, intervals: list[Interval]) -> None:
        paid = charge("aws", 1, machine.offer.market, intervals, row.launched_at, row.ended_at, row.ended_by, stamp(self._checks.now_s)).usd
        known, slack = self._known(row, machine)
        begin, end = machine.running_s or 0.0, machine.ended_s or 0.0
        free = machine.offer.market is Market.SPOT and machine.ended_by is EndedBy.RECLAIM and end - begin < 3600.0
        owed = Decimal(0) if free else known
        self.spent_usd += paid
        if abs(paid - owed) > slack:
            prices = [(str(i.price_usd_per_hour), (i.ended_at or i.started_at) - i.started_at) for i in intervals]
            self._checks.violated("ledger", f"{machine.provider_id} cost ${owed:.6f} by the meter, ${paid:.6f} by the ledger: {prices}")
        true = sum((price * Decimal(str(until - since)) / _HOUR_S for since, until, price in self._true(machine, begin, end)), Decimal(0))
        if not free:
            self.unseen_usd += true - known

    def _true(self, machine: Machine, begin: float, end: float) -> list[tuple[float, float, Decimal]]:
        moves = self._checks.sim.cloud.bazaar.moves(machine.offer, begin, end)
        ends = [when for when, _ in moves[1:]] + [end]
        return [(since, until, price) for (since, price), until in zip(moves, ends, strict=True)]

    def _known(self, row: Instance, machine: Machine) -> tuple[Decimal, Decimal]:
        """The meter with the prices as the daemon was told them, and what a told price may be late by."""
        bazaar = self._checks.sim.cloud.bazaar
        begin, end = machine.running_s or 0.0, machine.ended_s or 0.0
        sweeps = self._sweeps.get(machine.offer.region, [])
        at = begin
        price = row.price_usd_per_hour
        total, slack = Decimal(0), Decimal("0.000001")
        # A clock that was stepped back makes a price seen just now look older than the launch: it is taken at the next sweep.
        late = Decimal(str(_SLOW_S + 3 * self._skew_s + (self._checks.sim.draws.prices_s if self._skew_s else 0.0))) / _HOUR_S
        if self._learned[row.id] == self._settled.get(row.id):
            # That it had ever run was learned with its end: no change of price was followed.
            sweeps = []
        for when in sweeps[bisect_left(sweeps, self._asked[row.id]) :]:
            told = bazaar.price(machine.offer, when)
            if when >= end:
                # Told after the end, and dated before it by a clock that is off.
                if when >= end + 2 * self._skew_s:
                    break
                slack += abs(told - price) * late
                continue
            if told != price:
                if when > at:
                    total += price * Decimal(str(when - at)) / _HOUR_S
                    at = when
                # Told before the daemon knew that it ran: what it knew then may have died with it, until it is told again.
                learned = self._learned[row.id]
                again = next((s for s in sweeps if s >= learned), end) if when < learned else when
                slack += abs(told - price) * (late + Decimal(str(again - when)) / _HOUR_S)
                price = told
        total += price * Decimal(str(end - at)) / _HOUR_S
        missing = Decimal(str(max(_MINIMUM_S - (end - begin), 0.0)))
        return total + price * missing / _HOUR_S, slack
