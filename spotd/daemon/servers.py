"""Both APIs in one event loop in a thread of its own: the command line's over a Unix socket, the agents' over TLS."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import logging
import os
import socket
import ssl
import stat
import threading
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

_log = logging.getLogger(__name__)


class CannotListen(Exception):
    """An address cannot be listened on; the message says which and why."""


@dataclass(frozen=True, slots=True)
class ControlEndpoint:
    """Where the command line finds the daemon."""

    runner: web.AppRunner
    path: Path
    group: str


@dataclass(frozen=True, slots=True)
class AgentEndpoint:
    """Where agents find the daemon: a socket that is bound already, so that its port is known before anything is launched."""

    runner: web.AppRunner
    sock: socket.socket
    tls: ssl.SSLContext


def bind(host: str, port: int) -> socket.socket:
    """A listening socket for the agents' API; port 0 takes a free one. CannotListen otherwise."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(1024)
    except OSError as error:
        sock.close()
        raise CannotListen(f"agent_api.listen = {host}:{port}: {error.strerror or error}") from error
    sock.settimeout(0)
    return sock


def bind_as_before(host: str, port: int, memory: Path) -> socket.socket:
    """The same, with port 0 meaning "the one we had": agents on running instances know no other address than the one they were started with."""
    if port != 0:
        return bind(host, port)
    try:
        before = int(memory.read_text("ascii"))
        sock = bind(host, before)
    except (OSError, ValueError):
        sock = bind(host, 0)
    except CannotListen as error:
        _log.warning("%s; agents that were started with this port cannot call until it is free and spotd is restarted", error)
        return bind(host, 0)
    memory.write_text(f"{sock.getsockname()[1]}\n", "ascii")
    return sock


class Servers:
    """Runs the event loop thread."""

    def __init__(self, control: ControlEndpoint, agents: AgentEndpoint) -> None:
        self._control = control
        self._agents = agents
        self._loop = asyncio.new_event_loop()
        self._ready: threading.Event = threading.Event()
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="apis", daemon=True)

    def start(self) -> None:
        """Listen. Returns when both are answered; raises CannotListen."""
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            raise self._problem

    def stop(self) -> None:
        """Finish requests under way (briefly), then close and remove the socket."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=15)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._open())
        except Exception as error:  # noqa: BLE001 - handed to start(), which raises it
            self._problem = error
            self._ready.set()
            return
        self._ready.set()
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._close())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _open(self) -> None:
        await self._control.runner.setup()
        await self._agents.runner.setup()
        path = self._control.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISSOCK(path.lstat().st_mode):
                    raise CannotListen(f"socket = {path}: there is a file that is no socket; remove it or choose another path")
                # The lock on the state directory is ours, so whoever left this socket is gone.
                path.unlink()
            # Created private, then opened to the group: there is no moment in which others could connect.
            before = os.umask(0o177)
            try:
                await web.UnixSite(self._control.runner, str(path)).start()
            finally:
                os.umask(before)
            self._share(path)
        except OSError as error:
            raise CannotListen(f"socket = {path}: {error.strerror or error}") from error
        await web.SockSite(self._agents.runner, self._agents.sock, ssl_context=self._agents.tls).start()

    def _share(self, path: Path) -> None:
        try:
            os.chown(path, -1, grp.getgrnam(self._control.group).gr_gid)
        except KeyError:
            _log.info("group %s does not exist; the socket keeps the daemon's own group", self._control.group)
        except PermissionError:
            _log.warning("the socket cannot be given to group %s: the daemon is not a member; it keeps its own group", self._control.group)
        path.chmod(0o660)

    async def _close(self) -> None:
        await self._control.runner.cleanup()
        await self._agents.runner.cleanup()
        with contextlib.suppress(FileNotFoundError):
            self._control.path.unlink()
