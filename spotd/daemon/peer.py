"""Who is at the other end of the Unix socket: the kernel says, nobody can claim."""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spotd.daemon.control_errors import forbidden

if TYPE_CHECKING:
    from aiohttp import web

_CREDENTIALS = struct.Struct("=iII")


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that called."""

    uid: int
    gid: int
    #: The user's name on this host, or `uid-N` where the host knows none.
    name: str


def peer_of(request: web.Request) -> Peer:
    """The caller, by SO_PEERCRED. A connection that is no Unix socket is refused."""
    sock = request.transport.get_extra_info("socket") if request.transport is not None else None
    if sock is None or sock.family != socket.AF_UNIX:
        raise forbidden("the control API answers on its Unix socket only")
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, gid = _CREDENTIALS.unpack(raw)
    return Peer(uid, gid, user_name(uid))


def user_name(uid: int) -> str:
    """A user's name on this host."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


async def is_admin(peer: Peer, admin_group: str) -> bool:
    """Whether the caller may act on other people's jobs: root, or a member of the group. Looked up each time, so leaving it counts at once."""
    return await asyncio.to_thread(_is_admin, peer, admin_group)


def _is_admin(peer: Peer, admin_group: str) -> bool:
    if peer.uid == 0:
        return True
    try:
        admins = grp.getgrnam(admin_group).gr_gid
    except KeyError:
        return False
    try:
        return admins in os.getgrouplist(peer.name, peer.gid)
    except (OSError, KeyError):
        return admins == peer.gid
