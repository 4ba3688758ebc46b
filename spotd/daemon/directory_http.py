"""`/o/KEY`: the daemon's directories over HTTP, for whoever holds a signed address.

A signature is for one method on one object until a time. Content is streamed both ways by threads, so that a slow disk or a large checkpoint
never delays a heartbeat; what breaks off on its way in was never there.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import IO, Any, TypeVar

from aiohttp import web

from spotd.core.object_key import InvalidKey, check_key
from spotd.daemon.agent_errors import Problem, not_found, too_large, unauthorized
from spotd.daemon.credentials import Credentials
from spotd.daemon.directory_store import CREATE, DirectoryStore, Incoming
from spotd.daemon.http_body import body_pieces
from spotd.ports import AlreadyExists, Clock

#: Handed to a thread at a time.
_PIECE = 1 << 20
_BINARY = "application/octet-stream"

_Result = TypeVar("_Result")


class ObjectsOverHttp:
    """Serves several directory stores, each below a prefix of the key; the one under "" takes what no other does."""

    def __init__(
        self,
        stores: Mapping[str, DirectoryStore],
        credentials: Credentials,
        clock: Clock,
        limit: int,
        threads: Executor,
    ) -> None:
        self._stores = stores
        self._credentials = credentials
        self._clock = clock
        self._limit = limit
        self._threads = threads

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """GET, HEAD or PUT an object."""
        method, key = self._authorized(request)
        prefix, _, rest = key.partition("/")
        store = self._stores.get(prefix) if rest else None
        if store is not None:
            key = rest
        else:
            store = self._stores.get("")
        if store is None:
            raise not_found()
        verbs: dict[str, Callable[[web.Request, DirectoryStore, str], Awaitable[web.StreamResponse]]]
        verbs = {"GET": self._get, "HEAD": self._head, "PUT": self._put, CREATE: self._create}
        return await verbs[method](request, store, key)

    def _authorized(self, request: web.Request) -> tuple[str, str]:
        """What may be done with which key, once the signature was found good for it."""
        try:
            key = check_key(request.match_info["key"])
            (method,) = request.query.getall("method")
            (expires,) = request.query.getall("expires")
            (signature,) = request.query.getall("signature")
            until = int(expires) if expires.isascii() and expires.isdecimal() and len(expires) <= 12 else 0
        except (InvalidKey, KeyError, ValueError):
            raise unauthorized() from None
        good = self._credentials.is_signature(method, key, until, signature)
        asked = "PUT" if method == CREATE else method
        if not good or asked != request.method or until <= self._clock.now().timestamp():
            raise unauthorized()
        return method, key

    async def _head(self, _request: web.Request, store: DirectoryStore, key: str) -> web.Response:
        try:
            info = await self._thread(store.head, key)
        except KeyError:
            raise not_found() from None
        headers = {"Content-Length": str(info.size), "Content-Type": _BINARY}
        if info.sha256 is not None:
            headers["ETag"] = f'"{info.sha256}"'
        return web.Response(headers=headers)

    async def _get(self, request: web.Request, store: DirectoryStore, key: str) -> web.StreamResponse:
        try:
            stream = await self._thread(store.open, key)
        except KeyError:
            raise not_found() from None
        with stream:
            return await self._send(request, stream)

    async def _send(self, request: web.Request, stream: IO[bytes]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": _BINARY})
        left = response.content_length = os.fstat(stream.fileno()).st_size
        await response.prepare(request)
        while left:
            piece = await self._thread(stream.read, min(_PIECE, left))
            if not piece:
                # Too late to say so otherwise: a body that breaks off is not taken for whole.
                raise ConnectionAbortedError("the object shrank while it was sent")
            left -= len(piece)
            await response.write(piece)
        await response.write_eof()
        return response

    async def _put(self, request: web.Request, store: DirectoryStore, key: str) -> web.Response:
        create_only = request.headers.get("If-None-Match", "").strip() == "*"
        return await self._write(request, store, key, create_only=create_only)

    async def _create(self, request: web.Request, store: DirectoryStore, key: str) -> web.Response:
        """As the address says, whatever the headers say."""
        return await self._write(request, store, key, create_only=True)

    async def _write(self, request: web.Request, store: DirectoryStore, key: str, *, create_only: bool) -> web.Response:
        if request.content_length is not None and request.content_length > self._limit:
            raise too_large(self._limit)
        if create_only and await self._exists(store, key):
            raise _exists_already()
        incoming = await self._thread(store.receive, key)
        try:
            await self._receive(request, incoming)
            await self._thread(lambda: incoming.commit(create_only=create_only))
        except AlreadyExists:
            raise _exists_already() from None
        finally:
            # Not in a thread: there may be none any more, when a daemon that stops breaks an upload off.
            incoming.close()
        return web.Response(headers={"ETag": f'"{incoming.sha256}"'})

    async def _receive(self, request: web.Request, incoming: Incoming) -> None:
        waiting = bytearray()
        async for piece in body_pieces(request, self._limit):
            waiting += piece
            if len(waiting) >= _PIECE:
                await self._thread(incoming.write, bytes(waiting))
                waiting.clear()
        await self._thread(incoming.write, bytes(waiting))

    async def _exists(self, store: DirectoryStore, key: str) -> bool:
        try:
            stream = await self._thread(store.open, key)
        except KeyError:
            return False
        stream.close()
        return True

    async def _thread(self, function: Callable[..., _Result], *args: Any) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)


def _exists_already() -> Problem:
    return Problem(412, "exists", "There is an object in this place already.")


def etag_of(content: bytes) -> str:
    """The ETag of a body at hand."""
    return f'"{hashlib.sha256(content).hexdigest()}"'
