"""Archives of working directories: sent once per content, verified while they arrive, kept under their sha256 for the agents."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING

from aiohttp import web

from spotd.daemon.control import CONTROL
from spotd.daemon.control_errors import Denied, malformed, not_found
from spotd.daemon.http_body import body_pieces

if TYPE_CHECKING:
    from spotd.daemon.control import Arriving, WorkdirStore

_SHA256 = re.compile(r"[0-9a-f]{64}")
_GZIP = b"\x1f\x8b"


def is_sha256(text: str) -> bool:
    """Whether it is a sha256 as it is written here."""
    return _SHA256.fullmatch(text) is not None


def stored(store: WorkdirStore, sha256: str) -> bool:
    """Whether the archive is here."""
    try:
        store.open(sha256).close()
    except KeyError:
        return False
    return True


def _name(request: web.Request) -> str:
    sha256 = request.match_info["sha256"]
    if not is_sha256(sha256):
        raise malformed("an archive is named by its sha256: 64 lower-case hex digits")
    return sha256


async def look(request: web.Request) -> web.Response:
    """`GET /v1/workdirs/SHA256`: whether it is here, so that it need not be sent."""
    sha256 = _name(request)
    if not await asyncio.to_thread(stored, request.app[CONTROL].workdirs, sha256):
        raise not_found(f"the archive {sha256[:12]} is not here")
    return web.json_response({"sha256": sha256, "stored": True})


async def put(request: web.Request) -> web.Response:
    """`PUT /v1/workdirs/SHA256`, body: the tar.gz. 201 when it was new, 200 when it was here already; kept only if its sum is right."""
    control = request.app[CONTROL]
    control.identify(request)
    sha256 = _name(request)
    if await asyncio.to_thread(stored, control.workdirs, sha256):
        return web.json_response({"sha256": sha256, "stored": True, "new": False})
    arriving = await asyncio.to_thread(control.workdirs.receive, sha256)
    try:
        size = await _receive(request, arriving, control.workdir_limit)
        if size == 0 or arriving.sha256 != sha256:
            raise Denied(422, "wrong_sum", f"what came is not the archive {sha256[:12]}: its sha256 is {arriving.sha256[:12]}", "send it again")
        await asyncio.to_thread(arriving.commit)
    finally:
        with contextlib.suppress(OSError):
            await asyncio.to_thread(arriving.close)
    return web.json_response({"sha256": sha256, "stored": True, "new": True, "size_bytes": size}, status=201)


async def _receive(request: web.Request, arriving: Arriving, limit: int) -> int:
    size = 0
    async for piece in body_pieces(request, limit):
        if size == 0 and not piece.startswith(_GZIP[: len(piece)]):
            raise Denied(422, "not_gzip", "the body is not a tar.gz archive")
        size += len(piece)
        await asyncio.to_thread(arriving.write, piece)
    return size
