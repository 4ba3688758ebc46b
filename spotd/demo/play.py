"""The demonstration itself: set the stage, hand the job in, watch, gather the evidence, clear everything away."""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spotd.cli.client import Client
from spotd.cli.failure import FAILED, INTERRUPTED, Failure
from spotd.cli.handing_in import hand_in, send_workdir
from spotd.cli.output import note, print_json
from spotd.cli.refusal import Away, job_path
from spotd.demo import killing, leftovers, report, scene, view, weights, witness
from spotd.demo.claim import Claim
from spotd.demo.claims import Facts, examine
from spotd.demo.curtain import Curtain, Interrupted
from spotd.demo.daemon import Daemon
from spotd.demo.reference import Reference
from spotd.demo.story import Story

_LOOK_S = 0.25
#: A job that is not over by then is not going to be.
_PATIENCE_S = 170.0
#: After the job, until its last machine is gone.
_GONE_WITHIN_S = 20.0
#: Unix sockets have room for some 100 bytes; the directory's name and what we put below it need this much.
_LONGEST_TEMP = 60


@dataclass
class Run:
    """One performance."""

    stage: scene.Stage
    curtain: Curtain
    view: view.View
    kill_daemon: bool
    began: float = field(default_factory=time.monotonic)
    story: Story = field(default_factory=lambda: Story(datetime.now(UTC)))
    killed: killing.Killing | None = None
    job_id: str = ""
    last: int = 0

    def __post_init__(self) -> None:
        self.client = Client(str(self.stage.socket))
        self.daemon = Daemon(self.stage, self.client, self.curtain)

    def perform(self) -> Facts:
        """From nothing to the evidence. Raises Failure where it cannot go on, Interrupted when somebody wants it to end."""
        self._say(
            f"a market of {len(scene.REGIONS)} regions, recorded in 2023, replayed {scene.SPEED} times faster than the clock: "
            f"{scene.SPEED} seconds are billed for each real one; a reclaim is announced {scene.NOTICE_S:g} real seconds ahead"
        )
        self.daemon.start()
        self._say(f"the daemon runs: pid {self.daemon.pid}, its own process, with everything it knows in {self.stage.state}")
        self._submit()
        reference = Reference(self.stage)
        try:
            self._watch()
            reference.wait(self.curtain)
        finally:
            reference.end()
        self._until_gone()
        return self._facts()

    def _submit(self) -> None:
        digest = send_workdir(self.client, self.stage.job.parent)
        body = {"yaml": self.stage.job.read_text(), "file": self.stage.job.name, "workdir_sha256": digest}
        self.job_id = hand_in(self.client, body)["job"]["id"]

    def _watch(self) -> None:
        until = self.began + _PATIENCE_S
        while self.story.outcome is None:
            self._look()
            if self.kill_daemon and self.killed is None and killing.due(self.story):
                self._say(f"kill -9 {self.daemon.pid}: the daemon is dead, and is started again")
                self.killed = killing.kill(self.stage, self.daemon, self.story)
                self._say(f"the daemon is back after {self.killed.seconds:.1f} s: pid {self.killed.after}")
            if time.monotonic() > until:
                raise Failure(f"the job is not over after {_PATIENCE_S:.0f} s", FAILED)
            self.curtain.pause(_LOOK_S)
        self._look()

    def _look(self) -> None:
        """Ask the daemon for everything that is new."""
        if not self.daemon.alive:
            raise Failure("the daemon died", FAILED)
        try:
            page = self.client.get("/v1/events", {"after": self.last, "limit": 1000})
            shown = self.client.get(job_path(self.job_id))
            offers = self.client.get("/v1/offers")["offers"]
        except Away:
            return  # asked again in a moment; that it died for good is seen above
        self.last = page["last"]
        self.story.shown = shown
        self.story.price(offers)
        for event in page["events"]:
            line = self.story.hear(event)
            if line is not None:
                self.view.line(line)
        self.view.draw(self.story)

    def _until_gone(self) -> None:
        until = time.monotonic() + _GONE_WITHIN_S
        while any(i["state"] != "gone" for i in self.story.shown["instances"]) and time.monotonic() < until:
            self.curtain.pause(_LOOK_S)
            self._look()

    def _facts(self) -> Facts:
        """Gather the evidence, stop the daemon, and see what is left."""
        savings: dict[str, Any] = self.client.get("/v1/savings")["total"]
        final = reference = None
        problem = ""
        try:
            final = weights.committed(self.stage, self.story.last_checkpoint())
            reference = weights.uninterrupted(self.stage)
        except (weights.NotVerified, KeyError, ValueError) as error:
            problem = str(error) or "nothing was saved"
        port = _port(self.stage)
        stopped = self.daemon.stop()
        left = [f"process {pid} is left: {command}" for pid, command in leftovers.processes(self.stage.root).items()]
        if port is not None and _listens(port):
            left.append(f"port {port} still answers")
        return Facts(
            story=self.story,
            stints=witness.read(self.stage.witness),
            savings=savings,
            final=final,
            reference=reference,
            weights_problem=problem,
            left_behind=left,
            daemon_stopped=stopped,
            killing=self.killed,
            seconds=time.monotonic() - self.began,
        )

    def _say(self, text: str) -> None:
        self.view.line(self.story.say(text, datetime.now(UTC)))
        self.view.draw(self.story)


def run(*, as_json: bool = False, kill_daemon: bool = False) -> int:
    """Perform, report, clear away; the exit code."""
    scene.check_here()
    with Curtain() as curtain:
        root = Path(tempfile.mkdtemp(prefix="spotd-demo-", dir=_temporary()))
        keep = True
        try:
            stage = scene.build(root)
            held = _perform(Run(stage, curtain, view.choose(as_json=as_json), kill_daemon), as_json=as_json)
            keep = not held
        except Interrupted:
            keep = False
            note("spotd demo: interrupted; everything that was started is ended")
            return INTERRUPTED
        except Failure as failure:
            note(f"spotd demo: {failure.message}")
            if as_json:
                print_json({"ok": False, "error": failure.details})
            return FAILED
        finally:
            _clear(root, keep=keep)
        return 0 if held else FAILED


def _perform(performance: Run, *, as_json: bool) -> bool:
    with performance.view.open():
        facts = performance.perform()
    claims = examine(facts)
    if performance.kill_daemon and facts.killing is None:
        claims.append(killing.never_done())
    # With --json standard output belongs to the one object.
    (note if as_json else print)("\n".join([*report.lines(facts, claims), "", _verdict(claims, facts.seconds)]))
    if as_json:
        print_json(report.document(facts, claims))
    return all(claim.held for claim in claims)


def _verdict(claims: list[Claim], seconds: float) -> str:
    failed = [claim.claim for claim in claims if not claim.held]
    if failed:
        return f"{len(failed)} of {len(claims)} claims failed: {'; '.join(failed)}"
    return f"All {len(claims)} claims held, in {seconds:.0f} s."


def _temporary() -> str:
    """Where temporary files go, unless that path is too long for a socket in it."""
    usual = tempfile.gettempdir()
    return usual if len(usual.encode()) <= _LONGEST_TEMP else "/tmp"  # noqa: S108 - mkdtemp makes a directory of our own in it


def _clear(root: Path, *, keep: bool) -> None:
    """End whatever still runs, and leave nothing, or the logs of what went wrong."""
    left = leftovers.end_all(root)
    for pid, command in left.items():
        note(f"spotd demo: process {pid} could not be ended: {command}")
    if keep:
        note(f"spotd demo: what happened can be read in {root}: daemon.log, cloud/instances/*/console.log, state/logs")
    else:
        shutil.rmtree(root, ignore_errors=True)


def _port(stage: scene.Stage) -> int | None:
    """The port of the agents' API."""
    try:
        return int((stage.state / "agents.port").read_text())
    except (OSError, ValueError):
        return None


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
