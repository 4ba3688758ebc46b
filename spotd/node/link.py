"""The heartbeat: say what is new, hear what to do. One thread, for the agent's whole life."""

from __future__ import annotations

import dataclasses
import math
import os
import threading
from typing import Any, Callable

from spotd.node import files
from spotd.node.backoff import Backoff
from spotd.node.clock import Clock
from spotd.node.journal import Journal
from spotd.node.spec import BadSpec, Resume, resume_entries
from spotd.node.voice import say
from spotd.node.web import Web, WebError


@dataclasses.dataclass(frozen=True)
class DrainOrder:
    """Checkpoint and stop within *seconds*."""

    id: str
    kind: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Answer:
    """The directives of one sync. *gate_open* only ever starts a job."""

    gate_open: bool = False
    drain: DrainOrder | None = None
    stop: str | None = None
    power_off: bool = False
    uploads: Any = None
    #: The committed checkpoints now, None where the daemon did not say: the old attempt may have saved since our bootstrap.
    resume: tuple[Resume, ...] | None = None

    @classmethod
    def parse(cls, raw: dict[str, Any]) -> Answer:
        """Read the answer; what is not understood is not obeyed."""
        drain = raw.get("drain")
        order = None
        if isinstance(drain, dict) and isinstance(drain.get("id"), str) and isinstance(drain.get("seconds"), (int, float)):
            order = DrainOrder(drain["id"], str(drain.get("kind")), max(0.0, float(drain["seconds"])))
        stop = raw.get("stop")
        return cls(
            raw.get("gate") == "open",
            order,
            str(stop) if stop is not None else None,
            raw.get("power_off") is True,
            raw.get("uploads"),
            _resume(raw.get("resume")),
        )


def _resume(raw: Any) -> tuple[Resume, ...] | None:
    try:
        return None if raw is None else resume_entries(raw)
    except BadSpec:
        return None


#: Messages that end an attempt: the daemon may end the instance as soon as it has heard one.
_ENDS = frozenset({"drained", "exited", "failed"})


class Link:
    """The session with the daemon. *report* gives state and progress at each call, *heard* takes each answer.

    *last_words* is called before an end is said: what must reach the daemon while there is an instance to send it from.
    """

    def __init__(
        self,
        web: Web,
        session: str,
        journal: Journal,
        clock: Clock,
        contact_file: str,
        heartbeat_s: float,
        report: Callable[[], dict[str, Any]],
        heard: Callable[[Answer], None],
    ) -> None:
        self._web = web
        self._session = session
        self._journal = journal
        self._clock = clock
        self._contact_file = contact_file
        self._heartbeat_s = heartbeat_s
        self._report = report
        self._heard = heard
        self.last_words: Callable[[], None] = lambda: None
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._problem = ""
        kept = (files.read_json(contact_file) or {}).get("contact_at")
        now = clock.monotonic()
        #: When the last answered request was *sent*: the daemon's view of us is at least that new.
        self.contact_at = min(float(kept), now) if isinstance(kept, (int, float)) else now
        self.failing = False

    def start(self) -> None:
        """Begin heartbeats."""
        threading.Thread(target=self._loop, name="link", daemon=True).start()

    def stop(self) -> None:
        """End heartbeats."""
        self._stop.set()
        self._wake.set()

    def wake(self) -> None:
        """There is something to say."""
        self._wake.set()

    def sync(self) -> bool:
        """One exchange; False when nothing was heard."""
        messages = self._journal.unacknowledged()
        if any(message["type"] in _ENDS for message in messages):
            self.last_words()
            messages = self._journal.unacknowledged()
        sent_at = self._clock.monotonic()
        report = self._report()
        request = {
            **report,
            "progress": {key: _sendable(value) for key, value in report["progress"].items()},
            "next_sequence": self._journal.get("next_sequence", 1),
            "objects_per_checkpoint": self._journal.get("objects_per_checkpoint", 16),
            "messages": messages,
        }
        try:
            answer = self._web.call("/v1/agent/sync", request, session=self._session, timeout=15.0)
            acknowledged = int(answer.get("acknowledged", 0))
            heartbeat = float(answer.get("heartbeat_s", self._heartbeat_s))
        except (WebError, OSError, ValueError, TypeError) as error:
            self.failing = True
            if str(error) != self._problem:
                self._problem = str(error)
                say(f"sync: {error}")
            return False
        self.failing, self._problem = False, ""
        self._touch(sent_at)
        self._journal.acknowledge(acknowledged)
        self._heartbeat_s = min(max(0.05, heartbeat), 3600.0)
        self._heard(Answer.parse(answer))
        return True

    def _touch(self, sent_at: float) -> None:
        self.contact_at = sent_at
        try:
            files.write_json(self._contact_file, {"contact_at": sent_at}, durable=False)
        except OSError as error:
            say(f"{os.path.basename(self._contact_file)}: {error}")

    def _loop(self) -> None:
        backoff = Backoff(0.25, 15.0)
        while not self._stop.is_set():
            self._wake.clear()
            try:
                answered = self.sync()
            except Exception as error:  # noqa: BLE001 - an agent that cannot speak any more would be replaced while its job runs
                say(f"sync: {type(error).__name__}: {error}")
                answered = False
            if answered:
                backoff.succeeded()
                self._clock.wait(self._wake, self._heartbeat_s)
            else:
                # Not woken early: what is new will not make a daemon answer that is away.
                self._clock.wait(self._stop, backoff.failed())


def _sendable(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
