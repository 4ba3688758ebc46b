"""One instance with real agent processes, run from a zip as in production, on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import spotd.node
from spotd.node import procfs
from tests.unit.node.fakes import FakeDaemon, FakeImds, serving, until


def build_zip(path: Path) -> Path:
    """The agent as one file."""
    source = Path(spotd.node.__file__).parent
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("__main__.py", "import sys\nfrom spotd.node.main import main\nsys.exit(main(sys.argv[1:]))\n")
        archive.writestr("spotd/__init__.py", "")
        for file in sorted(source.glob("*.py")):
            archive.write(file, f"spotd/node/{file.name}")
    return path


class World:
    """The daemon, the metadata service, and the agents started so far."""

    def __init__(self, directory: Path, daemon: FakeDaemon, imds: FakeImds) -> None:
        self.daemon = daemon
        self.imds = imds
        self.instance = f"instance-{uuid.uuid4()}"  # tests run beside each other, and processes are found by it
        self.root = directory / "root"
        self.off = directory / "power-is-off"
        self.work = self.root / "work"
        self.python = os.environ.get("SPOTD_TEST_AGENT_PYTHON", sys.executable)
        self._directory = directory
        self._zip = build_zip(directory / "agent.pyz")
        self._agents: list[subprocess.Popen[bytes]] = []

    def agent(self, user: str | None = None, **config: str) -> subprocess.Popen[bytes]:
        """Start an agent."""
        path = self._directory / "agent.json"
        path.write_text(json.dumps(self.daemon.config(instance=self.instance, **config)))
        path.chmod(0o600)
        command = [self.python, str(self._zip), "agent", "--config", str(path), "--root", str(self.root)]
        command += [] if user is None else ["--user", user]
        with (self._directory / "agent.err").open("ab") as errors:
            agent = subprocess.Popen(
                [*command, "--power-off", f"touch {self.off}"],
                stderr=errors,
                env={**os.environ, "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.imds.address, "PYTHONWARNINGS": ""},
            )
        self._agents.append(agent)
        return agent

    def kill_agent(self) -> None:
        """End the agent as a crash would."""
        self._agents[-1].kill()
        self._agents[-1].wait()

    def shim(self, task: str = "run") -> int:
        """The pid of a task's shim."""
        record = until(lambda: self.read(self.root / task / "shim.json"), what=f"{task}/shim.json")
        return int(record["pid"])

    def read(self, path: Path) -> Any:
        """A JSON file, or None."""
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError):
            return None

    def message(self, kind: str, seconds: float = 20.0) -> dict[str, Any]:
        """The first message of *kind*, once it was heard."""
        try:
            found = until(lambda: self.daemon.of_type(kind), seconds, f"message {kind}")
        except AssertionError as error:
            state = (self.root / "agent/state.json").read_text()[-3000:]
            raise AssertionError(f"{error}\n{self.errors()}\n{self.daemon.messages}\n{state}") from error
        return dict(found[0])

    def errors(self) -> str:
        """What the agents said on stderr."""
        return (self._directory / "agent.err").read_text()

    def processes(self) -> list[int]:
        """Every process of this instance's tasks that is alive."""
        return [p for p in procfs.marked([f"SPOTD_INSTANCE={self.instance}"]) if p not in [a.pid for a in self._agents]]

    def close(self) -> None:
        """End whatever is left."""
        for agent in self._agents:
            agent.kill()
            agent.wait()
        for task in ("run", "setup", "hook"):
            record = self.read(self.root / task / "shim.json")
            if record is not None and procfs.is_running(record["pid"], record["start_time"]):
                os.kill(record["pid"], signal.SIGKILL)
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def instance(directory: Path) -> Iterator[World]:
    """A world that leaves no process behind."""
    with serving(directory) as daemon, contextlib.closing(FakeImds()) as imds:
        world = World(directory, daemon, imds)
        try:
            yield world
        finally:
            world.close()
