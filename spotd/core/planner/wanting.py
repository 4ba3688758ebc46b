"""Which instances are wanted: everything else that lives is ended (DESIGN §4 rule 4: owned or ended)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotd.core.tries import is_current

if TYPE_CHECKING:
    from spotd.core.world import World


def wanted_instances(world: World) -> frozenset[str]:
    """The newest try of each rank of every attempt that goes on, of jobs that are not over."""
    wanted: set[str] = set()
    for instance in world.instances.values():
        attempt = world.attempts.get(instance.attempt_id)
        job = world.jobs.get(instance.job_id)
        if attempt is None or attempt.ended or job is None or job.outcome is not None:
            continue
        if is_current(attempt, instance):
            wanted.add(instance.id)
    return frozenset(wanted)
