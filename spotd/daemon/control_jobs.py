"""Jobs over the control API: list, show, explain, cancel."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import TYPE_CHECKING

from aiohttp import web

from spotd.config.errors import printable
from spotd.core.events import CancelRequested
from spotd.core.money import ZERO_USD
from spotd.daemon.control import CONTROL
from spotd.daemon.control_errors import forbidden, malformed
from spotd.daemon.control_explain import explanation
from spotd.daemon.control_request import flag_query, label_query, text_query, the_job, whole_query
from spotd.daemon.control_views import (
    STATUSES,
    View,
    attempt_view,
    checkpoint_view,
    instance_view,
    job_view,
    policy_view,
    spec_view,
    speeds,
    spend_of,
    time_view,
    usd_view,
)
from spotd.daemon.peer import is_admin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spotd.core.attempt import Attempt, Checkpoint
    from spotd.core.instance import Instance, Interval
    from spotd.core.job import Job
    from spotd.daemon.control import Control

_MOST_JOBS = 10_000


async def jobs(request: web.Request) -> web.Response:
    """`GET /v1/jobs`: newest first; unfinished ones unless `all=1`. Filters: owner, policy, status, label=key=value, limit."""
    control = request.app[CONTROL]
    status = text_query(request, "status")
    if status is not None and status not in STATUSES:
        raise malformed(f"status: {printable(status)} is not one", f"choose {', '.join(STATUSES)}")
    labels = label_query(request)
    limit = whole_query(request, "limit", 1000, _MOST_JOBS)
    everything = flag_query(request, "all") or status in {"succeeded", "failed", "cancelled"}
    owner, policy = text_query(request, "owner"), text_query(request, "policy")
    # Labels and the status are compared here: what the database returns may be thinned out.
    deep = _MOST_JOBS if labels or status is not None else limit
    found = await asyncio.to_thread(control.reader.jobs, owner=owner, policy=policy, unfinished=not everything, limit=deep)
    rows = await asyncio.to_thread(_rows, control, found, status, labels, limit)
    return web.json_response({"jobs": rows, "speeds": speeds(control.recorder.snapshot().providers)})


def _rows(control: Control, found: Sequence[Job], status: str | None, labels: Mapping[str, str], limit: int) -> list[View]:
    world = control.recorder.world
    holds = control.recorder.holds()
    attempts: dict[str, list[Attempt]] = {}
    for attempt in world.attempts.values():
        attempts.setdefault(attempt.job_id, []).append(attempt)
    instances: dict[str, list[Instance]] = {}
    for instance in world.instances.values():
        instances.setdefault(instance.job_id, []).append(instance)
    rows: list[View] = []
    for stored in found:
        job = world.jobs.get(stored.id, stored)
        if any(job.spec.labels.get(key) != value for key, value in labels.items()):
            continue
        # Attempts of finished jobs have left the world; they are few enough to be asked for one job at a time.
        own = attempts.get(job.id) or (list(control.reader.attempts(job.id)) if job.attempts else [])
        row = job_view(job, own, instances.get(job.id, ()), holds.get(job.id))
        if status is None or row["status"] == status:
            rows.append(row)
        if len(rows) >= limit:
            break
    return rows


class _Story:
    """All that is recorded of one job: the world's values where it has them, for they are the newest."""

    def __init__(self, control: Control, job: Job) -> None:
        reader, self._world = control.reader, control.recorder.world
        self.job = self._world.jobs.get(job.id, job)
        self.attempts: list[Attempt] = [self._world.attempts.get(a.id, a) for a in reader.attempts(job.id)]
        self.instances: list[Instance] = [self._world.instances.get(i.id, i) for i in reader.instances(job.id)]
        self.checkpoints: Sequence[Checkpoint] = reader.checkpoints(job.id)
        self.intervals: Mapping[str, Sequence[Interval]] = reader.intervals([i.id for i in self.instances])

    def number_of(self, instance: Instance) -> int:
        """The attempt's number."""
        return next((a.number for a in self.attempts if a.id == instance.attempt_id), instance.request.attempt)


async def show(request: web.Request) -> web.Response:
    """`GET /v1/jobs/REF`: the job with its attempts, instances, checkpoints, policy and cost so far."""
    control = request.app[CONTROL]
    job = await the_job(control, request.match_info["ref"])
    return web.json_response(await asyncio.to_thread(_show, control, job))


def _show(control: Control, found: Job) -> View:
    story = _Story(control, found)
    snapshot = control.recorder.snapshot()
    policy = control.policies.policies().get(found.spec.policy)
    spends: dict[str, Decimal | None] = {i.id: spend_of(i, story.intervals.get(i.id, ()), snapshot) for i in story.instances}
    known = [spend for spend in spends.values() if spend is not None]
    return {
        "job": job_view(story.job, story.attempts, story.instances, control.recorder.holds().get(found.id)),
        "spec": spec_view(story.job),
        "attempts": [attempt_view(a) for a in story.attempts],
        "instances": [instance_view(i, story.number_of(i), spends[i.id]) for i in story.instances],
        "checkpoints": [checkpoint_view(c) for c in story.checkpoints],
        "policy": policy_view(policy) if policy is not None else None,
        "spend_usd": usd_view(sum(known, ZERO_USD)),
        "spend_complete": len(known) == len(spends),
        "as_of": time_view(snapshot.now),
        "speeds": speeds(snapshot.providers),
    }


async def explain(request: web.Request) -> web.Response:
    """`GET /v1/jobs/REF/explain`: the ranking with every factor, what was tried, and the reason for waiting."""
    control = request.app[CONTROL]
    job = await the_job(control, request.match_info["ref"])
    return web.json_response(await asyncio.to_thread(_explain, control, job))


def _explain(control: Control, found: Job) -> View:
    story = _Story(control, found)
    snapshot = control.recorder.snapshot()
    hold = control.recorder.holds().get(found.id)
    return {
        "job": job_view(story.job, story.attempts, story.instances, hold),
        **explanation(story.job, story.attempts, story.instances, hold, snapshot),
        "as_of": time_view(snapshot.now),
        "speeds": speeds(snapshot.providers),
    }


async def cancel(request: web.Request) -> web.Response:
    """`POST /v1/jobs/REF/cancel`: one's own job, or anybody's for an admin. Repeating it is harmless."""
    control = request.app[CONTROL]
    peer = control.identify(request)
    job = await the_job(control, request.match_info["ref"])
    if job.owner != peer.name and not await is_admin(peer, control.admin_group):
        raise forbidden(
            f"job {job.id[:8]} belongs to {job.owner}, and you are {peer.name}",
            f"ask {job.owner}, or a member of group {control.admin_group}",
        )
    changed = job.outcome is None and job.cancel_requested_at is None
    if changed:
        await asyncio.to_thread(control.recorder.record, [CancelRequested(control.clock.now(), job.id, peer.name)])
        job = control.recorder.world.jobs.get(job.id, job)
    attempts = await asyncio.to_thread(control.reader.attempts, job.id)
    view = {"job": job_view(job, attempts, (), control.recorder.holds().get(job.id)), "changed": changed}
    return web.json_response(view)
