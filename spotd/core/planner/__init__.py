"""`plan(snapshot) -> Plan`: one function per concern, each action and each non-action with its reason.

The rules below read one immutable snapshot and return decisions; they never see each other's. So a job's rules stop at the first that decides
something: what the next one would see is out of date by then (a gate must not open for a job that just finished). Where two concerns meet (an
attempt ends, so a replacement is due) the engine folds the decisions and plans again until nothing is left to decide, so each rule stays as
small as its concern.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotd.core.plan import Case, Plan
from spotd.core.planner import alarms, cancelling, ending, gates, launching, moving, placing, pricing, settling, terminating
from spotd.core.planner.findings import Findings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spotd.core.attempt import Attempt
    from spotd.core.instance import Instance
    from spotd.core.plan import Snapshot

#: In the order in which a reader would tell the story of a job.
_JOB_RULES = (cancelling.cancel, ending.end_attempts, settling.settle, moving.move, gates.open_gate)


def plan(snapshot: Snapshot) -> Plan:
    """Decide what to do now. Pure: the same snapshot gives the same plan; a plan carried out leaves nothing to plan."""
    findings = Findings(snapshot.now)
    everyone = cases(snapshot)
    quiet = [case for case in everyone if not _decided(snapshot, case, findings)]
    moved = {case.job.id for case in everyone} - {case.job.id for case in quiet}
    moved |= placing.place(snapshot, quiet, findings)
    launching.resolve(snapshot, frozenset(moved), findings)
    terminating.terminate(snapshot, findings)
    terminating.end_strays(snapshot, findings)
    pricing.follow_prices(snapshot, findings)
    alarms.tell(snapshot, everyone, findings)
    return findings.plan()


def _decided(snapshot: Snapshot, case: Case, findings: Findings) -> bool:
    """Whether one of the job's rules decided something; the rules after it look at the next snapshot."""
    before = findings.count
    for rule in _JOB_RULES:
        rule(snapshot, case, findings)
        if findings.count != before:
            return True
    return False


def cases(snapshot: Snapshot) -> list[Case]:
    """Every unfinished job with its attempts and instances, oldest job first."""
    world = snapshot.world
    attempts: dict[str, list[Attempt]] = {}
    for attempt in world.attempts.values():
        attempts.setdefault(attempt.job_id, []).append(attempt)
    instances: dict[str, list[Instance]] = {}
    for instance in world.instances.values():
        instances.setdefault(instance.attempt_id, []).append(instance)
    return [
        Case(
            job=job,
            policy=snapshot.policies.get(job.spec.policy),
            attempts=tuple(sorted(attempts.get(job.id, ()), key=lambda a: a.number)),
            instances={a.id: _in_order(instances.get(a.id, ())) for a in attempts.get(job.id, ())},
        )
        for job in sorted(world.jobs.values(), key=lambda j: (j.submitted_at, j.id))
        if job.outcome is None
    ]


def _in_order(instances: Iterable[Instance]) -> tuple[Instance, ...]:
    return tuple(sorted(instances, key=lambda i: (i.rank, i.try_number)))
