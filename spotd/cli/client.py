"""HTTP to the daemon over its Unix socket. Standard library only: `spotd jobs` should start as fast as `ls`."""

from __future__ import annotations

import http.client
import json
import socket
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlencode

from spotd.cli.failure import WRONG, Failure
from spotd.cli.refusal import Away, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: For an answer: the daemon answers at once, or says that it cannot.
_TIMEOUT_S = 60.0
_PIECE = 64 * 1024


class _UnixConnection(http.client.HTTPConnection):
    """HTTP/1.1 over AF_UNIX."""

    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("spotd", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """As in the base class."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(self.timeout)
        try:
            sock.connect(self._path)
        except BaseException:
            sock.close()
            raise
        self.sock = sock


class Client:
    """One daemon. Each call is a connection of its own."""

    def __init__(self, path: str) -> None:
        self.path = path

    def get(self, path: str, query: Mapping[str, Any] | None = None, repeated: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
        """The JSON of an address."""
        return self._json("GET", _address(path, query, repeated))

    def post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Send JSON, get JSON."""
        content = json.dumps(body).encode()
        return self._json("POST", path, content, {"Content-Type": "application/json", **(headers or {})})

    def upload(self, path: str, stream: IO[bytes], size: int) -> dict[str, Any]:
        """Send a file."""
        return self._json("PUT", path, stream, {"Content-Type": "application/gzip", "Content-Length": str(size)})

    def stream(self, path: str, query: Mapping[str, Any] | None = None) -> tuple[Mapping[str, str], Iterator[bytes]]:
        """The headers of an answer, and its bytes as they come, however long that takes."""
        connection, response = self._open("GET", _address(path, query, ()), None, {}, None)
        if response.status >= 400:
            with _closing(connection):
                raise self._refusal(response)
        return dict(response.headers.items()), self._pieces(connection, response)

    def _pieces(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> Iterator[bytes]:
        with _closing(connection):
            try:
                while piece := response.read1(_PIECE):
                    yield piece
            except (http.client.HTTPException, OSError) as error:
                raise self._away(error) from None

    def _json(self, method: str, address: str, body: bytes | IO[bytes] | None = None, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        connection, response = self._open(method, address, body, headers or {}, _TIMEOUT_S)
        with _closing(connection):
            if response.status >= 400:
                raise self._refusal(response)
            try:
                value = json.loads(response.read())
            except (http.client.HTTPException, OSError) as error:
                raise self._away(error) from None
            except ValueError:
                value = None
        if not isinstance(value, dict):
            raise Failure(f"what answers at {self.path} is not spotd: give the right socket with --socket or SPOTD_SOCKET")
        return value

    def _open(
        self, method: str, address: str, body: bytes | IO[bytes] | None, headers: Mapping[str, str], timeout: float | None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = _UnixConnection(self.path, timeout)
        try:
            try:
                connection.request(method, address, body, dict(headers))
            except (BrokenPipeError, ConnectionResetError):
                # The daemon may have refused a large body without reading it to the end: its answer is there.
                if connection.sock is None:
                    raise
                response = http.client.HTTPResponse(connection.sock, method=method)
                response.begin()
                return connection, response
            return connection, connection.getresponse()
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            raise self._away(error) from None

    def _refusal(self, response: http.client.HTTPResponse) -> Failure:
        try:
            error = dict(json.loads(response.read())["error"])
        except (http.client.HTTPException, OSError, ValueError, KeyError, TypeError):
            error = {"code": "unreadable", "message": f"the daemon answered {response.status} without saying why"}
        return Refusal(response.status, error)

    def _away(self, error: Exception) -> Away:
        start = "start it with `systemctl start spotd` or `spotd daemon --config …`"
        match error:
            case FileNotFoundError() | ConnectionRefusedError() | NotADirectoryError():
                return _said(f"spotd daemon is not running at {self.path}: {start}", "not_running")
            case PermissionError():
                return _said(f"you may not use {self.path}: ask to be added to its group (`ls -l {self.path}`), then log in again", "not_permitted")
            case TimeoutError():
                return _said(f"spotd daemon at {self.path} does not answer: look at its log, `journalctl -u spotd`", "silent")
            case OSError() if error.args and "too long" in str(error):
                return _said(f"{self.path} is too long for a socket: give another with --socket or SPOTD_SOCKET", "bad_socket")
            case _:
                return _said(f"spotd daemon at {self.path} went away while it answered: ask again, and look at `journalctl -u spotd`", "went_away")


class _closing:  # noqa: N801 - as contextlib.closing, whose import costs more than this
    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _said(message: str, code: str) -> Away:
    return Away(message, WRONG, {"code": code, "message": message})


def _address(path: str, query: Mapping[str, Any] | None, repeated: Iterable[tuple[str, str]]) -> str:
    pairs = [(key, _word(value)) for key, value in (query or {}).items() if value is not None and value is not False]
    pairs += list(repeated)
    return f"{path}?{urlencode(pairs)}" if pairs else path


def _word(value: object) -> str:
    return "1" if value is True else str(value)
