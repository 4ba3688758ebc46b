"""What the agent takes from stores, and what it does not: over real HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spotd.node.web import Refused, Web, WebError
from tests.unit.node.fakes import certificate

_S3 = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code><Message>Request has\n expired &amp; more'
    + b"x" * 500
    + b"</Message><RequestId>1</RequestId></Error>"
)


def _web() -> Web:
    return Web("https://127.0.0.1:1", certificate()[0])


@contextmanager
def _answering(answer: bytes, *, reads: int, closes: bool = False) -> Iterator[str]:
    """A server that reads so many bytes of a request and answers; it then either closes, as stores do that refuse, or reads to the end."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(reads)
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(10)
                while not closes and connection.recv(1 << 20):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def _response(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 " + status.encode() + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def test_what_an_object_store_says_is_told_in_short() -> None:
    """S3 speaks XML: its code and its sentence, without line breaks and without end."""
    web = _web()
    with _answering(_response("403 Forbidden", _S3), reads=1 << 16) as origin:
        web.allow_plain(origin)
        with pytest.raises(Refused) as caught:
            web.read(f"{origin}/b/k", 10)

    assert (caught.value.status, caught.value.code) == (403, "AccessDenied")
    assert str(caught.value).startswith("HTTP 403: AccessDenied: Request has expired & more")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("body", [b"", b"<html><body>bad gateway</body></html>", b"{}", b"\xff\xfe", b'{"error": 3}'])
def test_refusals_without_a_sentence_have_their_reason(body: bytes) -> None:
    """Whatever a body holds, an error comes of it and nothing worse."""
    web = _web()
    with _answering(_response("502 Bad Gateway", body), reads=1 << 16) as origin:
        web.allow_plain(origin)
        with pytest.raises(Refused, match=r"^HTTP 502: Bad Gateway$"):
            web.read(f"{origin}/b/k", 10)


def test_plain_http_is_spoken_to_one_origin_only() -> None:
    """An address of another host or port, or any before the daemon has named one, is refused without a connection."""
    web = _web()
    with pytest.raises(WebError, match="not an address to talk to"):
        web.read("http://127.0.0.1:9/b/k", 10)
    web.allow_plain("http://127.0.0.1:9")
    for other in ("http://127.0.0.1:10/k", "http://127.0.0.1/k", "http://localhost:9/k", "ftp://127.0.0.1:9/k"):
        with pytest.raises(WebError, match="not an address to talk to"):
            web.read(other, 10)


def test_a_refusal_is_heard_also_when_the_upload_breaks_off() -> None:
    """A store that refuses an upload may stop to read: what it said first is still the answer, not the broken pipe."""
    web = _web()
    with _answering(_response("403 Forbidden", _S3), reads=1 << 12, closes=True) as origin:
        web.allow_plain(origin)
        with pytest.raises(Refused, match="AccessDenied"):
            web.put(f"{origin}/b/k", (b"x" * (1 << 16) for _ in range(1 << 10)), 1 << 26, timeout=10)
