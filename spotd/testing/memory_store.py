"""A store in memory: what the simulator and tests use in the database's place. One contract suite holds both to the same behaviour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotd.core.world import Changes, World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spotd.core.attempt import Attempt, Checkpoint
    from spotd.core.events import Event
    from spotd.core.instance import Instance, Interval
    from spotd.core.job import Job
    from spotd.core.offer import Offer, OfferKey
    from spotd.core.survival import Lifetime
    from spotd.core.world import Cooldown, CooldownKey


class MemoryStore:
    """`ports.Store` without a disk: rows by key, and the journal as the events themselves.

    `fail_next` makes the next commit raise that error with nothing written, as a full disk would.
    """

    def __init__(self, deployment: str) -> None:
        self._deployment = deployment
        self.jobs: dict[str, Job] = {}
        self.attempts: dict[str, Attempt] = {}
        self.instances: dict[str, Instance] = {}
        #: By (job, checkpoint id).
        self.checkpoints: dict[tuple[str, str], Checkpoint] = {}
        #: By (instance, number), the closed ones too: the ledger.
        self.intervals: dict[tuple[str, int], Interval] = {}
        self.cooldowns: dict[CooldownKey, Cooldown] = {}
        self.lifetimes: dict[OfferKey, Lifetime] = {}
        #: Changes of price, oldest first.
        self.prices: list[Offer] = []
        #: Journaled events, oldest first; the first has sequence number 1.
        self.journal: list[Event] = []
        self.commits = 0
        self.fail_next: Exception | None = None
        self._last_prices: dict[OfferKey, Offer] = {}

    def load(self) -> World:
        """All that belongs to jobs which are unfinished or own a live instance; open intervals, cooldowns and lifetimes."""
        kept = {job.id for job in self.jobs.values() if job.outcome is None} | {i.job_id for i in self.instances.values() if i.live}
        checkpoints: dict[str, tuple[Checkpoint, ...]] = {}
        for checkpoint in sorted(self.checkpoints.values(), key=lambda c: (c.attempt, c.sequence)):
            if checkpoint.job_id in kept:
                checkpoints[checkpoint.job_id] = (*checkpoints.get(checkpoint.job_id, ()), checkpoint)
        return World(
            deployment=self._deployment,
            jobs={k: v for k, v in self.jobs.items() if k in kept},
            attempts={k: v for k, v in self.attempts.items() if v.job_id in kept},
            instances={k: v for k, v in self.instances.items() if v.job_id in kept},
            checkpoints=checkpoints,
            intervals={i.instance_id: i for i in self.intervals.values() if i.ended_at is None},
            cooldowns=dict(self.cooldowns),
            lifetimes=dict(self.lifetimes),
        )

    def commit(self, events: Sequence[Event], changes: Changes) -> None:
        """Keep rows and journal, or raise what `fail_next` holds and keep nothing."""
        self._fail_if_told()
        self.commits += 1
        self.jobs.update((x.id, x) for x in changes.jobs)
        self.attempts.update((x.id, x) for x in changes.attempts)
        self.instances.update((x.id, x) for x in changes.instances)
        self.checkpoints.update(((x.job_id, x.id), x) for x in changes.checkpoints)
        self.intervals.update(((x.instance_id, x.number), x) for x in changes.intervals)
        self.cooldowns.update((x.key, x) for x in changes.cooldowns)
        self.lifetimes.update((x.offer, x) for x in changes.lifetimes)
        self.journal += [event for event in events if event.journaled]

    def record_prices(self, offers: Sequence[Offer]) -> None:
        """Keep the prices that differ from the last one known of their offer. An answer older than that one is no news."""
        self._fail_if_told()
        for offer in offers:
            past = self._last_prices.get(offer.key)
            if past is None or (offer.seen_at > past.seen_at and offer.price_usd_per_hour != past.price_usd_per_hour):
                self.prices.append(offer)
                self._last_prices[offer.key] = offer

    def close(self) -> None:
        """Nothing to release: what was committed stays, so that a restart of the daemon can be played with the same object."""

    def _fail_if_told(self) -> None:
        error, self.fail_next = self.fail_next, None
        if error is not None:
            raise error
