"""HTTP: one port, every service. Connections stay open, broken ones are really broken."""

from __future__ import annotations

import contextlib
import email.utils
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

from spotd.testing.fake_aws.faults import Reset
from spotd.testing.fake_aws.wire import Answer

#: Answers a request: method, path with query, headers with their names in small letters, body. May raise Reset.
Respond = Callable[[str, str, dict[str, str], bytes], Answer]
_LONGEST_BODY = 1 << 31
_PATIENCE_S = 2.0


class Server(ThreadingHTTPServer):
    """Serves from its own threads until it is closed; then no connection is left."""

    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True

    def __init__(self, port: int, respond: Respond, now: Callable[[], datetime]) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.respond = respond
        self.now = now
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        self._busy: set[threading.Thread] = set()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, name="fake-aws", daemon=True)

    def start(self) -> None:
        """Serve from a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Close the port and every connection, and wait for the threads behind them."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        with self._open_lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            busy = list(self._busy)
        for thread in busy:
            thread.join(_PATIENCE_S)
        self.server_close()

    @override
    def process_request_thread(self, request: Any, client_address: Any) -> None:
        with self._open_lock:
            self._open.add(request)
            self._busy.add(threading.current_thread())
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._open_lock:
                self._open.discard(request)
                self._busy.discard(threading.current_thread())

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that the other side broke is nothing to speak of."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "FakeAWS"
    sys_version = ""
    timeout = 120
    disable_nagle_algorithm = True
    server: Server

    def _serve(self) -> None:
        body = self._body()
        if body is None:
            self.close_connection = True
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        headers: dict[str, str] = {}
        for name, value in self.headers.items():
            lower = name.lower()
            headers[lower] = f"{headers[lower]},{value}" if lower in headers else value
        try:
            answer = self.server.respond(self.command, self.path, headers, body)
        except Reset:
            self._break()
            return
        except Exception:  # noqa: BLE001 - a mistake in the fake must be seen, and must not look like AWS
            traceback.print_exc()
            answer = Answer(599, traceback.format_exc().encode(), {"Content-Type": "text/plain"})
        self._send(answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = _serve  # noqa: N815 - the base class's names

    def _body(self) -> bytes | None:
        """All of the request's body; None where its length makes no sense."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._chunks()
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > _LONGEST_BODY:
            return None
        return self.rfile.read(int(length))

    def _chunks(self) -> bytes | None:
        parts: list[bytes] = []
        while True:
            try:
                size = int(self.rfile.readline().split(b";")[0].strip(), 16)
            except ValueError:
                return None
            if size == 0:
                while self.rfile.readline().strip():
                    pass
                return b"".join(parts)
            parts.append(self.rfile.read(size))
            self.rfile.readline()

    def _send(self, answer: Answer) -> None:
        """In one piece: two would meet Nagle's algorithm and a late acknowledgement."""
        phrase = HTTPStatus(answer.status).phrase if answer.status in list(HTTPStatus) else "Fault"
        lines = [f"HTTP/1.1 {answer.status} {phrase}"]
        dropped = {"content-length", "transfer-encoding", "connection", "date", "server"}
        lines += [f"{name}: {value}" for name, value in answer.headers.items() if name.lower() not in dropped]
        length = str(len(answer.body))
        if self.command == "HEAD":  # the length is that of the body which a GET would have
            length = next((value for name, value in answer.headers.items() if name.lower() == "content-length"), "0")
        lines += [f"Content-Length: {length}", f"Date: {email.utils.format_datetime(self.server.now(), usegmt=True)}", "Server: AmazonEC2"]
        if self.close_connection:
            lines.append("Connection: close")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        self.wfile.write(head if self.command == "HEAD" else head + answer.body)

    def _break(self) -> None:
        """A reset, as a router in the way would send it."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: requests carry credentials."""
