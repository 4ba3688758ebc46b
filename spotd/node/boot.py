"""From an empty machine to the gate: working directory, newest checkpoint, setup. Each step is done once and may be begun again."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from spotd.node import workdir
from spotd.node.clock import Clock
from spotd.node.journal import Journal
from spotd.node.places import Places
from spotd.node.restore import Cancelled, Restorer
from spotd.node.spec import Resume, Spec
from spotd.node.task import Task
from spotd.node.web import Web


class Failed(Exception):
    """The job cannot be started here."""

    def __init__(self, phase: str, code: int | None, detail: str) -> None:
        """*phase* and *code* as in the message `failed`."""
        super().__init__(detail)
        self.phase = phase
        self.code = code
        self.detail = detail


class Boot:
    """Runs in a thread of its own until it is `over`."""

    def __init__(self, web: Web, session: str, spec: Spec, places: Places, journal: Journal, clock: Clock, setup: Task) -> None:
        self._resume: tuple[Resume, ...] = spec.resume
        self._web = web
        self._session = session
        self._spec = spec
        self._places = places
        self._journal = journal
        self._clock = clock
        self._setup = setup
        self._cancel = threading.Event()
        self._done = threading.Event()
        self.failed: Failed | None = None

    @property
    def over(self) -> bool:
        """Whether the thread has come to its end, well or badly (`failed`)."""
        return self._done.is_set()

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._run, name="boot", daemon=True).start()

    def resumed(self) -> None:
        """An earlier agent has been through all steps here: `over` from the beginning."""
        self._done.set()

    def hear(self, resume: tuple[Resume, ...]) -> None:
        """Take the list of committed checkpoints as it is now."""
        self._resume = resume

    def offer(self, resume: tuple[Resume, ...]) -> bool:
        """Take the list of committed checkpoints as it is now; True while the newest of them has yet to be restored.

        The daemon starts a replacement while the old instance saves, so the checkpoint to resume from may be committed after our bootstrap.
        """
        self.hear(resume)
        newest = resume[0].checkpoint if resume else None
        if not self.over or self.failed is not None:
            return True
        if newest is None or newest == (self._journal.get("restored") or {}).get("asked"):
            return False
        self._done.clear()
        threading.Thread(target=self._run, args=(("restore", self._restore),), name="restore", daemon=True).start()
        return True

    def cancel(self) -> None:
        """End it soon; a running setup is ended with all its processes."""
        self._cancel.set()
        self._setup.end(1.0)

    def _run(self, *again: tuple[str, Callable[[], None]]) -> None:
        """Take every step that was not taken, or *again* one that was."""
        phase = "workdir"
        try:
            for phase, step in again or (("workdir", self._workdir), ("restore", self._restore), ("setup", self._run_setup)):
                begun = self._clock.monotonic()
                if not self._cancel.is_set() and (again or self._journal.get(f"{phase}_s") is None):
                    step()
                    if not self._cancel.is_set():
                        self._journal.put(**{f"{phase}_s": round(self._clock.monotonic() - begun, 3)})
        except Failed as error:
            self.failed = error
        except Cancelled:
            self.failed = Failed("agent", None, "cancelled")
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the daemon must hear that this instance will not get ready
            self.failed = Failed(phase, None, f"{type(error).__name__}: {error}")
        finally:
            self._done.set()

    def _workdir(self) -> None:
        places, spec = self._places, self._spec
        if spec.workdir_url is None:
            os.makedirs(places.work, exist_ok=True)
        else:
            try:
                if not workdir.fetch(self._web, spec.workdir_url, spec.workdir_sha256, places.archive, self._clock, self._cancel):
                    raise Cancelled
                workdir.unpack(places.archive, places.work)
            except workdir.BadWorkdir as error:
                raise Failed("workdir", None, str(error)) from error
            os.unlink(places.archive)
        self._hand_over(places.work)

    def _restore(self) -> None:
        directory = self._places.checkpoints(self._spec)
        if directory is None:
            return
        os.makedirs(directory, exist_ok=True)
        resume = self._resume
        placed = os.path.join(self._places.agent, "placed.json")
        restored = Restorer(self._web, self._session, directory, placed, self._clock, self._cancel).newest(resume)
        # A checkpoint that was committed since our bootstrap must not be passed over either.
        required = self._spec.resume_required or (resume is not self._spec.resume and resume)
        if restored.checkpoint is None and required:
            broken = "; ".join(restored.skipped) or "the daemon named none"
            raise Failed("restore", None, f"no checkpoint verifies, and this job had some: {broken}")
        self._hand_over(directory)
        path = "" if restored.checkpoint is None else os.path.normpath(os.path.join(directory, restored.name or "."))
        self._journal.put(
            restored={
                "asked": resume[0].checkpoint if resume else None,
                "checkpoint": restored.checkpoint,
                "step": restored.step,
                "path": path,
                "skipped": list(restored.skipped),
            }
        )

    def _run_setup(self) -> None:
        if self._spec.setup is None:
            return
        environment = self._places.environment(self._spec, os.environ, (self._journal.get("restored") or {}).get("path", ""))
        self._setup.start(self._spec.setup, self._places.work, environment, log=self._places.log, user=self._places.user)
        while True:
            ended = self._setup.exit()
            if ended is not None:
                break
            self._clock.wait(self._cancel, 0.1)
            if self._cancel.is_set():
                # The event would end every further wait at once.
                self._clock.wait(threading.Event(), 0.1)
        if self._cancel.is_set():
            raise Cancelled
        if ended.code != 0:
            how = ended.error or (f"setup was killed by signal {ended.signal}" if ended.code is None else f"setup exited with {ended.code}")
            raise Failed("setup", ended.code, how)

    def _hand_over(self, path: str) -> None:
        if self._places.owner is not None:
            workdir.give_to(path, self._places.owner)
