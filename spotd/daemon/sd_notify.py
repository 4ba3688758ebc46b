"""Tell systemd that we are ready, alive or stopping (sd_notify(3)): one datagram to the socket it names, nothing without one."""

from __future__ import annotations

import os
import socket


def sd_notify(state: str) -> None:
    """Send e.g. `READY=1`. Errors are ignored: being supervised is not what the daemon is for."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    # A leading @ names a socket of the abstract namespace.
    path = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.connect(path)
            channel.sendall(state.encode())
    except OSError:
        return


def watchdog_seconds() -> float | None:
    """How often systemd wants a sign of life, halved as its manual advises; None when it wants none."""
    text = os.environ.get("WATCHDOG_USEC", "")
    return int(text) / 2_000_000 if text.isdigit() and int(text) > 0 else None
