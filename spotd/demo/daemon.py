"""The real daemon, as a process of its own: started, killed, started again, stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from spotd.cli.failure import FAILED, Failure
from spotd.cli.refusal import Away
from spotd.demo.leftovers import MARKER

if TYPE_CHECKING:
    from spotd.cli.client import Client
    from spotd.demo.curtain import Curtain
    from spotd.demo.scene import Stage

_STARTS_WITHIN_S = 30.0
_STOPS_WITHIN_S = 15.0
_LOOK_S = 0.05


def environment(stage: Stage) -> dict[str, str]:
    """Ours, without what would override the settings file, and with the mark by which leftovers are found."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("SPOTD_")}
    return {**kept, MARKER: str(stage.root)}


class Daemon:
    """`spotd daemon` on the demonstration's directory."""

    def __init__(self, stage: Stage, client: Client, curtain: Curtain) -> None:
        self._stage = stage
        self._client = client
        self._curtain = curtain
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process."""
        return None if self._process is None else self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, and return when it answers and knows prices."""
        command = [sys.executable, "-P", "-m", "spotd.cli.main", "daemon", "--config", str(self._stage.settings)]
        with self._stage.daemon_log.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal is for us to answer, in our order.
            self._process = subprocess.Popen(
                command,
                env=environment(self._stage),
                cwd=self._stage.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + _STARTS_WITHIN_S
        while not self._answers():
            if not self.alive:
                raise Failure(f"the daemon ended as it was started: {self._last_words()}", FAILED)
            if time.monotonic() > until:
                raise Failure(f"the daemon does not answer after {_STARTS_WITHIN_S:.0f} s: {self._last_words()}", FAILED)
            self._curtain.pause(_LOOK_S)

    def kill(self) -> None:
        """`kill -9`: no farewell."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> bool:
        """Ask it to stop; whether it did by itself."""
        if self._process is None:
            return True
        self._process.terminate()
        try:
            return self._process.wait(_STOPS_WITHIN_S) == 0
        except subprocess.TimeoutExpired:
            self.kill()
            return False

    def _answers(self) -> bool:
        try:
            return bool(self._client.get("/v1/offers")["offers"])
        except Away:
            return False

    def _last_words(self) -> str:
        lines = self._stage.daemon_log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
