"""Answers that are kept for a while, each with the time it was asked for. What cannot be asked anew stays, and grows older."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from spotd.core.errors import ProviderError

Key = TypeVar("Key")
Value = TypeVar("Value")
#: Wall time, aware.
Now = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class Known(Generic[Value]):
    """An answer, and when its question was put."""

    value: Value
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class Terms:
    """How long answers are kept."""

    #: Not asked again before this age.
    fresh: timedelta
    #: After a failure, not asked again before this.
    retry: timedelta = timedelta(0)
    #: Not told any more from this age on.
    good: timedelta = timedelta.max


class Kept(Generic[Key, Value]):
    """Answers by question. Safe to use from several threads; two that ask at once both ask."""

    def __init__(self, now: Now, terms: Terms) -> None:
        self._now = now
        self._terms = terms
        self._lock = threading.Lock()
        self._known: dict[Key, Known[Value]] = {}
        self._failed: dict[Key, tuple[ProviderError, datetime]] = {}

    def due(self, key: Key) -> bool:
        """Whether it is time to ask."""
        now = self._now()
        with self._lock:
            known, failed = self._known.get(key), self._failed.get(key)
        if failed is not None:
            error, at = failed
            return now - at >= max(self._terms.retry, _wait_of(error))
        return known is None or now - known.seen_at >= self._terms.fresh

    def refresh(self, key: Key, ask: Callable[[], Value]) -> None:
        """Ask, if it is time. A ProviderError is remembered, not raised."""
        if not self.due(key):
            return
        asked_at = self._now()
        try:
            value = ask()
        except ProviderError as error:
            with self._lock:
                self._failed[key] = (error, asked_at)
            return
        with self._lock:
            self._failed.pop(key, None)
            self._known[key] = Known(value, asked_at)

    def known(self, key: Key) -> Known[Value] | None:
        """The answer, unless there is none that is still good."""
        with self._lock:
            known = self._known.get(key)
        return known if known is not None and self._now() - known.seen_at < self._terms.good else None

    def error(self, key: Key) -> ProviderError | None:
        """Why the last question was not answered; None if it was, or none was put."""
        with self._lock:
            failed = self._failed.get(key)
        return None if failed is None else failed[0]

    def get(self, key: Key, ask: Callable[[], Value]) -> Value:
        """The answer, asked for if it is time. Raises the ProviderError of a question never answered well."""
        self.refresh(key, ask)
        known = self.known(key)
        if known is not None:
            return known.value
        error = self.error(key)
        if error is None:
            raise AssertionError("a question was put: it was answered or it failed")
        raise error


def _wait_of(error: ProviderError) -> timedelta:
    """What the cloud itself says of when to ask again."""
    wait = getattr(error, "retry_after", None)
    return wait if isinstance(wait, timedelta) else timedelta(0)
