"""Real processes behind fake instances: each instance's user data runs below a directory of its own, and nowhere else."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from spotd.testing.fake_aws import supervisor
from spotd.testing.fake_aws.instances import FakeInstance, State

#: So long what runs on a machine may take to shut down (real seconds).
_GRACE_S = 4.0
#: So long a supervisor may take to end what it was told to kill, before it is killed itself.
_PATIENCE_S = 10.0
_GZIP = b"\x1f\x8b"


class Machines:
    """Runs machines below `root`. Needs Linux, and a clock that runs.

    A machine's environment is SPOTD_ROOT (`<root>/<instance-id>/agent`), SPOTD_POWER_OFF (a command with which it switches itself off),
    AWS_EC2_METADATA_SERVICE_ENDPOINT, HOME, TMPDIR, LANG, the host's PATH, and a marker by which its processes are found; its console is a file.
    """

    def __init__(self, root: Path, grace_s: float = _GRACE_S) -> None:
        self.root = root.resolve()
        self._grace_s = grace_s
        self._running: dict[str, _Machine] = {}
        self._metadata: Callable[[str], str] | None = None
        self._power_off: Callable[[str], None] = lambda _: None

    def connect(self, metadata: Callable[[str], str], power_off: Callable[[str], None]) -> None:
        """Tell it where a machine's metadata service is, and whom to tell that one has switched itself off."""
        self._metadata = metadata
        self._power_off = power_off

    def state_changed(self, instance: FakeInstance, _at: datetime) -> None:
        """Start, shut down, or cut the power, as the instance's state says. When this returns of a terminated one, nothing runs on it."""
        match instance.state:
            case State.RUNNING:
                self._start(instance)
            case State.SHUTTING_DOWN | State.STOPPING:
                if machine := self._running.get(instance.instance_id):
                    machine.order(f"stop {self._grace_s}")
            case State.TERMINATED | State.STOPPED:
                if machine := self._running.pop(instance.instance_id, None):
                    machine.end()
            case State.PENDING:
                pass

    def directory(self, instance_id: str) -> Path:
        """Where a machine has its files."""
        return self.root / instance_id

    def console(self, instance_id: str) -> bytes:
        """What a machine wrote on its console so far."""
        try:
            return (self.directory(instance_id) / supervisor.CONSOLE).read_bytes()
        except OSError:
            return b""

    def close(self) -> None:
        """Cut the power of all: no process is left."""
        self._metadata = None
        machines = list(self._running.values())
        self._running.clear()
        for machine in machines:
            machine.order("kill")
        for machine in machines:
            machine.end()

    def _start(self, instance: FakeInstance) -> None:
        # cloud-init unpacks it, too.
        user_data = gzip.decompress(instance.user_data) if instance.user_data.startswith(_GZIP) else instance.user_data
        command = _command(user_data)
        if command is None or self._metadata is None:
            return
        directory = self.directory(instance.instance_id)
        home, scratch, script = directory / "home", directory / "tmp", directory / "user-data"
        for made in (home, scratch):
            made.mkdir(parents=True)
        script.touch(0o700)
        script.write_bytes(user_data)
        environment = {
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self._metadata(instance.instance_id),
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PATH": os.environ.get("PATH", os.defpath),
            "SPOTD_POWER_OFF": shlex.join(["touch", str(directory / supervisor.POWER_OFF)]),
            "SPOTD_ROOT": str(directory / "agent"),
            "TMPDIR": str(scratch),
        }
        told = {"directory": str(directory), "command": [*command, str(script)], "environment": environment}
        self._running[instance.instance_id] = _Machine(directory, json.dumps(told), lambda: self._power_off(instance.instance_id))


class _Machine:
    """A supervisor and the pipe to it."""

    def __init__(self, directory: Path, told: str, powered_off: Callable[[], None]) -> None:
        self._directory = directory
        with (directory / "supervisor.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(Path(supervisor.__file__))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                start_new_session=True,
            )
        self.order(told)
        self._listener = threading.Thread(target=self._listen, args=(powered_off,), name=f"machine-{directory.name}", daemon=True)
        self._listener.start()

    def order(self, line: str) -> None:
        """Tell the supervisor something; one that is dead need not hear it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def end(self) -> None:
        """Cut the power, and wait until nothing runs."""
        self.order("kill")
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        supervisor.kill_marked(str(self._directory))
        if threading.current_thread() is not self._listener:
            # The listener may wait for a lock that whoever ends the machine holds; its pipe is closed by itself when it ends.
            self._listener.join(0.2)

    def _listen(self, powered_off: Callable[[], None]) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.strip() == b"power-off":
                    powered_off()


def _command(user_data: bytes) -> list[str] | None:
    """How to run user data: what its first line says. None for what is no script: cloud-init's other formats are not played."""
    first = user_data.partition(b"\n")[0]
    if not first.startswith(b"#!"):
        return None
    return first[2:].decode("utf-8", "replace").split() or None
