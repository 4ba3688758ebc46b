"""Reading request bodies that anybody may send: bounded in size and in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

from spotd.daemon.agent_errors import Problem, malformed, too_large

#: Between two pieces of a body: who is slower than this has gone, or wants to hold a connection.
_STALL_S = 60.0


async def read_body(request: web.Request, limit: int) -> bytes:
    """The whole body. Raises a Problem for one over the limit, or one that does not come."""
    body = bytearray()
    async for piece in body_pieces(request, limit):
        body += piece
    return bytes(body)


async def body_pieces(request: web.Request, limit: int) -> AsyncIterator[bytes]:
    """The body piece by piece, to its end: one that breaks off raises ConnectionError instead of looking complete."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        # aiohttp would unpack it, whatever it grows to.
        raise malformed("Content-Encoding: bodies come as they are")
    length = request.content_length
    if length is not None and length > limit:
        raise too_large(limit)
    size = 0
    while True:
        try:
            async with asyncio.timeout(_STALL_S):
                piece = await request.content.readany()
        except TimeoutError:
            raise Problem(408, "timeout", "The body did not come.") from None
        except (ClientPayloadError, HttpProcessingError, web.RequestPayloadError) as error:
            raise ConnectionAbortedError("the body broke off") from error
        if not piece:
            break
        size += len(piece)
        if size > limit:
            raise too_large(limit)
        yield piece
    if length is not None and size != length:
        raise ConnectionAbortedError("the body broke off")
