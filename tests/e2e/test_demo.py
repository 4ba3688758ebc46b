"""`spotd demo` as its users run it: every claim holds, and nothing is left behind however it ends."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from spotd.demo import leftovers

#: The promise is 120 s on an idle machine of two cores; here other tests run at the same time.
LIMIT_S = 240


@dataclass
class Show:
    """A demonstration in a directory for temporary files of its own."""

    temporary: Path
    process: subprocess.Popen[bytes] | None = None
    said: list[str] = field(default_factory=list)

    def run(self, *options: str) -> subprocess.CompletedProcess[bytes]:
        """Run it to its end."""
        return subprocess.run(self._command(*options), env=self._environment(), capture_output=True, timeout=LIMIT_S, check=False)

    def start(self, *options: str, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Run it beside the test."""
        self.process = subprocess.Popen(self._command(*options), env=self._environment(), stdout=stdout, stderr=subprocess.PIPE)
        return self.process

    def until(self, words: str) -> str:
        """Read what it tells until it says this; the line."""
        assert self.process is not None
        assert self.process.stderr is not None
        for raw in self.process.stderr:
            self.said.append(raw.decode())
            if words in self.said[-1]:
                return self.said[-1]
        pytest.fail(f"{words!r} was never said: {''.join(self.said)}")

    def wait(self) -> int:
        """Its exit code."""
        assert self.process is not None
        _, rest = self.process.communicate(timeout=60)
        self.said += rest.decode().splitlines(keepends=True) if rest else []
        return self.process.returncode

    def directories(self) -> list[Path]:
        """What lies in the directory for temporary files."""
        return sorted(self.temporary.iterdir())

    def processes(self) -> list[str]:
        """What runs with the mark of a demonstration below this directory."""
        prefix = os.fsencode(self.temporary) + b"/"
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environment = (folder / "environ").read_bytes()
            except OSError:
                continue
            if re.search(rb"(?:^|\0)SPOTD_[A-Z_]+=" + re.escape(prefix), environment):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found

    def _command(self, *options: str) -> list[str]:
        return [sys.executable, "-P", "-m", "spotd.cli.main", "demo", *options]

    def _environment(self) -> dict[str, str]:
        # A terminal is what a test says it is, not what the tests were started from: CI has none, or a dumb one.
        return {**os.environ, "TMPDIR": str(self.temporary), "TERM": "xterm-256color"}


@pytest.fixture
def show() -> Iterator[Show]:
    """A demonstration that is ended whatever the test does; sockets want a short path."""
    temporary = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    performance = Show(temporary)

    def give_up() -> None:
        if performance.process is not None:
            performance.process.kill()

    watchdog = threading.Timer(LIMIT_S, give_up)
    watchdog.start()
    try:
        yield performance
    finally:
        watchdog.cancel()
        if performance.process is not None and performance.process.poll() is None:
            performance.process.kill()
            performance.process.wait()
        for directory in performance.directories():
            leftovers.end_all(directory)
        shutil.rmtree(temporary)


def checked(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    """The one object on standard output, after its figures have been held to what was promised."""
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    assert [c for c in found["claims"] if not c["held"]] == []
    assert all(c["claim"] and c["evidence"] for c in found["claims"])
    assert found["ok"] is True
    assert found["preemptions"] >= 3
    assert found["saved_within_notice"] == found["preemptions"]
    assert set(found["regions_used"]) == {"us-west-2", "us-east-2", "us-east-1"}
    assert found["fell_back"] is True
    assert found["returned_to_spot"] is True
    assert found["identical_to_uninterrupted"] is True
    assert 0 <= found["steps_redone"] <= 20 * 4
    assert 0 < found["spend_usd"] < found["baseline_usd"]
    assert found["saving_pct"] == pytest.approx(100 * (1 - found["spend_usd"] / found["baseline_usd"]), abs=0.01)
    assert found["seconds"] < 120
    assert (found["billing_speed"], found["notice_seconds"]) == (300, 6.0)
    return found


def test_the_demonstration_keeps_its_claims(show: Show) -> None:
    """Three recorded reclaims in three regions, saved each time; fallback, return, the same weights, money saved; nothing is left."""
    done = show.run("--json")
    checked(done)
    told = done.stderr.decode()
    assert told.count("RECLAIM: ") == 3
    assert "back to spot" in told
    assert "300 seconds are billed for each real one" in told
    assert show.directories() == []
    assert show.processes() == []


@pytest.mark.slow
def test_a_killed_daemon_changes_nothing_but_the_log(show: Show) -> None:
    """`kill -9` in the middle: the next daemon finds the same attempt on the same machine, and no step is done again because of it."""
    found = checked(show.run("--json", "--kill-daemon"))
    (claim,) = [c for c in found["claims"] if c["claim"].startswith("kill -9 of the daemon")]
    assert "adopted attempt 2" in claim["evidence"]
    assert found["steps_redone"] == 0
    assert show.directories() == []
    assert show.processes() == []


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        pytest.param(signal.SIGINT, "RECLAIM: ", id="ctrl-c in the middle of a reclaim"),
        pytest.param(signal.SIGTERM, "asks for spot in ", id="sigterm as the first machine boots"),
        pytest.param(
            signal.SIGHUP,
            "replayed 300 times",
            id="the terminal is closed as the daemon starts",
            marks=pytest.mark.skipif(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, reason="nohup: the demonstration goes on"),
        ),
    ],
)
def test_interrupted_it_leaves_nothing(show: Show, number: signal.Signals, moment: str) -> None:
    """Exit code 130, and no process, machine or file remains."""
    process = show.start("--json")
    show.until(moment)
    process.send_signal(number)
    assert show.wait() == 130
    assert "everything that was started is ended" in show.said[-1]
    assert show.directories() == []
    assert show.processes() == []


def test_a_failure_keeps_the_logs_and_says_where(show: Show) -> None:
    """The daemon is killed behind the demonstration's back: exit code 1, one sentence, the directory is kept, no process is."""
    process = show.start("--json", stdout=subprocess.PIPE)
    pid = re.search(r"the daemon runs: pid (\d+)", show.until("the daemon runs: pid "))
    assert pid is not None
    show.until("a machine in ")
    os.kill(int(pid[1]), signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert json.loads(stdout)["ok"] is False
    assert "the daemon died" in stderr.decode()
    (kept,) = show.directories()
    assert str(kept) in stderr.decode()
    assert "spotd is ready" in (kept / "daemon.log").read_text()
    assert show.processes() == []


def test_on_a_terminal_there_is_a_live_picture(show: Show) -> None:
    """Every zone with its price, where the job is, how far, and what it has cost; Ctrl-C ends that, too."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (40, 120))
    try:
        process = show.start(stdout=theirs)
        os.close(theirs)
        seen = _read_until(ours, lambda text: "trains in" in text and "attempt 1 running" in text)
        process.send_signal(signal.SIGINT)
        _read_until(ours, lambda _: process.poll() is not None)
        assert show.wait() == 130
    finally:
        os.close(ours)
    for words in ("us-west-2b", "us-east-1f", "spot $/h", "no capacity for attempt 1", "step ", "spent so far $", "300 billed seconds per second"):
        assert words in seen
    assert show.directories() == []
    assert show.processes() == []


def _read_until(terminal: int, done: Callable[[str], bool]) -> str:
    """Everything the terminal shows until then, or until the other side is closed."""
    seen = ""
    while not done(seen):
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # nobody writes there any more
            break
        seen += piece.decode(errors="replace")
    return seen
