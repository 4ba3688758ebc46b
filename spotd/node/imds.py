"""The AWS instance metadata service, version 2 (facts/reclaim.md §1.2, §1.3)."""

from __future__ import annotations

import calendar
import contextlib
import email.utils
import hashlib
import http.client
import json
import os
import socket
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from spotd.node.clock import Clock
from spotd.node.notices import Observation, Sighting

_DEFAULT = "http://169.254.169.254"
_TICK_S = 3.0  # a whole look, whatever the server does
_REQUEST_S = 1.0
_TTL_S = 3600
_RENEW_S = 15.0
_BODY_LIMIT = 64 << 10
#: Scheduled events that take the instance away from its job; `system-maintenance` may pass unnoticed and only warns.
_STOPPING = ("instance-stop", "instance-retirement", "instance-reboot", "system-reboot")


class MetadataUnknown(OSError):
    """The service gave no usable answer. That says nothing about reclaims."""


class ImdsWatcher:
    """Looks for reclaim, rebalance hint and scheduled maintenance. One look takes at most about three seconds."""

    source = "imds"

    def __init__(self, clock: Clock, assumed_s: float, base: str | None = None) -> None:
        """*assumed_s*: the notice's length where the service names no time that can be read."""
        parts = urlsplit(base or os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _DEFAULT)
        self._host = parts.hostname or "169.254.169.254"
        self._port = parts.port
        self._prefix = parts.path.rstrip("/")
        self._clock = clock
        self._assumed_s = assumed_s
        self._token: str | None = None
        self._token_ends = 0.0
        self._tick_ends = 0.0

    def look(self) -> Observation:
        """Ask once. Raises MetadataUnknown where there was no usable answer to the question that matters."""
        self._tick_ends = self._clock.monotonic() + _TICK_S
        warnings: list[Sighting] = []
        reclaim = self._read("spot/instance-action")
        if reclaim is not None:
            warnings.append(self._reclaim(*reclaim))
        complete = True
        # Asked after instance-action and never instead of it; a fault here must not hide a reclaim that was read.
        try:
            hint = self._read("events/recommendations/rebalance")
            if hint is not None:
                warnings.append(Sighting("rebalance", self.source, "rebalance", None, "rebalance", stops=False))
            warnings.extend(self._maintenance(self._read("events/maintenance/scheduled")))
        except MetadataUnknown:
            complete = False
        return Observation(tuple(warnings), complete)

    def _reclaim(self, body: bytes, date: float | None) -> Sighting:
        try:
            value = json.loads(body)
        except ValueError as error:
            raise MetadataUnknown("instance-action is not JSON") from error
        if not isinstance(value, dict) or not isinstance(value.get("action"), str):
            raise MetadataUnknown("instance-action names no action")
        action = value["action"][:100]
        # Hibernation begins with the notice (facts/reclaim.md §0.5).
        left = 0.0 if action == "hibernate" else self._left(_iso(value.get("time")), date)
        identity = hashlib.sha256(f"{action}\0{value.get('time')}".encode()).hexdigest()[:16]
        return Sighting("reclaim", self.source, action, self._clock.monotonic() + left, identity, stops=True)

    def _left(self, when: float | None, date: float | None) -> float:
        """Seconds until *when*, by the service's own clock: ours may be minutes off (facts/reclaim.md §5, 83)."""
        if when is None:
            return self._assumed_s
        return max(0.0, when - (self._clock.epoch() if date is None else date))

    def _maintenance(self, answer: tuple[bytes, float | None] | None) -> list[Sighting]:
        if answer is None:
            return []
        try:
            events = json.loads(answer[0])
        except ValueError as error:
            raise MetadataUnknown("scheduled maintenance is not JSON") from error
        found = []
        for event in events if isinstance(events, list) else ():
            if not isinstance(event, dict) or event.get("State") != "active":
                continue
            code = str(event.get("Code"))[:100]
            left = self._left(_english(event.get("NotBefore")), answer[1])
            identity = str(event.get("EventId") or code)[:100]
            found.append(Sighting("maintenance", self.source, code, self._clock.monotonic() + left, identity, stops=code in _STOPPING))
        return found

    def _read(self, path: str) -> tuple[bytes, float | None] | None:
        """Body and the server's time; None for 404, which is how a healthy service says "nothing" (facts/reclaim.md §0.6)."""
        for again in (False, True):
            status, body, date = self._request("GET", f"/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": self._fresh_token()})
            if status == 401 and not again:
                self._token = None  # expired or foreign: a new one and once more, now (§0.7)
                continue
            if status == 200:
                return body, date
            if status == 404:
                return None
            raise MetadataUnknown(f"{path}: HTTP {status}")
        raise MetadataUnknown(path)

    def _fresh_token(self) -> str:
        if self._token is None or self._clock.monotonic() > self._token_ends - _RENEW_S:
            status, body, _ = self._request("PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": str(_TTL_S)})
            if status != 200:
                raise MetadataUnknown(f"token: HTTP {status}")
            self._token = body.decode("ascii", "replace").strip()
            self._token_ends = self._clock.monotonic() + _TTL_S
        return self._token

    def _request(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, bytes, float | None]:
        left = self._tick_ends - self._clock.monotonic()
        if left <= 0:
            raise MetadataUnknown("the look took too long")
        connection = http.client.HTTPConnection(self._host, self._port, timeout=min(_REQUEST_S, left))
        # A server that drips single bytes never trips the socket's timeout; this does.
        guard = threading.Timer(min(_REQUEST_S, left) * 1.5, _cut, (connection,))
        guard.daemon = True
        try:
            with contextlib.closing(connection):
                guard.start()
                connection.request(method, self._prefix + path, headers=headers)
                answer = connection.getresponse()
                return answer.status, answer.read(_BODY_LIMIT), _http_date(answer.getheader("Date"))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise MetadataUnknown(f"{path}: {type(error).__name__}: {error}") from error
        finally:
            guard.cancel()


def _cut(connection: http.client.HTTPConnection) -> None:
    held = connection.sock
    if held is not None:
        with contextlib.suppress(OSError):
            held.shutdown(socket.SHUT_RDWR)


def _http_date(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, IndexError):
        return None


def _iso(text: Any) -> float | None:
    try:
        return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")))
    except (TypeError, ValueError):
        return None


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def _english(text: Any) -> float | None:
    """Return the time of ``21 Jan 2019 09:00:43 GMT``; not by strptime, whose month names follow the machine's locale."""
    try:
        day, month, year, clock, zone = text.split()
        hour, minute, second = (int(part) for part in clock.split(":"))
        if zone != "GMT":
            return None
        return float(calendar.timegm((int(year), _MONTHS.index(month.lower()) + 1, int(day), hour, minute, second)))
    except (AttributeError, TypeError, ValueError):
        return None
