"""A working copy of the world while events are folded into it: private to `fold`, frozen again at its end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from spotd.core.lifecycle import advance_attempt, advance_instance
from spotd.core.tries import is_current
from spotd.core.world import Changes, World

if TYPE_CHECKING:
    from datetime import datetime

    from spotd.core.attempt import Attempt, Checkpoint
    from spotd.core.instance import Instance, Interval
    from spotd.core.job import Job
    from spotd.core.lifecycle import AttemptTrigger, InstanceTrigger
    from spotd.core.offer import OfferKey
    from spotd.core.survival import Lifetime
    from spotd.core.world import Cooldown, CooldownKey, Stray


class Draft:
    """Copies on first write, remembers what was written."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.jobs = dict(world.jobs)
        self.attempts = dict(world.attempts)
        self.instances = dict(world.instances)
        self.checkpoints = dict(world.checkpoints)
        self.intervals = dict(world.intervals)
        self.cooldowns: dict[CooldownKey, Cooldown] = dict(world.cooldowns)
        self.lifetimes: dict[OfferKey, Lifetime] = dict(world.lifetimes)
        self.strays: dict[tuple[str, str], Stray] = dict(world.strays)
        self.suspended: dict[str, datetime] = dict(world.suspended)
        self.alarms: dict[tuple[str, str], datetime] = dict(world.alarms)
        self._jobs: dict[str, Job] = {}
        self._attempts: dict[str, Attempt] = {}
        self._instances: dict[str, Instance] = {}
        self._checkpoints: dict[str, Checkpoint] = {}
        self._intervals: dict[tuple[str, int], Interval] = {}
        self._cooldowns: dict[CooldownKey, Cooldown] = {}
        self._lifetimes: dict[OfferKey, Lifetime] = {}

    def attempt_of(self, instance: Instance | None) -> Attempt | None:
        """The attempt that an instance speaks for: none if another try took its place, or it is not in memory any more."""
        attempt = None if instance is None else self.attempts.get(instance.attempt_id)
        return attempt if attempt is not None and instance is not None and is_current(attempt, instance) else None

    def put_job(self, job: Job) -> None:
        """Write a job's row."""
        self.jobs[job.id] = self._jobs[job.id] = job

    def put_attempt(self, attempt: Attempt) -> None:
        """Write an attempt's row."""
        self.attempts[attempt.id] = self._attempts[attempt.id] = attempt

    def put_instance(self, instance: Instance) -> None:
        """Write an instance's row."""
        self.instances[instance.id] = self._instances[instance.id] = instance

    def put_interval(self, interval: Interval) -> None:
        """Write a ledger interval; a closed one leaves memory once it is stored."""
        self._intervals[interval.instance_id, interval.number] = interval
        if interval.ended_at is None:
            self.intervals[interval.instance_id] = interval
        else:
            self.intervals.pop(interval.instance_id, None)

    def put_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write a committed checkpoint, keeping them oldest first."""
        have = [c for c in self.checkpoints.get(checkpoint.job_id, ()) if c.id != checkpoint.id]
        self.checkpoints[checkpoint.job_id] = tuple(sorted([*have, checkpoint], key=lambda c: (c.attempt, c.sequence)))
        self._checkpoints[f"{checkpoint.job_id}/{checkpoint.id}"] = checkpoint

    def put_cooldown(self, cooldown: Cooldown) -> None:
        """Write a cooldown."""
        self.cooldowns[cooldown.key] = self._cooldowns[cooldown.key] = cooldown

    def put_lifetime(self, lifetime: Lifetime) -> None:
        """Write an offer's history."""
        self.lifetimes[lifetime.offer] = self._lifetimes[lifetime.offer] = lifetime

    def advance_attempt(self, attempt: Attempt, trigger: AttemptTrigger) -> Attempt:
        """The attempt after a trigger, not yet written."""
        return replace(attempt, state=advance_attempt(attempt.state, trigger))

    def advance_instance(self, instance: Instance, trigger: InstanceTrigger) -> Instance:
        """The instance after a trigger, not yet written."""
        return replace(instance, state=advance_instance(instance.state, trigger))

    def freeze(self) -> tuple[World, Changes]:
        """The next world, and the rows that differ from the last one."""
        world = World(
            deployment=self._world.deployment,
            jobs=self.jobs,
            attempts=self.attempts,
            instances=self.instances,
            checkpoints=self.checkpoints,
            intervals=self.intervals,
            cooldowns=self.cooldowns,
            lifetimes=self.lifetimes,
            strays=self.strays,
            suspended=self.suspended,
            alarms=self.alarms,
        )
        changes = Changes(
            jobs=tuple(self._jobs.values()),
            attempts=tuple(self._attempts.values()),
            instances=tuple(self._instances.values()),
            checkpoints=tuple(self._checkpoints.values()),
            intervals=tuple(self._intervals.values()),
            cooldowns=tuple(self._cooldowns.values()),
            lifetimes=tuple(self._lifetimes.values()),
        )
        return world, changes
