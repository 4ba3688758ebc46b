"""The same training without interruptions: at full pace, at low priority, nothing of spotd around it."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from spotd.cli.failure import FAILED, Failure
from spotd.demo import scene
from spotd.demo.daemon import environment

if TYPE_CHECKING:
    from spotd.demo.curtain import Curtain
    from spotd.demo.scene import Stage

_LOOK_S = 0.1


class Reference:
    """The run that the job's result is compared with."""

    def __init__(self, stage: Stage) -> None:
        command = ["nice", "-n", "19", *scene.command("--print-every", str(scene.STEPS), "--checkpoint-dir", "ckpt")]
        self._log = stage.reference / "train.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env=environment(stage),
                cwd=stage.reference,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self, curtain: Curtain) -> None:
        """Return when it is done. Failure when it went wrong."""
        while (code := self._process.poll()) is None:
            curtain.pause(_LOOK_S)
        if code != os.EX_OK:
            words = self._log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            raise Failure(f"the uninterrupted run ended with exit code {code}: {words[-1]}", FAILED)

    def end(self) -> None:
        """End it now."""
        self._process.kill()
        self._process.wait()
