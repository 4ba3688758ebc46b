"""How busy the GPUs are, where ``nvidia-smi`` can say so."""

from __future__ import annotations

import shutil
import subprocess
import threading

from spotd.node.clock import Clock

_EVERY_S = 30.0


class GpuMeter:
    """Asks in a thread of its own: ``nvidia-smi`` may hang for minutes on a sick driver, and the heartbeat must not."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._program = shutil.which("nvidia-smi")
        #: Mean utilisation of all GPUs in percent, None while unknown.
        self.utilisation: float | None = None

    def start(self) -> None:
        """Begin asking, if there is anybody to ask."""
        if self._program is not None:
            threading.Thread(target=self._loop, name="gpu", daemon=True).start()

    def _loop(self) -> None:
        never = threading.Event()
        while True:
            self.utilisation = self._ask()
            self._clock.wait(never, _EVERY_S)

    def _ask(self) -> float | None:
        command = [self._program or "nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        try:
            output = subprocess.run(command, capture_output=True, timeout=20.0, check=True, stdin=subprocess.DEVNULL).stdout
            numbers = [float(line) for line in output.decode("ascii", "replace").split()]
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
        return sum(numbers) / len(numbers) if numbers else None
