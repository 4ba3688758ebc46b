"""`/o/KEY`: what holders of signed addresses can do with the daemon's directories, and what nobody can."""

from __future__ import annotations

import asyncio
import hashlib
import io
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.contract.agent_world import START, Daemon

KEY = "jobs/j/checkpoints/00001-000001/0000"
LIMIT = 3 << 20


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon whose objects may have 3 MiB."""
    with Daemon(tmp_path, object_limit=LIMIT) as daemon:
        yield daemon
        assert not list((tmp_path / "objects" / ".incoming").iterdir())


def address(daemon: Daemon, method: str, key: str = KEY, seconds: float = 60) -> str:
    """A signed one."""
    return daemon.store.sign(method, key, START + timedelta(seconds=seconds))


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, LIMIT])
def test_objects_come_back_as_they_were_sent(daemon: Daemon, size: int) -> None:
    """PUT, HEAD, GET: the same bytes, their length, and their sha256 as ETag, also for pieces that do not fit."""
    body = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    etag = f'"{hashlib.sha256(body).hexdigest()}"'
    put = daemon.request("PUT", address(daemon, "PUT"), data=io.BytesIO(body))
    assert (put.status, put.headers["ETag"]) == (200, etag)
    head = daemon.request("HEAD", address(daemon, "HEAD"))
    assert (head.status, head.headers["Content-Length"], head.headers["ETag"]) == (200, str(size), etag)
    get = daemon.request("GET", address(daemon, "GET"))
    assert (get.status, get.content) == (200, body)


def test_objects_may_be_replaced_unless_create_only(daemon: Daemon) -> None:
    """`If-None-Match: *` never replaces; without it the last one wins."""
    create = {"If-None-Match": "*"}
    assert daemon.request("PUT", address(daemon, "PUT"), data=b"1", headers=create).status == 200
    assert daemon.request("PUT", address(daemon, "PUT"), data=b"2", headers=create).status == 412
    assert daemon.store.get(KEY) == b"1"
    assert daemon.request("PUT", address(daemon, "PUT"), data=b"3").status == 200
    assert daemon.store.get(KEY) == b"3"


def test_an_address_for_creating_never_replaces(daemon: Daemon) -> None:
    """What was signed create-only is create-only, with the header and without; nobody makes an ordinary address of it, or of it an ordinary one."""
    url = daemon.store.sign("PUT", KEY, START + timedelta(seconds=60), create_only=True)
    assert daemon.request("GET", url).status == 401
    assert daemon.request("PUT", url.replace("method=CREATE", "method=PUT"), data=b"0").status == 401
    assert daemon.request("PUT", address(daemon, "PUT").replace("method=PUT", "method=CREATE"), data=b"0").status == 401
    assert daemon.request("PUT", url, data=b"1").status == 200
    assert daemon.request("PUT", url, data=b"2").status == 412
    assert daemon.request("PUT", url, data=b"2", headers={"If-None-Match": "*"}).status == 412
    assert daemon.store.get(KEY) == b"1"


def test_one_of_two_creators_at_once_wins(daemon: Daemon) -> None:
    """Two create-only uploads at the same time: one is kept, the other hears 412."""
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("PUT", address(daemon, "PUT"), {"data": io.BytesIO(bytes([n]) * 300_000), "headers": {"If-None-Match": "*"}}) for n in range(4)
    ]
    assert sorted(answer.status for answer in daemon.together(*calls)) == [200, 412, 412, 412]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_absent_objects_are_404(daemon: Daemon, method: str) -> None:
    """A good signature for what is not there."""
    assert daemon.request(method, address(daemon, method)).status == 404
    assert daemon.request(method, address(daemon, method, "workdirs/" + "a" * 64)).status == 404


@pytest.mark.parametrize(
    "change",
    [
        lambda url: url.replace("0000", "0001"),
        lambda url: url.replace("method=GET", "method=PUT"),
        lambda url: url[:-1] + ("0" if url[-1] != "0" else "1"),
        lambda url: url.replace("expires=", "expires=9"),
        lambda url: url.replace("expires=", "expires=-"),
        lambda url: url.partition("?")[0],
        lambda url: url + "&method=GET",
        lambda url: url + "&signature=" + "0" * 64,
        lambda url: url.replace("/o/", "/o/../o/x/"),
        lambda url: url.replace("/o/jobs", "/o/%2e%2e/jobs"),
    ],
    ids=map(str, range(10)),
)
def test_changed_addresses_are_worth_nothing(daemon: Daemon, change: Any) -> None:
    """An address is good as it was signed and in no other form."""
    daemon.store.put(KEY, b"secret")
    good = address(daemon, "GET")
    assert daemon.request("GET", good).content == b"secret"
    answer = daemon.request("GET", change(good))
    assert answer.status in {401, 404}
    assert b"secret" not in answer.content


def test_a_signature_is_for_one_method(daemon: Daemon) -> None:
    """Who may read may not write, and the other way round."""
    daemon.store.put(KEY, b"old")
    assert daemon.request("PUT", address(daemon, "GET"), data=b"new").status == 401
    assert daemon.request("GET", address(daemon, "PUT")).status == 401
    assert daemon.request("HEAD", address(daemon, "GET")).status == 401
    assert daemon.store.get(KEY) == b"old"


def test_addresses_end(daemon: Daemon) -> None:
    """From its second of expiry on an address is worth nothing."""
    daemon.store.put(KEY, b"x")
    url = address(daemon, "GET", seconds=60)
    daemon.clock.step(59)
    assert daemon.request("GET", url).status == 200
    daemon.clock.step(1)
    assert daemon.request("GET", url).status == 401


@pytest.mark.parametrize("announced", [True, False])
def test_objects_over_the_limit_are_not_stored(daemon: Daemon, *, announced: bool) -> None:
    """413, whether the length was announced or found out."""

    async def pieces() -> Any:
        for _ in range(LIMIT // 65536 + 1):
            yield b"x" * 65536

    body: Any = io.BytesIO(b"x" * (LIMIT + 1)) if announced else pieces()
    assert daemon.request("PUT", address(daemon, "PUT"), data=body).status == 413
    assert daemon.store.list("") == []


@pytest.mark.parametrize("header", ["Content-Length: 3000000", "Transfer-Encoding: chunked"])
def test_an_upload_that_breaks_off_never_was(daemon: Daemon, header: str) -> None:
    """A connection lost in the middle of a body leaves nothing behind, and what was there stays."""
    daemon.store.put(KEY, b"old")
    piece = b"x" * 1_500_000
    sent = piece if "Length" in header else b"%x\r\n%b\r\n" % (len(piece), piece)
    with socket.create_connection(("127.0.0.1", daemon.port)) as caller:
        caller.sendall(f"PUT {address(daemon, 'PUT')} HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n".encode())

        async def send() -> None:
            loop = asyncio.get_running_loop()
            caller.setblocking(False)  # noqa: FBT003 - the socket's own word
            await loop.sock_sendall(caller, sent)

        daemon.run(send())
        incoming = daemon.directory / "objects" / ".incoming"
        daemon.until(lambda: any(path.stat().st_size >= 1 << 20 for path in incoming.iterdir()))
    daemon.until(lambda: not list(incoming.iterdir()))
    assert daemon.store.get(KEY) == b"old"


def test_only_its_own_directories_are_served(daemon: Daemon) -> None:
    """Archives of working directories and checkpoints are apart: no address of the one names a file of the other."""
    daemon.workdirs.put("a" * 64, b"archive")
    assert daemon.request("GET", address(daemon, "GET", "workdirs/" + "a" * 64)).content == b"archive"
    assert daemon.request("GET", address(daemon, "GET", "a" * 64)).status == 404
    assert daemon.store.list("") == []
