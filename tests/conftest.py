"""What holds for every test: it needs no network, Hypothesis draws the same cases again, its folder names its kind."""

from __future__ import annotations

import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parent

# The fixed sample of `make test` is the same on every machine; `make test-full` draws anew, and more.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("full", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("ci")


def pytest_configure() -> None:
    """Processes that the tests start can be interrupted, also where this one cannot: in the background of a script, or under nohup.

    An ignored signal is inherited; one that is handled is not.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test by the folder it stands in, so that `-m unit` selects what tests/unit holds."""
    kinds = {marker.partition(":")[0] for marker in config.getini("markers")}
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in kinds:
            item.add_marker(folder)


class NetworkUse(AssertionError):
    """A test tried to reach another machine."""


def _stays_here(family: int, address: Any) -> bool:
    """Whether a socket address lies on this machine. Of names only localhost does: others are asked of the network."""
    if family not in (socket.AF_INET, socket.AF_INET6):
        return True
    host = address[0]
    if host in ("", "localhost", None):
        return True
    try:
        ip = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return ip.is_loopback or ip.is_unspecified


@pytest.fixture(scope="session")
def network_uses() -> Iterator[list[str]]:
    """Refuse, in this process, every connection that would leave the machine, and list what was refused."""
    refused: list[str] = []

    def guard(method: Callable[..., Any], address_of: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(sock: socket.socket, *args: Any) -> Any:
            address = address_of(*args)
            if not _stays_here(sock.family, address):
                refused.append(f"{method.__name__} to {address}")
                raise NetworkUse(f"A test tried to {method.__name__} to {address}. Tests must not need the network.")
            return method(sock, *args)

        return guarded

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guard(socket.socket.connect, lambda address: address))
        patch.setattr(socket.socket, "connect_ex", guard(socket.socket.connect_ex, lambda address: address))
        patch.setattr(socket.socket, "sendto", guard(socket.socket.sendto, lambda *args: args[-1]))
        yield refused


@pytest.fixture(autouse=True)
def _no_network(network_uses: list[str]) -> Iterator[None]:
    """Fail a test that tried to reach another machine, also when the code under test has swallowed the refusal."""
    network_uses.clear()
    yield
    assert not network_uses, f"This test tried to reach another machine: {'; '.join(network_uses)}."


@pytest.fixture(scope="session")
def shipped() -> Path:
    """Where policies/ and systemd/ are: in the checkout, or in share/spotd of the environment spotd is installed in."""
    checkout = TESTS.parent
    return checkout if (checkout / "policies").is_dir() else Path(sys.prefix, "share", "spotd")
