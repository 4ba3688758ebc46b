"""A job's output over the control API: the bytes as they are, from an offset, followed as long as the attempt goes on."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from spotd.core.attempt import AttemptState
from spotd.daemon.agent_logs import log_path
from spotd.daemon.control import CONTROL, pause
from spotd.daemon.control_errors import not_found
from spotd.daemon.control_request import flag_query, the_job, whole_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spotd.core.attempt import Attempt
    from spotd.core.job import Job
    from spotd.daemon.control import Control

_PIECE = 64 * 1024
#: How often a followed file is looked at.
_LOOK_S = 0.3
#: An agent sends the rest of its log a moment after it has said that the job ended.
_GRACE_S = 2.0
_MOST_ATTEMPTS = 100_000


async def logs(request: web.Request) -> web.StreamResponse:
    """`GET /v1/jobs/REF/logs?attempt=N&rank=R&offset=B&follow=1`: raw bytes, chunked. Without `attempt`, the newest that has any output.

    The headers say which attempt it is (`X-Spotd-Attempt`, 0: none yet) and where the bytes begin (`X-Spotd-Offset`). With `follow` the answer
    ends when the attempt is over and all of its output was sent; whoever is interested asks for the next attempt then.
    """
    control = request.app[CONTROL]
    job = await the_job(control, request.match_info["ref"])
    wanted = whole_query(request, "attempt", 0, _MOST_ATTEMPTS)
    rank = whole_query(request, "rank", 0, 999)
    offset = whole_query(request, "offset", 0, 10**15)
    follow = flag_query(request, "follow")
    attempts = await asyncio.to_thread(control.reader.attempts, job.id)
    number = await asyncio.to_thread(_choose, control, job, attempts, wanted, rank)
    response = web.StreamResponse(
        headers={
            "Content-Type": "application/octet-stream",
            "X-Spotd-Attempt": str(number),
            "X-Spotd-Offset": str(offset),
            "Cache-Control": "no-store",
        }
    )
    response.enable_chunked_encoding()
    await response.prepare(request)
    if number:
        await _send(request, response, control, job, number, log_path(control.logs_dir, job.id, number, rank), offset, follow=follow)
    await response.write_eof()
    return response


def _choose(control: Control, job: Job, attempts: Sequence[Attempt], wanted: int, rank: int) -> int:
    """The attempt to show; 0 when there is none to show yet."""
    numbers = [attempt.number for attempt in attempts]
    if wanted:
        if wanted not in numbers:
            known = f"it has {len(numbers)} so far" if numbers else "it has none yet"
            raise not_found(f"job {job.id[:8]} has no attempt {wanted}", known)
        return wanted
    written = [n for n in numbers if log_path(control.logs_dir, job.id, n, rank).exists()]
    return max(written, default=max(numbers, default=0))


async def _send(
    request: web.Request,
    response: web.StreamResponse,
    control: Control,
    job: Job,
    number: int,
    path: Path,
    offset: int,
    *,
    follow: bool,
) -> None:
    over_for = 0.0
    while True:
        # Asked before the file is read: what was written until then is read below.
        over = not follow or _over(control, job, number)
        piece = await asyncio.to_thread(_read, path, offset)
        if piece:
            await response.write(piece)
            offset += len(piece)
            continue
        if not follow or (over and over_for >= _GRACE_S):
            return
        if request.transport is None or request.transport.is_closing() or await pause(control, _LOOK_S):
            return
        over_for = over_for + _LOOK_S if over else 0.0


def _over(control: Control, job: Job, number: int) -> bool:
    """Whether the attempt writes no more. One that has left the world ended long ago."""
    world = control.recorder.world
    current = world.jobs.get(job.id)
    if current is None or current.outcome is not None:
        return True
    attempt = next((a for a in world.attempts.values() if a.job_id == job.id and a.number == number), None)
    return attempt is None or attempt.state is AttemptState.ENDED


def _read(path: Path, offset: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(descriptor, _PIECE, offset)
    finally:
        os.close(descriptor)
