"""What the agent knows and has said, on disk before anyone hears of it.

One file, so that a message and the fact it reports become durable together: after a `kill -9` nothing is said again under another number and
nothing that was acknowledged is forgotten.
"""

from __future__ import annotations

import threading
from typing import Any

from spotd.node import files
from spotd.node.clock import Clock
from spotd.node.voice import say

_BATCH = 100  # messages in one request; keeps its body far below the 1 MiB limit of docs/agent-protocol.md


class Journal:
    """Numbered messages waiting for their acknowledgement, and named facts.

    Keys of facts that end in ``_at`` hold seconds of `Clock.monotonic`; after a reboot they are moved to the new boot's scale on loading.
    Thread-safe. A full disk does not raise: the journal goes on in memory, says so once on stderr, and writes at the next change.
    """

    def __init__(self, path: str, clock: Clock, boot_id: str, ballast: files.Ballast | None = None) -> None:
        """Load *path*, or start empty."""
        self._path = path
        self._clock = clock
        self._boot_id = boot_id
        self._ballast = ballast
        self._lock = threading.RLock()
        self._complained = False  # what is on disk is not the newest
        self._retry_at = 0.0
        stored = files.read_json(path) or {}
        if stored and stored.get("boot_id") != boot_id:
            slept = max(0.0, clock.epoch() - float(stored["written_epoch"]))
            stored = _shifted(stored, clock.monotonic() - slept - float(stored["written_at"]))
        self._facts: dict[str, Any] = stored.get("facts", {})
        self._messages: list[dict[str, Any]] = stored.get("messages", [])
        self._said: list[str] = stored.get("said", [])
        self._next_seq: int = stored.get("next_seq", 1)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the fact *name*."""
        with self._lock:
            return self._facts.get(name, default)

    def put(self, **facts: Any) -> None:
        """Record *facts* (JSON values)."""
        with self._lock:
            self._facts.update(facts)
            self._write()

    def say(self, kind: str, fields: dict[str, Any], *, once: str | None = None, **facts: Any) -> bool:
        """Queue a message of type *kind* and record *facts* with it; False if a message with the same *once* was ever queued."""
        with self._lock:
            if once is not None and once in self._said:
                return False
            if once is not None:
                self._said.append(once)
            self._messages.append({"seq": self._next_seq, "type": kind, "fields": fields, "said_at": self._clock.monotonic()})
            self._next_seq += 1
            self._facts.update(facts)
            self._write()
            return True

    def has_said(self, once: str) -> bool:
        """Whether a message was queued under *once*."""
        with self._lock:
            return once in self._said

    def unacknowledged(self) -> list[dict[str, Any]]:
        """Return the oldest messages not yet acknowledged, as the wire wants them."""
        with self._lock:
            now = self._clock.monotonic()
            return [
                {"seq": m["seq"], "type": m["type"], "age_s": round(max(0.0, now - m["said_at"]), 3), **m["fields"]} for m in self._messages[:_BATCH]
            ]

    def acknowledge(self, seq: int) -> None:
        """Forget the messages up to *seq*."""
        with self._lock:
            rest = [m for m in self._messages if m["seq"] > seq]
            if len(rest) != len(self._messages):
                self._messages = rest
                self._write()

    def retry(self) -> None:
        """Write again what could not be written, once a second at most. Call it often."""
        with self._lock:
            if self._complained and self._clock.monotonic() >= self._retry_at:
                self._write()

    def make_room(self, error: OSError) -> bool:
        """Give back the disk kept for this, if *error* says that the disk is full; whether another try may work."""
        return self._ballast is not None and self._ballast.release(error)

    def _write(self) -> None:
        value = {
            "boot_id": self._boot_id,
            "written_at": self._clock.monotonic(),
            "written_epoch": self._clock.epoch(),
            "facts": self._facts,
            "messages": self._messages,
            "said": self._said,
            "next_seq": self._next_seq,
        }
        try:
            try:
                files.write_json(self._path, value)
            except OSError as error:
                if not self.make_room(error):
                    raise
                files.write_json(self._path, value)
            self._complained = False
        except OSError as error:
            if not self._complained:
                say(f"cannot write {self._path}: {error}; going on in memory")
            self._complained = True
            self._retry_at = self._clock.monotonic() + 1.0


def _shifted(value: Any, by: float, key: str = "") -> Any:
    """Return *value* with *by* added to every number under a key that ends in ``_at``."""
    if isinstance(value, dict):
        return {name: _shifted(item, by, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_shifted(item, by) for item in value]
    if key.endswith("_at") and isinstance(value, (int, float)):
        return value + by
    return value
