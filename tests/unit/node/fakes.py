"""A daemon and a metadata service to run real agents against: real TLS and HTTP on loopback, faults to order."""

from __future__ import annotations

import contextlib
import datetime as dt
import email.utils
import functools
import hashlib
import http.server
import io
import json
import ssl
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@functools.lru_cache(maxsize=2)
def certificate(name: str = "spotd") -> tuple[str, str]:
    """A self-signed certificate and its key, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + dt.timedelta(days=1))  # the agent's clock may be wrong: validity must not matter
        .not_valid_after(now + dt.timedelta(days=2))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return cert.public_bytes(serialization.Encoding.PEM).decode(), private.decode()


def tar_of(files: dict[str, str]) -> bytes:
    """A tar archive of text files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            member.mode = 0o644
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    fake: Any

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients are killed and cut off on purpose here."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_args: Any) -> None:
        """Tests print nothing."""

    def body(self) -> bytes:
        """The request's body; short when the client broke off."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, value: Any = None, headers: dict[str, str] | None = None) -> None:
        """Send bytes as they are, anything else as JSON."""
        data = value if isinstance(value, bytes) else b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle_any(self) -> None:
        """Give the request to the fake."""
        self.close_connection = True
        self.server.fake.handle(self)

    do_GET = do_PUT = do_POST = handle_any  # noqa: N815 - named by http.server


class FakeDaemon:
    """The agents' API of docs/agent-protocol.md, with one instance, and what it heard.

    `down` answers 503 to the API (not to objects); `lose` counts answers of the API to swallow after their effect;
    `refuse_put` is asked before each PUT and may name a status.
    """

    def __init__(self) -> None:
        self.spec: dict[str, Any] = {
            "job": {"id": "job-1", "name": "demo"},
            "attempt": 3,
            "rank": 0,
            "num_nodes": 1,
            "setup": None,
            "run": "true",
            "hook": None,
            "env": {},
            "workdir": None,
            "checkpoint_dir": "ckpt",
            "resume": [],
            "resume_required": False,
            "watch": "none",
            "poll_s": 0.1,
            "heartbeat_s": 0.2,
            "notice_s": 20.0,
            "drain_reserve_s": 1.0,
            "idle_timeout_s": 900.0,
            "max_lifetime_s": 604800.0,
            "stop_when_unreachable_s": None,
        }
        self.gate = "open"
        self.drain: dict[str, Any] | None = None
        self.stop: str | None = None
        self.power_off = False
        self.resume: list[dict[str, str]] | None = None
        self.down = False
        self.lose = 0
        self.refuse_bootstrap: int | None = None
        self.refuse_put: Callable[[str], int | None] = lambda _path: None
        self.nonce: str | None = None
        self.messages: list[dict[str, Any]] = []
        self.received: list[dict[str, Any]] = []
        self.syncs: list[dict[str, Any]] = []
        self.logs = bytearray()
        self.objects: dict[str, bytes] = {}
        self.puts: list[str] = []
        self.lock = threading.RLock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.fake = self

    def start(self, directory: Path) -> None:
        """Serve over TLS; *directory* gets the key."""
        pem, key = certificate()
        path = directory / "daemon.pem"
        path.write_text(pem + key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        """Where the agent finds it."""
        return f"https://127.0.0.1:{self._server.server_address[1]}"

    def config(self, **changes: str) -> dict[str, str]:
        """The content of agent.json."""
        base = {"address": self.address, "certificate": certificate()[0], "instance": "instance-1"}
        return {**base, "bootstrap_credential": "bootstrap-secret", **changes}

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        """The messages of one type, each once."""
        with self.lock:
            return [message for message in self.messages if message["type"] == kind]

    def keep_checkpoint(self, name: str, files: dict[str, bytes], step: int) -> dict[str, str]:
        """Put a committed checkpoint into the store; its entry for `resume`."""
        for number, content in enumerate(files.values()):
            self.objects[f"/o/{name}/{number}"] = content
        manifest = {
            "format": 1,
            "job": "job-1",
            "checkpoint": name,
            "attempt": int(name[:5]),
            "sequence": int(name[6:]),
            "step": step,
            "name": None,
            "created_epoch": 1.0,
            "files": [
                {"path": p, "size": len(c), "sha256": hashlib.sha256(c).hexdigest(), "object": n, "mode": 0o644}
                for n, (p, c) in enumerate(files.items())
            ],
        }
        data = json.dumps(manifest).encode()
        self.objects[f"/o/{name}/manifest"] = data
        return {
            "checkpoint": name,
            "manifest_url": f"/o/{name}/manifest",
            "manifest_sha256": hashlib.sha256(data).hexdigest(),
        }

    def manifests(self) -> list[dict[str, Any]]:
        """The manifests in the store, oldest first."""
        with self.lock:
            return [json.loads(data) for key, data in sorted(self.objects.items()) if key.endswith("/manifest")]

    def handle(self, request: _Handler) -> None:
        """Answer one request."""
        parts = urlsplit(request.path)
        body = request.body()
        if parts.path.startswith("/o/"):
            self._object(request, parts.path, body)
            return
        if self.down:
            request.answer(503, {"error": {"code": "down", "message": "away"}})
            return
        with self.lock:
            status, value = self._api(request, parts.path, parse_qs(parts.query), body)
            if self.lose > 0:
                self.lose -= 1
                return
        request.answer(status, value)

    def _object(self, request: _Handler, path: str, body: bytes) -> None:
        with self.lock:
            if request.command == "GET":
                found = self.objects.get(path)
                request.answer(404 if found is None else 200, found)
                return
            status = self.refuse_put(path)
            if status is None and request.headers.get("If-None-Match") == "*" and path in self.objects:
                status = 412
            if status is None and len(body) == int(request.headers["Content-Length"]):
                self.objects[path] = body
                self.puts.append(path)
        if status is not None and status < 0:  # done, but the answer is lost
            self.objects[path] = body
            return
        request.answer(status or 200)

    def _api(self, request: _Handler, path: str, query: dict[str, list[str]], body: bytes) -> tuple[int, Any]:
        if path == "/v1/agent/bootstrap":
            return self._bootstrap(json.loads(body))
        if request.headers.get("Authorization") != "Bearer session-secret":
            return 401, {"error": {"code": "credential", "message": "who are you"}}
        if path == "/v1/agent/logs":
            if int(query["offset"][0]) != len(self.logs):
                return 409, {"offset": len(self.logs)}
            self.logs += body
            return 204, None
        if path == "/v1/agent/sign":
            wanted = json.loads(body)
            return 200, {"objects": {str(n): f"/o/{wanted['checkpoint']}/{n}" for n in wanted["objects"]}}
        return self._sync(json.loads(body))

    def _bootstrap(self, body: dict[str, Any]) -> tuple[int, Any]:
        if self.refuse_bootstrap is not None or body["credential"] != "bootstrap-secret":
            return self.refuse_bootstrap or 401, {"error": {"code": "no", "message": "no"}}
        if self.nonce not in (None, body["nonce"]):
            return 409, {"error": {"code": "nonce", "message": "used"}}
        self.nonce = body["nonce"]
        return 200, {"session": "session-secret", "spec": self.spec}

    def _sync(self, body: dict[str, Any]) -> tuple[int, Any]:
        self.syncs.append(body)
        self.received.extend(body["messages"])
        for message in body["messages"]:
            if message["seq"] == len(self.messages) + 1:
                self.messages.append(message)
        first = body["next_sequence"]
        uploads = [
            {
                "checkpoint": f"00003-{sequence:06d}",
                "sequence": sequence,
                "objects": [f"/o/00003-{sequence:06d}/{n}?signature=s" for n in range(body["objects_per_checkpoint"])],
                "manifest": f"/o/00003-{sequence:06d}/manifest?signature=s",
            }
            for sequence in (first, first + 1)
        ]
        answer = {
            "acknowledged": len(self.messages),
            "gate": self.gate,
            "drain": self.drain,
            "stop": self.stop,
            "power_off": self.power_off,
            "heartbeat_s": self.spec["heartbeat_s"],
            "uploads": uploads,
        }
        if self.resume is not None and body["state"] in ("booting", "ready"):
            answer["resume"] = self.resume
        return 200, answer


class FakeImds:
    """The metadata service, version 2. `paths` maps what follows ``/latest/meta-data/`` to a body; everything else is 404.

    `status` overrides every answer, `token_uses` lets tokens die after so many reads, `hang_s` delays answers, `date` is its clock.
    """

    def __init__(self) -> None:
        self.paths: dict[str, Any] = {}
        self.status: int | None = None
        self.token_uses: int | None = None
        self.hang_s = 0.0
        self.drip = False
        self.skew_s = 0.0
        self.tokens: dict[str, int] = {}
        self.requests: list[str] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.fake = self
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        """The value of AWS_EC2_METADATA_SERVICE_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def reclaim(self, seconds: float, action: str = "terminate") -> None:
        """Warn of a reclaim in *seconds*, by the service's own clock."""
        when = dt.datetime.fromtimestamp(time.time() + self.skew_s + seconds, dt.UTC)
        text = when.strftime("%Y-%m-%dT%H:%M:%SZ")
        self.paths["spot/instance-action"] = {"action": action, "time": text}

    def handle(self, request: _Handler) -> None:
        """Answer one request."""
        self.requests.append(f"{request.command} {request.path}")
        time.sleep(self.hang_s)
        if self.drip:
            with contextlib.suppress(OSError):
                for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 200:
                    request.wfile.write(bytes([byte]))
                    time.sleep(0.05)
            return
        headers = {"Date": email.utils.formatdate(time.time() + self.skew_s, usegmt=True)}
        # BaseHTTPRequestHandler would add a Date of its own first, and the first one counts.
        request.date_time_string = lambda timestamp=None: headers["Date"]  # type: ignore[method-assign]
        if self.status is not None:
            request.answer(self.status, b"<h1>no</h1>")
        elif request.command == "PUT":
            token = f"token-{len(self.tokens)}"
            self.tokens[token] = self.token_uses if self.token_uses is not None else 1 << 30
            request.answer(200, token.encode())
        else:
            self._read(request)

    def _read(self, request: _Handler) -> None:
        token = request.headers.get("X-aws-ec2-metadata-token", "")
        if self.tokens.get(token, 0) <= 0:
            request.answer(401, b"<h1>401 - Unauthorized</h1>")
            return
        self.tokens[token] -= 1
        value = self.paths.get(request.path.removeprefix("/latest/meta-data/"))
        if value is None:
            request.answer(404, b"<h1>404 - Not Found</h1>")
        else:
            request.answer(200, value)


def until(condition: Callable[[], Any], seconds: float = 15.0, what: str = "") -> Any:
    """Wait for something another process does; its value. Fails the test after *seconds*."""
    ends = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < ends, f"still waiting after {seconds} s: {what or condition}"
        time.sleep(0.02)


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[FakeDaemon]:
    """A running fake daemon."""
    daemon = FakeDaemon()
    daemon.start(directory)
    try:
        yield daemon
    finally:
        daemon.close()
