"""Errands that are run side by side under one deadline: the slowest decides how long it takes, not their number."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from spotd.core.errors import ProviderError
from spotd_aws.errors import translate

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
#: At a time. A sweep of all regions is below this.
_MOST = 64


def together(errands: Mapping[Key, Callable[[], Value]], stop: threading.Event, timeout_s: float) -> dict[Key, Value | ProviderError]:
    """What each errand returned or failed with. Those that are not back in time are missing, and `stop` is set for them to see.

    Threads of our own and not a pool's: a pool waits for its stragglers at the end of the process, and a region that hangs would hold up the daemon.
    """
    waiting: queue.SimpleQueue[tuple[Key, Callable[[], Value]]] = queue.SimpleQueue()
    finished: queue.SimpleQueue[tuple[Key, Value | ProviderError]] = queue.SimpleQueue()
    for pair in errands.items():
        waiting.put(pair)

    def work() -> None:
        while not stop.is_set():
            try:
                key, errand = waiting.get_nowait()
            except queue.Empty:
                return
            finished.put((key, _outcome(errand)))

    for number in range(min(len(errands), _MOST)):
        threading.Thread(target=work, name=f"aws-{number}", daemon=True).start()
    done: dict[Key, Value | ProviderError] = {}
    deadline = time.monotonic() + timeout_s
    try:
        while len(done) < len(errands):
            key, outcome = finished.get(timeout=max(deadline - time.monotonic(), 0.001))
            done[key] = outcome
    except queue.Empty:
        pass
    stop.set()
    return done


def _outcome(errand: Callable[[], Value]) -> Value | ProviderError:
    try:
        return errand()
    except Exception as error:  # noqa: BLE001 - it goes to whoever asked
        return translate(error, doing="asking AWS")
