"""The metadata server of one instance, speaking IMDSv2 (facts/reclaim.md §1.2, §1.3).

`Metadata` answers requests and is pure but for its clock; `serve` puts it on a port of the loopback interface. User
data is not served: it holds a credential, and the boot script has been handed to the machine already.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from typing_extensions import override

from spotd.core.offer import Market
from spotd_local.record import Record

_TTL = "X-aws-ec2-metadata-token-ttl-seconds"
_TOKEN = "X-aws-ec2-metadata-token"  # noqa: S105 - the name of a header
_MAX_TTL = 21_600
_PHRASES = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back: errors are small XHTML pages, never JSON."""

    status: int
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)


def _error(status: int) -> Reply:
    title = f"{status} - {_PHRASES[status]}"
    page = (
        '<?xml version="1.0" encoding="iso-8859-1"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN"\n'
        '\t"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">\n<html xmlns="http://www.w3.org/1999/xhtml" '
        f'xml:lang="en" lang="en">\n <head>\n  <title>{title}</title>\n </head>\n <body>\n  <h1>{title}</h1>\n'
        " </body>\n</html>\n"
    )
    return Reply(status, page, {"Content-Type": "text/html"})


@dataclass(slots=True)
class Metadata:
    """What an instance can ask about itself. `record` is replaced as the instance's state changes."""

    record: Record
    now: Callable[[], float] = time.monotonic
    _tokens: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def respond(self, method: str, path: str, headers: Mapping[str, str]) -> Reply:
        """Answer one request."""
        lower = {name.lower(): value for name, value in headers.items()}
        if method == "PUT":
            return self._issue(path, lower)
        if method not in {"GET", "HEAD"}:
            return _error(405)
        left = self._seconds_left(lower.get(_TOKEN.lower()))
        if left is None:
            return _error(401)  # HttpTokens=required: IMDSv1 is off
        body = self._read(path)
        if body is None:
            return _error(404)
        return Reply(200, body, {"Content-Type": "text/plain", _TTL: str(left)})

    def _issue(self, path: str, headers: Mapping[str, str]) -> Reply:
        """A token; refused through a proxy and under a versioned path, as the real one does."""
        if path != "/latest/api/token" or "x-forwarded-for" in headers:
            return _error(403)
        ttl = headers.get(_TTL.lower(), "")
        if not ttl.isascii() or not ttl.isdigit() or not 1 <= int(ttl) <= _MAX_TTL:
            return _error(400)
        token = secrets.token_urlsafe(42)
        now = self.now()
        with self._lock:
            self._tokens = {t: until for t, until in self._tokens.items() if until > now}
            self._tokens[token] = now + int(ttl)
        return Reply(200, token, {"Content-Type": "text/plain", _TTL: ttl})

    def _seconds_left(self, token: str | None) -> int | None:
        """How long a token is good for; None when it is not."""
        with self._lock:
            until = self._tokens.get(token or "", 0.0)
        left = until - self.now()
        return int(left) if left > 0 else None

    def _read(self, path: str) -> str | None:
        """The item at a path, or the names below it, or None."""
        parts = [part for part in path.partition("?")[0].split("/") if part]
        if not parts or parts[0] != "latest":
            return None
        items = self._items()
        name = "/".join(parts[1:])
        if name in items:
            return items[name]
        prefix = f"{name}/" if name else ""
        below = {key.removeprefix(prefix).partition("/")[::2] for key in items if key.startswith(prefix)}
        return "\n".join(sorted({head + ("/" if tail else "") for head, tail in below})) or None

    def _items(self) -> dict[str, str]:
        """Everything there is to read now."""
        record = self.record
        meta = {
            "instance-id": record.provider_id,
            "instance-type": record.instance_type,
            "instance-life-cycle": "spot" if record.market is Market.SPOT else "on-demand",
            "placement/availability-zone": record.zone,
            "placement/region": record.region,
            "events/maintenance/scheduled": "[]",
            "events/maintenance/history": "[]",
        }
        if record.mark is not None and record.mark.imds:
            at = _utc(record.mark.deadline)
            meta["spot/instance-action"] = json.dumps({"action": "terminate", "time": at})
            meta["spot/termination-time"] = at
        if record.rebalance_at is not None:
            meta["events/recommendations/rebalance"] = json.dumps({"noticeTime": _utc(record.rebalance_at)})
        identity = {
            "instanceId": record.provider_id,
            "region": record.region,
            "availabilityZone": record.zone,
            "instanceType": record.instance_type,
            "pendingTime": _utc(record.launched_at),
        }
        items = {f"meta-data/{name}": value for name, value in meta.items()}
        items["dynamic/instance-identity/document"] = json.dumps(identity)
        return items


def serve(metadata: Metadata) -> ThreadingHTTPServer:
    """Serve on a free port of the loopback interface, from a thread; `server_address` tells which."""

    class Handler(_Handler):
        answers = metadata

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="imds", daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    """Between sockets and `Metadata`. The `Date` header is real: agents measure deadlines against it."""

    protocol_version = "HTTP/1.1"
    server_version = "EC2ws"
    sys_version = ""
    timeout = 30
    answers: ClassVar[Metadata]

    def _answer(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if length.isdigit() and int(length) <= 4096:
            self.rfile.read(int(length))
        else:
            self.close_connection = True
        reply = self.answers.respond(self.command, self.path, dict(self.headers.items()))
        body = reply.body.encode()
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815 - the base class's names

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the requests carry tokens."""


def _utc(epoch: float) -> str:
    """An approximate UTC second, as IMDS gives times."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))
