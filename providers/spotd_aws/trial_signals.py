"""Ctrl-C and its kind: the test ends, what it made is removed, and that is not to be interrupted."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP are taken for Ctrl-C: whoever is told to end removes his instances first. Once: the second is pressed while he does."""
    pressed = threading.Event()

    def interrupt() -> None:
        if not pressed.is_set():
            pressed.set()
            raise KeyboardInterrupt

    with _handled(interrupt):
        yield


@contextlib.contextmanager
def not_interruptible(say_so: Callable[[str], None]) -> Iterator[None]:
    """While things are removed, who presses Ctrl-C is asked to wait."""
    with _handled(lambda: say_so("still removing what was made; please wait")):
        yield


@contextlib.contextmanager
def _handled(handle: Callable[[], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda _number, _frame: handle()) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
