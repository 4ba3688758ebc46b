"""What can be made to go wrong between a request and its answer."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from spotd.testing.fake_aws.wire import AwsError, Call

#: Services that AWS has once for all regions: a region that is gone does not take them along.
_GLOBAL = frozenset({"iam", "pricing", "sts"})
_EVERYWHERE = "*"


class Reset(Exception):
    """The connection breaks: no answer."""


@dataclass(slots=True)
class Held:
    """Answers that are kept back: their calls have been executed. Released, they are lost: the connections break."""

    arrived: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def wait(self, seconds: float) -> bool:
        """Until there is one, so many real seconds at most; whether there is."""
        return self.arrived.wait(seconds)


@dataclass(slots=True)
class _Refusal:
    region: str
    action: str
    error: AwsError
    times: int | None


@dataclass(slots=True)
class _Loss:
    region: str
    action: str
    times: int


@dataclass(frozen=True, slots=True)
class _Hold:
    region: str
    action: str
    held: Held


class Faults:
    """Every fault in force. An action is `RunInstances`, `sqs:ReceiveMessage`, `s3:*` or `*`; a region may be `*`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refusals: list[_Refusal] = []
        self._losses: list[_Loss] = []
        self._holds: list[_Hold] = []
        self._latency: dict[str, float] = {}
        self._broken: Counter[str] = Counter()
        self.closing = threading.Event()

    def refuse(self, region: str, action: str, error: AwsError, times: int | None) -> None:
        """Answer so, so many times (None: from now on)."""
        with self._lock:
            self._refusals.append(_Refusal(region, action, error, times))

    def allow(self, region: str, action: str) -> None:
        """Take back what was refused under exactly these names."""
        with self._lock:
            self._refusals = [one for one in self._refusals if (one.region, one.action) != (region, action)]

    def lose(self, region: str, action: str, times: int) -> None:
        """Execute, then break the connection."""
        with self._lock:
            self._losses.append(_Loss(region, action, times))

    @contextlib.contextmanager
    def hold(self, region: str, action: str) -> Iterator[Held]:
        """Execute, then say nothing until the context ends; then break the connections."""
        hold = _Hold(region, action, Held())
        with self._lock:
            self._holds.append(hold)
        try:
            yield hold.held
        finally:
            with self._lock:
                self._holds.remove(hold)
            hold.held.released.set()

    def latency(self, region: str, seconds: float) -> None:
        """Real seconds before every answer of a region; 0 for none."""
        with self._lock:
            self._latency[region] = seconds

    @contextlib.contextmanager
    def broken(self, region: str) -> Iterator[None]:
        """Connections of this region break before anything is executed."""
        with self._lock:
            self._broken[region] += 1
        try:
            yield
        finally:
            with self._lock:
                self._broken[region] -= 1

    def before(self, call: Call) -> None:
        """Called before execution. Raises AwsError or Reset."""
        regional = call.service not in _GLOBAL
        with self._lock:
            seconds = self._latency.get(call.region, 0.0) if regional else 0.0
            seconds = max(seconds, self._latency.get(_EVERYWHERE, 0.0))
        if seconds:
            self.closing.wait(seconds)
        with self._lock:
            if self._broken[_EVERYWHERE] or (regional and self._broken[call.region]):
                raise Reset
            for one in self._refusals:
                if one.times != 0 and _meant(one.region, one.action, call):
                    if one.times is not None:
                        one.times -= 1
                    raise one.error

    def after(self, call: Call) -> None:
        """Called between execution and answer. Raises Reset."""
        with self._lock:
            lost = next((one for one in self._losses if one.times > 0 and _meant(one.region, one.action, call)), None)
            if lost is not None:
                lost.times -= 1
            hold = next((one for one in self._holds if _meant(one.region, one.action, call)), None)
        if hold is not None:
            hold.held.arrived.set()
            while not hold.held.released.wait(0.05) and not self.closing.is_set():
                pass
        if lost is not None or hold is not None:
            raise Reset


def _meant(region: str, action: str, call: Call) -> bool:
    if region not in (_EVERYWHERE, call.region):
        return False
    service, colon, name = action.rpartition(":")
    return (not colon or service == call.service) and name in (_EVERYWHERE, call.action)
