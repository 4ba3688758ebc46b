"""The guard that keeps tests off the network is itself to be trusted."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

# Addresses set aside for documentation (RFC 5737, RFC 3849): no machine has them.
ELSEWHERE = [
    (socket.AF_INET, ("192.0.2.1", 9)),
    (socket.AF_INET6, ("2001:db8::1", 9)),
    (socket.AF_INET, ("example.org", 9)),
]


@pytest.mark.parametrize(("family", "address"), ELSEWHERE)
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_connections_to_other_machines_are_refused(family: int, kind: int, address: tuple[str, int], network_uses: list[str]) -> None:
    """Connecting and sending to another machine, by address or by name, is refused and remembered."""
    with socket.socket(family, kind) as sock:
        with pytest.raises(AssertionError, match="must not need the network"):
            sock.connect(address)
        with pytest.raises(AssertionError, match="must not need the network"):
            sock.connect_ex(address)
        with pytest.raises(AssertionError, match="must not need the network"):
            sock.sendto(b"x", address)
    assert len(network_uses) == 3
    network_uses.clear()


def test_connections_on_this_machine_are_let_through() -> None:
    """Loopback and Unix sockets are what the end-to-end tests are made of."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=5):
        pass
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"x")
        assert theirs.recv(1) == b"x"


def test_a_swallowed_refusal_still_fails_the_test(pytester: pytest.Pytester) -> None:
    """Code that takes the refusal for an outage and goes on does not hide it."""
    pytester.makeconftest((Path(__file__).parents[1] / "conftest.py").read_text(encoding="utf-8"))
    pytester.makepyfile("""
        import contextlib, socket

        def test_swallows():
            with socket.socket() as sock, contextlib.suppress(Exception):
                sock.connect(("192.0.2.1", 9))
    """)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*tried to reach another machine: connect to ('192.0.2.1', 9)*"])
