"""A daemon of its own for a benchmark: temporary state, a local cloud whose zones are always up, and the command line to talk to it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spotd.cli.client import Client
from spotd.cli.failure import Failure
from spotd_local import control

#: As many as there are reclaims in a benchmark: a reclaimed zone is left alone for a quarter of an hour.
_ZONES = {f"{region}-{number:02d}": region for region in ("east", "west", "north") for number in range(20)}
_PATIENCE_S = 60.0


@dataclass
class Stage:
    """Directories and the process, if it runs."""

    root: Path
    process: subprocess.Popen[bytes] | None = None
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def cloud(self) -> Path:
        """The local cloud's directory."""
        return self.root / "cloud"

    def start(self) -> float:
        """Start the daemon; seconds until it answered a request."""
        begin = time.perf_counter()
        log = (self.root / "log").open("ab")
        command = [sys.executable, "-m", "spotd.cli.main", "daemon", "--config", str(self.root / "spotd.toml")]
        self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, start_new_session=True)
        log.close()
        while time.perf_counter() - begin < _PATIENCE_S:
            try:
                self.client.get("/v1/status")
            except Failure:
                time.sleep(0.005)
            else:
                return time.perf_counter() - begin
        raise RuntimeError(f"the daemon did not answer: {(self.root / 'log').read_text()[-2000:]}")

    def stop(self) -> None:
        """End the daemon."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
            self.process = None

    @property
    def client(self) -> Client:
        """The control API."""
        return Client(str(self.root / "s"))

    def spotd(self, *words: str) -> Any:
        """A verb of the command line, with `--json`."""
        command = [sys.executable, "-m", "spotd.cli.main", *words, "--json"]
        done = subprocess.run(command, env=self.environment, capture_output=True, check=True, timeout=_PATIENCE_S)
        return json.loads(done.stdout)

    def resident_mb(self) -> float:
        """Resident memory of the daemon."""
        if self.process is None:
            raise RuntimeError("the daemon does not run")
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("no VmRSS")


@contextmanager
def stage(policy: str = "", **local: str) -> Iterator[Stage]:
    """A stage that leaves nothing behind."""
    root = Path(tempfile.mkdtemp(prefix="spotd-bench-"))
    (root / "policies").mkdir()
    (root / "market.json").write_text(json.dumps(_market()))
    (root / "policies" / "bench.yaml").write_text(
        "candidates:\n  - {provider: local, instance_types: [gpu], regions: [east, west, north]}\nmax_wait: 1h\n" + policy
    )
    settings = {"root": str(root / "cloud"), "market": str(root / "market.json"), "notice": "5s", "metadata_poll": "1s"} | local
    lines = [f'state_dir = "{root}/state"', f'socket = "{root}/s"', f'policies_dir = "{root}/policies"', 'deployment = "bench"']
    lines += ['observe_poll = "2s"', 'log_level = "info"', "[providers.local]", "speed = 1"]
    lines += [f'{key} = "{value}"' for key, value in settings.items()]
    (root / "spotd.toml").write_text("\n".join(lines) + "\n")
    found = Stage(root, environment=dict(os.environ) | {"SPOTD_SOCKET": str(root / "s")})
    try:
        yield found
    finally:
        found.stop()
        if found.cloud.exists():
            control.power_cut(found.cloud)
        shutil.rmtree(root, ignore_errors=True)


def _market() -> dict[str, Any]:
    """Sixty zones that are always up, at one price."""
    zones = {zone: {"region": region, "available": True, "price": {"gpu": "1.00"}} for zone, region in _ZONES.items()}
    on_demand = {region: {"gpu": "3.00"} for region in _ZONES.values()}
    return {"format": 1, "name": "bench", "gap_seconds": 3600, "samples": 24, "types": ["gpu"], "on_demand": on_demand, "zones": zones}
