"""Copy the instance's log to the daemon, by offset, at a bounded rate."""

from __future__ import annotations

import json
import threading

from spotd.node.backoff import Backoff
from spotd.node.clock import Clock
from spotd.node.voice import say
from spotd.node.web import Refused, Web, WebError

_PIECE = 256 << 10  # the daemon's limit
_PAUSE_S = 0.25  # between full pieces: at most 1 MiB/s, so that logs never starve a checkpoint's upload
_IDLE_S = 0.5


class LogStream:
    """The daemon knows how much it has; what we believe is only a first guess that it corrects with 409."""

    def __init__(self, web: Web, session: str, path: str, clock: Clock) -> None:
        self._web = web
        self._session = session
        self._path = path
        self._clock = clock
        self._offset = 0
        self._sending = threading.Lock()
        self._stop = threading.Event()

    def start(self) -> None:
        """Begin copying."""
        threading.Thread(target=self._loop, name="logs", daemon=True).start()

    def stop(self) -> None:
        """End copying."""
        self._stop.set()

    def flush(self, seconds: float) -> None:
        """Copy what is left, for at most about *seconds*."""
        ends = self._clock.monotonic() + seconds
        try:
            while self._clock.monotonic() < ends and self.send(timeout=max(0.5, min(seconds, 5.0))):
                pass
        except (WebError, OSError):
            return

    def send(self, timeout: float = 15.0) -> int:
        """Copy one piece; its size, 0 when there is nothing new. Raises WebError, also when another thread has not ended its own in time."""
        if not self._sending.acquire(timeout=timeout):
            raise WebError("another piece of the log is on its way")
        try:
            return self._send(timeout)
        finally:
            self._sending.release()

    def _send(self, timeout: float) -> int:
        try:
            with open(self._path, "rb") as stream:
                stream.seek(self._offset)
                piece = stream.read(_PIECE)
        except FileNotFoundError:
            return 0
        if not piece:
            return 0
        headers = {
            "Authorization": f"Bearer {self._session}",
            "Content-Type": "application/octet-stream",
            "Content-Length": str(len(piece)),
        }
        try:
            with self._web.open("POST", f"/v1/agent/logs?offset={self._offset}", body=piece, headers=headers, timeout=timeout):
                self._offset += len(piece)
        except Refused as error:
            there = _offset(error)
            if there is None or there == self._offset:
                raise
            self._offset = there
        return len(piece)

    def _loop(self) -> None:
        backoff = Backoff(0.5, 30.0)
        while not self._stop.is_set():
            try:
                sent = self.send()
                backoff.succeeded()
                pause = _PAUSE_S if sent == _PIECE else _IDLE_S
            except (WebError, OSError):
                pause = backoff.failed()
            except Exception as error:  # noqa: BLE001 - logs are the least of an agent's duties and must not end the others
                say(f"logs: {type(error).__name__}: {error}")
                pause = backoff.failed()
            self._clock.wait(self._stop, pause)


def _offset(error: Refused) -> int | None:
    if error.status != 409:
        return None
    try:
        value = json.loads(error.body)
        offset = value.get("offset", value.get("error", {}).get("offset"))
        return int(offset) if offset is not None and int(offset) >= 0 else None
    except (ValueError, TypeError, AttributeError):
        return None
