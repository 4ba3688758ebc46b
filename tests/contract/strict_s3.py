"""S3 as it is: the fake account's, behind a gate that checks signed addresses as AWS does, which moto does not.

A signature covers method, path, query and the headers it names; an address ends; a header of Amazon's that is not signed is refused. Besides, the
gate keeps pages of lists short, and can be told what to answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from spotd.testing.fake_aws import FakeAws

#: Status and body.
Said = tuple[int, bytes]


def error(status: int, code: str, message: str = "The gate says so.") -> Said:
    """An answer as S3 gives it."""
    return status, f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'.encode()


class StrictS3:
    """A server in front of a fake account."""

    def __init__(self, aws: FakeAws, *, page: int = 1000) -> None:
        self._target = urlsplit(aws.endpoint).netloc
        self._secrets = {aws.environment()["AWS_ACCESS_KEY_ID"]: aws.environment()["AWS_SECRET_ACCESS_KEY"]}
        self._page = page
        #: How much later it is at S3 than here.
        self.later = timedelta()
        #: Asked first, with method, path and query: what to answer instead of S3; None: let it through.
        self.instead: Callable[[str, str, str], Said | None] = lambda _method, _path, _query: None
        self.requests: list[str] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.gate = self

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        """What a request gets."""
        path, _, query = target.partition("?")
        self.requests.append(f"{method} {path}")
        said = self.instead(method, path, query)
        if said is None and "X-Amz-Signature=" in query:
            said = self._refusal(method, path, query, headers)
        if said is not None:
            return *said, {"Content-Type": "application/xml"}
        if "list-type=2" in query:
            target += f"&max-keys={self._page}"
        connection = http.client.HTTPConnection(self._target, timeout=20)
        with contextlib.closing(connection):
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())

    def _refusal(self, method: str, path: str, query: str, headers: dict[str, str]) -> Said | None:
        """Why a signed address is refused; None where it is good."""
        fields = dict(parse_qsl(query, keep_blank_values=True))
        given = fields.pop("X-Amz-Signature")
        signed = fields["X-Amz-SignedHeaders"].split(";")
        key, *scope = fields["X-Amz-Credential"].split("/")
        if key not in self._secrets:
            return error(403, "InvalidAccessKeyId")
        if missing := [name for name in signed if name not in headers]:
            return error(403, "SignatureDoesNotMatch", f"{missing} was signed and not sent")
        if extra := [name for name in headers if name.startswith("x-amz-") and name not in signed]:
            return error(403, "AccessDenied", f"{extra} was sent and not signed")
        lines = [method, quote(unquote(path), safe="/~")]
        lines.append("&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in sorted(fields.items())))
        lines += [f"{name}:{' '.join(headers[name].split())}" for name in signed]
        lines += ["", ";".join(signed), "UNSIGNED-PAYLOAD"]
        text = "\n".join(["AWS4-HMAC-SHA256", fields["X-Amz-Date"], "/".join(scope), hashlib.sha256("\n".join(lines).encode()).hexdigest()])
        if not hmac.compare_digest(self._signature(key, scope, text), given):
            return error(403, "SignatureDoesNotMatch")
        since = datetime.strptime(fields["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if datetime.now(UTC) + self.later >= since + timedelta(seconds=int(fields["X-Amz-Expires"])):
            return error(403, "AccessDenied", "Request has expired")
        return None

    def _signature(self, key: str, scope: list[str], text: str) -> str:
        secret = f"AWS4{self._secrets[key]}".encode()
        for word in scope:
            secret = hmac.digest(secret, word.encode(), "sha256")
        return hmac.digest(secret, text.encode(), "sha256").hex()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    gate: StrictS3


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Tests print nothing."""

    def handle_any(self) -> None:
        """Give the request to the gate. Connections are not kept, so that none is left at the end."""
        self.close_connection = True
        headers = {name.lower(): value for name, value in self.headers.items()}
        if headers.pop("expect", "") == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        body = self.rfile.read(int(headers.get("content-length", "0")))
        status, content, answered = self.server.gate.answer(self.command, self.path, headers, body)
        self.send_response(status)
        for name, value in answered.items():
            if name.lower() not in {"content-length", "connection", "date", "server", "transfer-encoding"}:
                self.send_header(name, value)
        self.send_header("Content-Length", answered.get("Content-Length", str(len(content))) if self.command == "HEAD" else str(len(content)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = handle_any  # noqa: N815 - named by http.server
