"""A whole spotd on this machine: the real daemon in a process of its own, the local provider, real agents, the real trainer.

Whatever a test does to it, `World.at_peace` says at the end what must be true: no job lost, no process or machine left, every committed checkpoint
verifies, and the ledger agrees with the cloud's own records.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from spotd.cli.client import Client
from spotd.cli.refusal import Away
from spotd.core.billing import charge
from spotd.core.instance import Interval
from spotd.core.money import rounded_usd
from spotd.core.offer import Market
from spotd_local import control, processes
from spotd_local.record import MARKER, InstanceDirectory, Record, directories

T = TypeVar("T")

TRAIN = Path(__file__).parents[2] / "examples" / "numpy" / "train.py"
KIND = "p3.2xlarge"
#: Billed seconds per real second: a life of seconds costs cents, and one that is reclaimed within six seconds costs nothing.
SPEED = 600
NOTICE_S = 3.0
#: For what takes a second or two on an idle machine, and this machine is not idle.
PATIENCE_S = 60.0

#: Spot price by zone: constant, so that what each instance costs can be said without asking spotd.
SPOT = {
    "us-west-2a": "0.90",
    "us-west-2b": "0.92",
    "us-east-2a": "0.94",
    "us-east-2b": "0.96",
    "us-east-1a": "0.98",
    "us-east-1b": "1.00",
}
ON_DEMAND = "3.06"

POLICY = f"""\
candidates:
  - {{provider: local, instance_types: [{KIND}], regions: [us-west-2, us-east-2, us-east-1]}}
spot_handlers:
  max_preemptions: 100
"""


def market_document() -> dict[str, Any]:
    """Six zones in three regions, with capacity at any time."""
    return {
        "format": 1,
        "name": "always",
        "gap_seconds": 3600,
        "samples": 1000,
        "types": [KIND],
        "on_demand": {zone[:-1]: {KIND: ON_DEMAND} for zone in SPOT},
        "zones": {zone: {"region": zone[:-1], "available": 1, "price": {KIND: price}} for zone, price in SPOT.items()},
    }


@dataclass(frozen=True, slots=True)
class Said:
    """What a command of `spotd` came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its JSON document."""
        return json.loads(self.out)

    def sentence(self) -> str:
        """The one sentence of an error: no traceback, nothing on standard output."""
        assert "Traceback" not in self.err + self.out, self.err
        assert self.err.startswith("spotd: "), self.err
        return self.err


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a witness: a process did one step."""

    pid: int
    at: float
    step: int


class World:
    """A daemon, its state, and its cloud, below one short directory."""

    def __init__(self, directory: Path, *, state_dir: Path | None = None, notice_s: float = NOTICE_S, boot_delay_s: float = 0.1) -> None:
        self.directory = directory
        self.state = state_dir or directory / "state"
        self.policies = directory / "policies"
        self.cloud = directory / "cloud"
        self.socket = directory / "sock"
        self.config = directory / "spotd.toml"
        self.log = directory / "daemon.log"
        self.daemons: list[subprocess.Popen[bytes]] = []
        #: What lies under a key of the checkpoint store.
        self.stored: Callable[[str], bytes] = lambda key: (self.state / "objects" / key).read_bytes()
        self.client = Client(str(self.socket))
        self.policies.mkdir()
        self.policy("spot", POLICY)
        market = directory / "market-file.json"
        market.write_text(json.dumps(market_document()))
        self.config.write_text(
            f"""\
state_dir = "{self.state}"
socket = "{self.socket}"
policies_dir = "{self.policies}"
tick_interval = "1s"
observe_poll = "1s"
price_poll = "30s"

[providers.local]
root = "{self.cloud}"
market = "{market}"
speed = {SPEED}
notice = "{round(notice_s * 1000)}ms"
boot_delay = "{round(boot_delay_s * 1000)}ms"
metadata_poll = "200ms"
heartbeat = "500ms"
boot_timeout = "60s"
"""
        )

    # The daemon -----------------------------------------------------------------------------------------------------------

    @property
    def daemon(self) -> subprocess.Popen[bytes]:
        """The newest daemon."""
        return self.daemons[-1]

    def launch(self, before: str = "") -> subprocess.Popen[bytes]:
        """Start a daemon and do not wait for it. `before` is run in its process first: for crashes at a given line."""
        main = [f"{before}\nimport sys\nfrom spotd.cli.main import main\nsys.exit(main())"]
        program = ["-c", *main] if before else ["-m", "spotd.cli.main"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SPOTD_")}
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *program, "daemon", "--config", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
        self.daemons.append(process)
        return process

    def start(self, before: str = "") -> None:
        """Start a daemon and wait until it answers."""
        process = self.launch(before)

        def answers() -> bool:
            assert process.poll() is None, f"the daemon ended with {process.returncode}"
            try:
                return bool(self.client.get("/v1/status")["pid"] == process.pid)
            except (Away, KeyError):
                return False

        self.until(answers, "the daemon answers")

    def kill(self) -> None:
        """`kill -9` of the daemon."""
        self.daemon.kill()
        self.daemon.wait()

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        self.daemon.terminate()
        return self.daemon.wait(timeout=PATIENCE_S)

    # What users and ops do ------------------------------------------------------------------------------------------------

    def policy(self, name: str, text: str) -> None:
        """Write a policy file, as an editor would."""
        path = self.policies / f"{name}.yaml"
        draft = path.with_suffix(".new")
        draft.write_text(text)
        draft.replace(path)

    def cli(self, *words: object, check: bool = True, **options: Any) -> Said:
        """One command of `spotd` against this daemon. With `check` it must succeed."""
        done = self.spawn(*words, **options)
        try:
            out, err = done.communicate(timeout=PATIENCE_S)
        finally:
            done.kill()
        said = Said(done.returncode, out, err)
        assert not check or said.code == 0, said
        return said

    def spawn(self, *words: object, **options: Any) -> subprocess.Popen[str]:
        """The same, under way."""
        environment = {**os.environ, "SPOTD_SOCKET": str(self.socket), **options.pop("env", {})}
        if words[0] == "daemon":
            del environment["SPOTD_SOCKET"]  # which would override its file
        return subprocess.Popen(
            [sys.executable, "-m", "spotd.cli.main", *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            **options,
        )

    def submit(self, name: str, run: str, **keys: Any) -> str:
        """Hand in a job; its id."""
        spec = {"name": name, "policy": "spot", "run": run, **keys}
        spec["env"] = {"EXAMPLE_WITNESS": str(self.witness_of(name)), **spec.get("env", {})}
        answer = self.client.post("/v1/jobs", {"yaml": json.dumps(spec), "file": f"{name}.yaml"})
        return str(answer["job"]["id"])

    def train(self, name: str, steps: int, pace_s: float = 0.05, every: int = 20, **keys: Any) -> str:
        """Hand in the example's training; its id."""
        return self.submit(name, train_command(steps, pace_s, every), checkpoint={"dir": "ckpt"}, **keys)

    # What can be seen -----------------------------------------------------------------------------------------------------

    def show(self, job: str) -> dict[str, Any]:
        """All that spotd knows of a job."""
        return self.client.get(f"/v1/jobs/{job}")

    def attempts(self, job: str) -> list[dict[str, Any]]:
        """Its attempts, oldest first."""
        found: list[dict[str, Any]] = self.show(job)["attempts"]
        return found

    def attempt(self, job: str, number: int, *states: str) -> dict[str, Any]:
        """An attempt, once it is in one of these states. An attempt that went past them is an error."""

        def there() -> dict[str, Any] | None:
            found = [a for a in self.attempts(job) if a["number"] == number]
            return found[0] if found and found[0]["state"] in states else None

        return self.until(there, f"attempt {number} is {' or '.join(states)}")

    def instance(self, job: str, number: int) -> str:
        """The token of an attempt's machine, once there is one."""

        def there() -> str | None:
            rows = self.show(job)["instances"]
            return next((str(i["id"]) for i in rows if i["attempt"] == number and i["provider_id"] and i["state"] != "gone"), None)

        return self.until(there, f"attempt {number} has a machine")

    def finished(self, job: str, outcome: str = "succeeded", seconds: float = 2 * PATIENCE_S) -> dict[str, Any]:
        """The job, once it is over."""

        def over() -> dict[str, Any] | None:
            answer = self.show(job)
            return answer if answer["job"]["outcome"] is not None else None

        answer = self.until(over, f"job {job} is over", seconds)
        assert answer["job"]["outcome"] == outcome, answer
        return answer

    def newest_job(self) -> str:
        """The job that was recorded last, as the database has it."""
        return str(rows(self.state, "SELECT id FROM jobs ORDER BY rowid DESC LIMIT 1")[0][0])

    def tokens(self, job: str) -> list[str]:
        """Every machine that was ever asked for, as the database has it: also while no daemon runs."""
        found = rows(self.state, "SELECT id FROM instances WHERE job_id = ? ORDER BY rowid", job)
        return [str(row[0]) for row in found]

    def steps(self, name: str, at_least: int) -> None:
        """Wait until a job has done so many steps."""
        self.until(lambda: max((line.step for line in self.witness(name)), default=0) >= at_least, f"{name} is at step {at_least}")

    def saved(self, job: str, at_least: int = 1) -> None:
        """Wait until so many checkpoints are committed."""
        self.until(lambda: len(self.show(job)["checkpoints"]) >= at_least, f"{at_least} checkpoints")

    def witness_of(self, name: str) -> Path:
        """Where a job's witness lies: outside of all instances."""
        return self.directory / f"witness-{name}"

    def witness(self, name: str) -> list[Line]:
        """What the job's processes did, as they wrote it themselves, line by line."""
        try:
            text = self.witness_of(name).read_text()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind("\n") + 1].splitlines()
        return [Line(int(pid), float(at), int(step)) for pid, at, step in (line.split() for line in whole)]

    def weights(self, job: str) -> str:
        """The identity of the final weights, from the job's own last line."""
        numbers = [a["number"] for a in self.attempts(job)]
        _, pieces = self.client.stream(f"/v1/jobs/{job}/logs", {"attempt": max(numbers)})
        found = re.findall(r"weights sha256 ([0-9a-f]{64})", b"".join(pieces).decode())
        assert found, "the job did not print its weights"
        return str(found[-1])

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Journal rows of one kind."""
        return [row for row in self.client.get("/v1/events", {"limit": 5000})["events"] if row["kind"] == kind]

    def directory_of(self, token: str) -> InstanceDirectory:
        """Where the local cloud keeps an instance."""
        return InstanceDirectory(self.cloud / "instances" / token)

    def process(self, token: str, role: str) -> int | None:
        """A process of an instance: its `machine`, its `agent`, the job's `shim`, or the `job` itself (the newest process of it)."""
        directory = self.directory_of(token)
        if role == "machine":
            machine = directory.machine()
            return None if machine is None or not machine.is_alive() else machine.pid
        found = []
        for pid in processes.marked(MARKER, str(directory.path)):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                is_job = b"SPOTD_TASK=run" in environment
                is_agent = len(words) > 2 and words[1].endswith(b"agent.pyz") and words[2] == role.encode()
                if (role == "job" and is_job) or (is_agent and (role == "agent" or words[-2].endswith(b"/run"))):
                    found.append(pid)
        return max(found, default=None)

    def until(self, what: Callable[[], T | None], claim: str, seconds: float = PATIENCE_S) -> T:
        """What `what` answers as soon as it is true. Real processes have no clock to step."""
        end = time.monotonic() + seconds
        while True:
            try:
                if answer := what():
                    return answer
                state: object = answer
            except Away as failure:
                state = failure
            if time.monotonic() > end:
                raise AssertionError(f"after {seconds:.0f} s still not: {claim}; last: {state}\n{self.story()}")
            time.sleep(0.03)

    def story(self) -> str:
        """The logs, for whoever reads of a failure."""
        parts = [self.log.read_text(errors="replace")[-6000:]] if self.log.exists() else []
        for folder in directories(self.cloud):
            console = folder.console.read_text(errors="replace")[-1500:] if folder.console.exists() else ""
            parts.append(f"--- {folder.read()}\n{console}")
        return "\n".join(parts)

    # What must be true at the end -----------------------------------------------------------------------------------------

    def at_peace(self) -> None:
        """All jobs are over: then nothing lives, everything committed verifies, and the books are those of the cloud."""
        assert self.client.get("/v1/jobs")["jobs"] == []
        self.until(lambda: all(record.gone for record in self.records()), "every instance is gone")
        self.until(lambda: not self.orphans(), "no process is left")
        jobs = self.client.get("/v1/jobs", {"all": True})["jobs"]
        for job in jobs:
            self.verify_checkpoints(job["id"])
        # The cloud knows of an end at once; the daemon with its next listing.
        self.until(lambda: all(i["state"] == "gone" for job in jobs for i in self.show(job["id"])["instances"]), "the daemon knows that all are gone")
        self.verify_ledger([job["id"] for job in jobs])

    def records(self) -> list[Record]:
        """The cloud's own records."""
        return control.records(self.cloud)

    def orphans(self) -> list[int]:
        """Every process that was started on an instance of this world, by its environment."""
        needle = f"{MARKER}={self.cloud}".encode()
        found = []
        for path in Path("/proc").iterdir():
            if path.name.isdigit():
                with contextlib.suppress(OSError):
                    if needle in (path / "environ").read_bytes() and processes.identify(int(path.name)):
                        found.append(int(path.name))
        return found

    def verify_checkpoints(self, job: str) -> None:
        """Each one that spotd says is committed has its manifest, and every object that this names is what it says."""
        for checkpoint in self.show(job)["checkpoints"]:
            folder = f"jobs/{job}/checkpoints/{checkpoint['id']}"
            manifest = json.loads(self.stored(f"{folder}/manifest.json"))
            assert manifest["job"] == job
            assert len(manifest["files"]) == checkpoint["files"]
            for file in manifest["files"]:
                content = self.stored(f"{folder}/{file['object']:04d}")
                assert (len(content), hashlib.sha256(content).hexdigest()) == (file["size"], file["sha256"]), (checkpoint, file)

    def verify_ledger(self, jobs: Sequence[str]) -> None:
        """Instance by instance, what spotd counted is what the cloud's records and its price list come to; the report has the same sum."""
        counted = {i["id"]: i["spend_usd"] for job in jobs for i in self.show(job)["instances"] if i["provider_id"] is not None}
        costs = {record.token: cost(record) for record in self.records()}
        assert {token: Decimal(usd) for token, usd in counted.items()} == {token: rounded_usd(usd) for token, usd in costs.items()}
        report = self.client.get("/v1/savings", {"by": "job"})
        assert Decimal(report["total"]["spend_usd"]) == rounded_usd(sum(costs.values(), Decimal(0)))

    def close(self) -> None:
        """End everything, in an order in which nothing starts anything anew."""
        for process in self.daemons:
            process.kill()
            process.wait()
        for _ in range(2):  # a machine that was just being started is found by the second look
            control.power_cut(self.cloud)
        for pid in self.orphans():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def cost(record: Record) -> Decimal:
    """What the cloud would put on its bill for one instance."""
    assert record.ended_at is not None
    launched, ended = (datetime.fromtimestamp(at, UTC) for at in (record.launched_at, record.ended_at))
    price = Decimal(SPOT[record.zone] if record.market is Market.SPOT else ON_DEMAND)
    interval = Interval(record.token, 1, price, launched, ended)
    return charge("aws", SPEED, record.market, [interval], launched, ended, record.ended_by, ended).usd


def train_command(steps: int, pace_s: float, every: int) -> str:
    """The example's command line."""
    return f"exec python {TRAIN} --steps {steps} --seconds-per-step {pace_s} --checkpoint-every {every}"


@cache
def uninterrupted(steps: int) -> str:
    """The weights of a training that nothing interrupts."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(TRAIN), "--steps", str(steps), "--checkpoint-dir", folder]
        environment = {"PATH": os.environ["PATH"]}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = re.search(r"weights sha256 ([0-9a-f]{64})", done.stdout)
    assert found is not None, done.stdout
    return found[1]


def one_at_a_time(lines: Sequence[Line], steps: int, saved: Mapping[int, object] | None = None) -> None:
    """A witness's proof: no two processes ever worked at once, and none skipped a step. `saved`: the steps that may be gone on from."""
    runs: dict[int, list[Line]] = {}
    for line in lines:
        runs.setdefault(line.pid, []).append(line)
    ordered = sorted(runs.values(), key=lambda run: run[0].at)
    for run in ordered:
        assert [line.step for line in run] == list(range(run[0].step, run[0].step + len(run))), f"process {run[0].pid} skipped a step"
    for before, after in itertools.pairwise(ordered):
        assert before[-1].at < after[0].at, f"processes {before[0].pid} and {after[0].pid} worked at the same time"
        reached = max(line.step for run in ordered[: ordered.index(after)] for line in run)
        assert after[0].step <= reached + 1, f"process {after[0].pid} began at step {after[0].step}, only {reached} were done"
        assert saved is None or after[0].step - 1 in {0, *saved}, f"process {after[0].pid} went on from step {after[0].step - 1}, which nobody saved"
    assert max(line.step for line in lines) == steps
    assert {line.step for line in lines} == set(range(1, steps + 1))


@contextlib.contextmanager
def world(*, state_dir: Path | None = None, start: bool = True, **options: Any) -> Iterator[World]:
    """A world that leaves nothing behind. Its directory is a short one: a socket's path may have 100 bytes."""
    directory = Path(tempfile.mkdtemp(prefix="sp-"))
    made = World(directory, state_dir=state_dir, **options)
    try:
        if start:
            made.start()
        yield made
    finally:
        made.close()
        shutil.rmtree(directory, ignore_errors=True)


def rows(state: Path, query: str, *values: object) -> list[tuple[Any, ...]]:
    """What stands in the database, read beside a daemon that may be dead."""
    with contextlib.closing(sqlite3.connect(f"file:{state / 'spotd.db'}?mode=ro", uri=True)) as connection:
        return connection.execute(query, values).fetchall()
