"""The two threads that follow a job's progress and copy its checkpoints to the store."""

from __future__ import annotations

import dataclasses
import os
import threading
from typing import Any, Callable

from spotd.node import procfs, tree
from spotd.node.candidates import Candidate, Candidates
from spotd.node.clock import Clock
from spotd.node.drain import p95
from spotd.node.journal import Journal
from spotd.node.progress import ProgressFile
from spotd.node.upload import Result, Uploader
from spotd.node.voice import say

_NOTHING = tree.Tree((), (), 0)
_POLL_S = 0.25
_SCAN_S = 1.0
_SCAN_SHARE = 20.0  # a scan that takes long is made rarely: at most a twentieth of the time goes into it


@dataclasses.dataclass(frozen=True)
class View:
    """What the agent's decisions need to know about progress and checkpoints."""

    step: int | None
    loss: float | None
    done: bool
    ordinal: int  # of the newest announcement; 0: the job never announced
    quiet: bool
    unsettled: bool  # a checkpoint is complete or being uploaded, and not committed
    save_s: float | None
    saving_since: float | None
    upload_s: float | None
    problem: str | None


class Replicator:
    """Reads progress, scans the checkpoint directory, commits what is complete. *pids* are the processes of the job's tree."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        progress_path: str,
        directory: str | None,
        uploader: Uploader,
        pids: Callable[[], list[int]],
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._directory = directory
        self._uploader = uploader
        self._pids = pids
        self._lock = threading.RLock()
        self._file = ProgressFile(progress_path, journal.get("progress"))
        committed = journal.get("committed") or {}
        self._candidates = Candidates(
            max(journal.get("settled_ordinal", 0), committed.get("ordinal") or 0),
            committed.get("signature") or journal.get("baseline", ""),
            journal.get("saves"),
        )
        self._seen: dict[str, tree.Entry] = {}
        self._saved_ordinal = 0
        self._next_scan = 0.0
        self._busy = False
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin; what lies in the directory now is no news, unless an earlier agent began before us."""
        if self._journal.get("baseline") is None:
            signature = self._tree().signature
            self._journal.put(baseline=signature)
            self._candidates = Candidates(0, signature, self._journal.get("saves"))
        self._seen = {entry.path: entry for entry in self._tree().entries}
        for target in (self._observe, self._upload):
            thread = threading.Thread(target=target, name=target.__name__, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """End both threads; a running upload is left behind unfinished."""
        self._stop.set()
        self._wake.set()
        self._uploader.give_up_at = self._clock.monotonic()

    def finish(self, trigger: str, *, succeeded: bool, give_up_at: float | None) -> None:
        """The job is gone: read its last words and commit what is new. `view().unsettled` tells when that is over."""
        with self._lock:
            self._look(final=True)
            self._candidates.end(trigger, self._clock.monotonic(), succeeded=succeeded)
        self.limit(give_up_at)
        self._wake.set()

    def limit(self, give_up_at: float | None) -> None:
        """Set the monotonic time at which uploads give up, None for never."""
        self._uploader.give_up_at = give_up_at

    def view(self) -> View:
        """Return the present state."""
        with self._lock:
            now = self._clock.monotonic()
            state = self._file.state
            return View(
                step=state.step,
                loss=state.loss,
                done=state.done,
                ordinal=0 if state.latest is None else state.latest.ordinal,
                quiet=self._candidates.quiet(now),
                unsettled=self._busy or self._journal.get("manifest") is not None or self._candidates.pending(now) is not None,
                save_s=p95(self._candidates.saves),
                saving_since=self._candidates.saving_since,
                upload_s=self._uploader.last_upload_s,
                problem=self._file.problem or self._uploader.problem,
            )

    def look(self, *, rescan: bool = False) -> None:
        """Read the progress file now, not at the next poll; with *rescan* the checkpoint directory too."""
        with self._lock:
            if rescan:
                self._next_scan = 0.0
            self._look(final=False)

    def _look(self, *, final: bool) -> None:
        self._file.poll(final=final)
        now = self._clock.monotonic()
        latest = self._file.state.latest
        if latest is not None and latest.ordinal > self._saved_ordinal:
            self._saved_ordinal = latest.ordinal
            self._candidates.announced(latest, now)
            # Kept with the ordinal, so that a restarted agent gives the next announcement the next number.
            self._journal.put(progress=self._file.export(), saves=self._candidates.saves)
            self._wake.set()
        if final or now >= self._next_scan:
            self._scan(now)

    def _scan(self, now: float) -> None:
        if self._directory is None:
            return
        found = self._tree()
        signature = found.signature
        seen = {entry.path: entry for entry in found.entries}
        touched = [path for path, entry in seen.items() if self._seen.get(path) != entry]
        self._seen = seen
        self._candidates.scanned(signature, now, writer=False, touched=touched)
        if self._candidates.may_be_quiet:
            self._candidates.scanned(signature, now, writer=procfs.has_writer(self._pids(), os.path.realpath(self._directory)))
        took = self._clock.monotonic() - now
        self._next_scan = now + max(_SCAN_S, took * _SCAN_SHARE)

    def _tree(self) -> tree.Tree:
        try:
            return tree.scan(self._directory) if self._directory is not None else _NOTHING
        except OSError:
            return _NOTHING

    def _observe(self) -> None:
        while not self._stop.is_set():
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - whatever a job does to its files, the agent goes on watching it
                say(f"watching checkpoints: {type(error).__name__}: {error}")
            self._clock.wait(self._stop, _POLL_S)

    def _upload(self) -> None:
        while not self._stop.is_set():
            again = False
            try:
                again = self._step()
            except Exception as error:  # noqa: BLE001 - as above
                say(f"uploading: {type(error).__name__}: {error}")
            with self._lock:
                self._busy = False
            if not again:
                self._clock.wait(self._wake, 0.5)
                self._wake.clear()

    def _step(self) -> bool:
        """Commit the newest candidate, if there is one; whether to look for the next at once."""
        with self._lock:
            candidate = self._candidates.next(self._clock.monotonic())
            self._busy = candidate is not None
        if candidate is None:
            if self._journal.get("manifest") is not None:
                self._uploader.settle()
            return False
        result = self._uploader.commit(candidate)
        with self._lock:
            self._note(candidate, result)
        return result is Result.COMMITTED

    def _note(self, candidate: Candidate, result: Result) -> None:
        if result in (Result.COMMITTED, Result.UNFIT):
            self._candidates.settled(candidate)
            if candidate.ordinal is not None:
                self._journal.put(settled_ordinal=candidate.ordinal)
        elif result is Result.CHANGED:
            self._candidates.discarded(candidate, self._clock.monotonic())

    def export(self) -> dict[str, Any]:
        """Return what the daemon wants to know with each heartbeat."""
        view = self.view()
        committed = self._journal.get("committed") or {}
        return {"step": view.step, "loss": view.loss, "checkpoint_step": committed.get("step")}
