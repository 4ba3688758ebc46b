"""HTTP for the agent: the daemon by its pinned certificate, stores by plain https. No proxies, no redirects, every wait bounded.

Plain http is spoken to one place only: a store of which the daemon says that ops chose to have it so.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import html
import http.client
import json
import os
import re
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

_ANSWER_LIMIT = 64 << 20  # bytes of a JSON answer; signed addresses for thousands of files come in one
_CHUNK = 256 << 10
# Where systems keep their authorities. Asked for only by a Python that was built for another system and finds none where it looks.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


class WebError(OSError):
    """No usable answer came: refused, timed out, broken off, or not HTTP. Whether the request had an effect is unknown."""


class Refused(WebError):
    """An answer came, and it was not the one hoped for."""

    def __init__(self, status: int, message: str, body: bytes = b"", code: str = "") -> None:
        """*message* is the server's sentence, *body* its whole answer, *code* the word an object store has for it."""
        super().__init__(f"HTTP {status}: {code + ': ' if code else ''}{message}")
        self.status = status
        self.body = body
        self.code = code


class _PinnedConnection(http.client.HTTPSConnection):
    """TLS that talks to the holder of exactly one certificate, whatever the host's name and the clock say."""

    def __init__(self, host: str, port: int | None, timeout: float, certificate: bytes) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = False
        # Not the chain but the certificate itself is compared, in connect(), before a byte of the request is sent.
        context.verify_mode = ssl.CERT_NONE
        super().__init__(host, port, timeout=timeout, context=context)
        self._certificate = certificate

    def connect(self) -> None:
        super().connect()
        shown = self.sock.getpeercert(binary_form=True) or b""
        if not hmac.compare_digest(shown, self._certificate):
            self.close()
            raise WebError("the daemon's certificate is not the pinned one")


class Web:
    """Requests to the daemon (addresses that begin with ``/``, or with the daemon's own address) and to object stores. Thread-safe."""

    def __init__(self, address: str, certificate: str) -> None:
        """*certificate* is PEM. Raises ValueError when it or the address is unusable."""
        self._address = address.rstrip("/")
        self._certificate = ssl.PEM_cert_to_DER_cert(certificate.strip())
        parts = urlsplit(self._address)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"address: {address!r} is not https://host:port")
        self._daemon = (parts.hostname, parts.port)
        self._plain: tuple[str, int | None] | None = None
        self._authorities: ssl.SSLContext | None = None

    def allow_plain(self, origin: str) -> None:
        """Take addresses of *origin*, ``http://host:port``, as well."""
        parts = urlsplit(origin)
        if parts.scheme == "http" and parts.hostname:
            self._plain = (parts.hostname, parts.port)

    def _connection(self, url: str, timeout: float) -> tuple[http.client.HTTPConnection, str]:
        parts = urlsplit(self._address + url if url.startswith("/") else url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host = parts.hostname or ""
        if parts.scheme == "https" and (host, parts.port) == self._daemon:
            return _PinnedConnection(host, parts.port, timeout, self._certificate), path
        if parts.scheme == "https":
            if self._authorities is None:
                self._authorities = _authorities()
            return http.client.HTTPSConnection(host, parts.port, timeout=timeout, context=self._authorities), path
        if parts.scheme == "http" and (host, parts.port) == self._plain:
            return http.client.HTTPConnection(host, parts.port, timeout=timeout), path
        raise WebError(f"not an address to talk to: {parts.scheme}://{host}")

    @contextlib.contextmanager
    def open(
        self,
        method: str,
        url: str,
        *,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 20.0,
    ) -> Iterator[http.client.HTTPResponse]:
        """One request; yields an answer of status 2xx to read from. Raises Refused for any other status, WebError where none came."""
        connection, path = self._connection(url, timeout)
        with contextlib.closing(connection):
            try:
                answer = _exchange(connection, method, path, body, dict(headers or {}))
                refusal = b"" if 200 <= answer.status < 300 else answer.read(_CHUNK)
            except WebError:
                raise
            except (http.client.HTTPException, OSError, UnicodeError) as error:
                raise WebError(f"{type(error).__name__}: {error}") from error
            if not 200 <= answer.status < 300:
                code, sentence = _said(refusal, answer.reason)
                raise Refused(answer.status, sentence, refusal, code)
            yield answer

    def call(self, url: str, message: Mapping[str, Any], *, session: str | None = None, timeout: float = 20.0) -> dict[str, Any]:
        """POST *message* as JSON and return the JSON object that comes back."""
        headers = {"Content-Type": "application/json"}
        if session is not None:
            headers["Authorization"] = f"Bearer {session}"
        body = json.dumps(message, allow_nan=False).encode("ascii")
        try:
            with self.open("POST", url, body=body, headers=headers, timeout=timeout) as answer:
                value = json.loads(_read(answer, _ANSWER_LIMIT))
        except ValueError as error:
            raise WebError(f"the answer to {url} is not JSON") from error
        if not isinstance(value, dict):
            raise WebError(f"the answer to {url} is not a JSON object")
        return value

    def fetch(self, url: str, path: str, *, timeout: float = 30.0, cancel: threading.Event | None = None) -> tuple[int, str]:
        """Download *url* into the new file *path*; its size and sha256. Raises WebError, also when *cancel* is set meanwhile."""
        digest = hashlib.sha256()
        size = 0
        with self.open("GET", url, timeout=timeout) as answer, open(path, "wb") as stream:
            while True:
                if cancel is not None and cancel.is_set():
                    raise WebError("cancelled")
                chunk = _read(answer, _CHUNK)
                if not chunk:
                    break
                digest.update(chunk)
                size += len(chunk)
                stream.write(chunk)
        return size, digest.hexdigest()

    def read(self, url: str, limit: int, *, timeout: float = 30.0) -> bytes:
        """Download at most *limit* bytes of *url*; more is a WebError."""
        with self.open("GET", url, timeout=timeout) as answer:
            data = _read(answer, limit + 1)
        if len(data) > limit:
            raise WebError(f"more than {limit} bytes")
        return data

    def put(self, url: str, body: bytes | Iterable[bytes], size: int, *, create_only: bool = False, timeout: float = 30.0) -> None:
        """Upload exactly *size* bytes."""
        headers = {"Content-Length": str(size)}
        if create_only:
            headers["If-None-Match"] = "*"
        with self.open("PUT", url, body=body, headers=headers, timeout=timeout) as answer:
            _read(answer, _CHUNK)


def _read(answer: http.client.HTTPResponse, size: int) -> bytes:
    try:
        return answer.read(size)
    except (http.client.HTTPException, OSError) as error:
        raise WebError(f"{type(error).__name__}: {error}") from error


def _exchange(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | Iterable[bytes] | None, headers: dict[str, str]
) -> http.client.HTTPResponse:
    """Send, and return the answer, also one that came before everything was sent: a store that refuses an upload reads no further."""
    # Apart from the rest: nothing may be read from somebody of whom it is not known yet who he is.
    connection.connect()
    try:
        connection.request(method, path, body=body, headers=headers)
    except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError) as error:
        try:
            return connection.getresponse()
        except (http.client.HTTPException, OSError):
            raise error from None
    return connection.getresponse()


def _authorities() -> ssl.SSLContext:
    """Whom the system trusts."""
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if not (paths.cafile or paths.capath):
        for bundle in _BUNDLES:
            if os.path.exists(bundle):
                context.load_verify_locations(bundle)
                break
    return context


def _said(body: bytes, otherwise: str) -> tuple[str, str]:
    """What a refusal says of itself: the code of an object store's (XML), and the sentence."""
    if body.lstrip()[:1] == b"<":
        text = body.decode("utf-8", "replace")
        code, sentence = _element(text, "Code", 100), _element(text, "Message", 200)
        return code, sentence or otherwise
    try:
        return "", str(json.loads(body)["error"]["message"])[:500]
    except (ValueError, KeyError, TypeError):
        return "", otherwise


def _element(text: str, name: str, limit: int) -> str:
    """Return the text of an element. Not by a parser: there are documents that keep one busy for ever."""
    found = re.search(f"<{name}>([^<]*)</{name}>", text)
    return "" if found is None else html.unescape(" ".join(found[1].split()))[:limit]
