"""HTTP for the agent: the daemon by its pinned certificate, stores by plain https. No proxies, no redirects, every wait bounded."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

_ANSWER_LIMIT = 64 << 20  # bytes of a JSON answer; signed addresses for thousands of files come in one
_CHUNK = 256 << 10


class WebError(OSError):
    """No usable answer came: refused, timed out, broken off, or not HTTP. Whether the request had an effect is unknown."""


class Refused(WebError):
    """An answer came, and it was not the one hoped for."""

    def __init__(self, status: int, message: str, body: bytes = b"") -> None:
        """*message* is the server's sentence, *body* its whole answer."""
        super().__init__(f"HTTP {status}: {message}")
        self.status = status
        self.body = body


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
    """Requests to the daemon (addresses that begin with ``/``, or with the daemon's own address) and to object stores."""

    def __init__(self, address: str, certificate: str) -> None:
        """*certificate* is PEM. Raises ValueError when it or the address is unusable."""
        self._address = address.rstrip("/")
        self._certificate = ssl.PEM_cert_to_DER_cert(certificate.strip())
        parts = urlsplit(self._address)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"address: {address!r} is not https://host:port")
        self._daemon = (parts.hostname, parts.port)

    def _connection(self, url: str, timeout: float) -> tuple[http.client.HTTPConnection, str]:
        parts = urlsplit(self._address + url if url.startswith("/") else url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host = parts.hostname or ""
        if parts.scheme == "https" and (host, parts.port) == self._daemon:
            return _PinnedConnection(host, parts.port, timeout, self._certificate), path
        if parts.scheme == "https":
            return http.client.HTTPSConnection(host, parts.port, timeout=timeout, context=ssl.create_default_context()), path
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
                connection.request(method, path, body=body, headers=dict(headers or {}))
                answer = connection.getresponse()
                refusal = b"" if 200 <= answer.status < 300 else answer.read(_CHUNK)
            except WebError:
                raise
            except (http.client.HTTPException, OSError, UnicodeError) as error:
                raise WebError(f"{type(error).__name__}: {error}") from error
            if not 200 <= answer.status < 300:
                raise Refused(answer.status, _sentence(refusal, answer.reason), refusal)
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


def _sentence(body: bytes, otherwise: str) -> str:
    try:
        return str(json.loads(body)["error"]["message"])[:500]
    except (ValueError, KeyError, TypeError):
        return otherwise
