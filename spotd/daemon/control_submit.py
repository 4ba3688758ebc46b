"""Taking a job: everything that can be known to be wrong is said now, and nothing is recorded before all of it is right."""

from __future__ import annotations

import asyncio
import re
import uuid
from typing import TYPE_CHECKING, Any

from aiohttp import web

from spotd.config.errors import ConfigError, Problem, printable
from spotd.config.job import ParsedJob, parse_job, parse_job_mapping
from spotd.config.policy_book import PolicyState, unknown_policy
from spotd.core.events import JobSubmitted
from spotd.core.job import Job
from spotd.daemon.control import CONTROL
from spotd.daemon.control_errors import Denied, forbidden, invalid, malformed, problem_view, refused
from spotd.daemon.control_request import json_body, text_field
from spotd.daemon.control_views import job_view, speeds
from spotd.daemon.peer import Peer, is_admin
from spotd.daemon.reader import UnknownJob
from spotd.daemon.workdirs import is_sha256, stored

if TYPE_CHECKING:
    from spotd.core.policy import Policy
    from spotd.daemon.control import Control

_NAMESPACE = uuid.UUID("0e0c3b7a-3d53-5a52-9f0b-6a3a5f1f7c11")
_BODY_KEYS = frozenset({"yaml", "file", "spec", "workdir_sha256"})
_NONCE = re.compile(r"[A-Za-z0-9._-]{8,128}")


async def submit(request: web.Request) -> web.Response:
    """`POST /v1/jobs`: 201 with the job, or 200 when the same `Idempotency-Key` has made it before."""
    control = request.app[CONTROL]
    peer = control.identify(request)
    job_id = _job_id(request, peer)
    body = await json_body(request)
    try:
        parsed, file = await asyncio.to_thread(_parse, body)
    except ConfigError as error:
        raise invalid(error) from None
    owner = await _owner(control, peer, parsed, file)
    await _check_workdir(control, parsed, file)
    policy, doubts = _check_policy(control, parsed, file)
    async with control.submitting:
        earlier = await _earlier(control, job_id)
        if earlier is not None:
            if earlier.spec != parsed.spec or earlier.owner != owner:
                raise Denied(409, "conflict", f"this Idempotency-Key belongs to job {earlier.id}, which is another one", "take a fresh key")
            return _answer(control, earlier, parsed, policy, doubts, status=200)
        now = control.clock.now()
        job = Job(id=job_id, spec=parsed.spec, owner=owner, submitted_at=now, spot_since=now, waiting_since=now)
        await asyncio.to_thread(control.recorder.record, [JobSubmitted(now, job)])
    return _answer(control, job, parsed, policy, doubts, status=201)


def _job_id(request: web.Request, peer: Peer) -> str:
    """The nonce makes the id, so that a submit whose answer was lost can be repeated. Two users' nonces never meet."""
    nonce = request.headers.get("Idempotency-Key")
    if nonce is None:
        return str(uuid.uuid4())
    if not _NONCE.fullmatch(nonce):
        raise malformed("Idempotency-Key must be 8 to 128 letters, digits, dots, dashes or underscores")
    return str(uuid.uuid5(_NAMESPACE, f"{peer.uid}/{nonce}"))


def _parse(body: dict[str, Any]) -> tuple[ParsedJob, str]:
    unknown = sorted(set(body) - _BODY_KEYS)
    if unknown:
        raise malformed(f"{printable(unknown[0])} is not taken here", f"known: {', '.join(sorted(_BODY_KEYS))}")
    sha256 = text_field(body, "workdir_sha256", 64)
    if sha256 is not None and not is_sha256(sha256):
        raise malformed("workdir_sha256 must be 64 lower-case hex digits")
    file = text_field(body, "file", 1024) or "job"
    spec, yaml = body.get("spec"), body.get("yaml")
    if isinstance(spec, dict) and yaml is None:
        return parse_job_mapping(spec, file, workdir_sha256=sha256), file
    if isinstance(yaml, str) and spec is None:
        return parse_job(yaml, file, workdir_sha256=sha256), file
    raise malformed("the body needs either yaml (the text of a job file) or spec (its keys)")


async def _owner(control: Control, peer: Peer, parsed: ParsedJob, file: str) -> str:
    if parsed.owner is None or parsed.owner == peer.name:
        return peer.name
    if await is_admin(peer, control.admin_group):
        return parsed.owner
    raise forbidden(
        f"{file}: owner: you are {peer.name}, and only members of group {control.admin_group} may submit for {parsed.owner}",
        "leave `owner` out",
    )


async def _check_workdir(control: Control, parsed: ParsedJob, file: str) -> None:
    sha256 = parsed.spec.workdir_sha256
    if parsed.workdir is not None and sha256 is None:
        raise refused("was not sent", "send its archive first: PUT /v1/workdirs/SHA256, then name workdir_sha256", file, "workdir")
    if sha256 is not None and not await asyncio.to_thread(stored, control.workdirs, sha256):
        raise Denied(
            422,
            "workdir_missing",
            f"the archive {sha256[:12]} is not here",
            "send it first: PUT /v1/workdirs/SHA256",
            file=file,
            line=None,
            key="workdir",
        )


def _check_policy(control: Control, parsed: ParsedJob, file: str) -> tuple[Policy, list[Problem]]:
    """The job's policy, and what is doubtful about it today."""
    name = parsed.spec.policy
    entries = {entry.name: entry for entry in control.policies.entries()}
    entry = entries.get(name)
    usable = sorted(e.name for e in entries.values() if e.state in {PolicyState.OK, PolicyState.BROKEN})
    if entry is None or entry.state is PolicyState.VANISHED:
        message, hint = unknown_policy(name, usable)
        raise refused(message, hint, file, "policy")
    if entry.policy is None:
        raise refused(f"policy {name} cannot be used: {entry.problem}", "its file must be corrected first", file, "policy")
    wanted = {candidate.provider for candidate in entry.policy.candidates}
    configured = control.recorder.snapshot().providers
    absent = sorted(wanted - set(configured))
    if absent == sorted(wanted):
        hint = f"configured: {', '.join(sorted(configured)) or 'none'}; add [providers.{absent[0]}] to spotd.toml"
        raise refused(f"policy {name} wants {' or '.join(absent)}, and this daemon has no such provider", hint, file, "policy")
    barred = {name: configured[name].blocked for name in sorted(wanted & set(configured)) if configured[name].blocked}
    if barred and not wanted - set(absent) - set(barred):
        # Nothing it names can be bought as the daemon is configured; waiting would not change that.
        message, _, step = next(iter(barred.values())).partition(": ")
        raise refused(f"policy {name} cannot be served: {message}", step, file, "policy")
    doubts = [Problem(file, None, "policy", f"this daemon has no provider {provider}: its candidates are left out") for provider in absent]
    doubts += [Problem(file, None, "policy", f"candidates of {provider} are left out: {why}") for provider, why in barred.items()]
    if entry.state is PolicyState.BROKEN:
        doubts.append(Problem(file, None, "policy", f"the file of policy {name} is broken; its last good version is used", entry.problem))
    return entry.policy, doubts


async def _earlier(control: Control, job_id: str) -> Job | None:
    known = control.recorder.world.jobs.get(job_id)
    if known is not None:
        return known
    try:
        return await asyncio.to_thread(control.reader.job, job_id)
    except UnknownJob:
        return None


def _answer(control: Control, job: Job, parsed: ParsedJob, policy: Policy, doubts: list[Problem], *, status: int) -> web.Response:
    view = {
        "job": job_view(job, (), (), None),
        "policy": policy.name,
        "warnings": [problem_view(warning) for warning in (*parsed.warnings, *doubts)],
        "speeds": speeds(control.recorder.snapshot().providers),
    }
    return web.json_response(view, status=status)
