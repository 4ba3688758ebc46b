"""A control API on a real socket, with the real engine, database and policy directory behind it; only clouds are missing."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from spotd.config.policy_book import PolicyBook
from spotd.core import events as e
from spotd.core.attempt import Checkpoint
from spotd.core.instance import Instance
from spotd.core.offer import Market, Offer, OfferKey
from spotd.core.plan import Hold, ProviderFacts, Snapshot
from spotd.core.world import World
from spotd.daemon.control import Control
from spotd.daemon.control_api import control_runner, make_control_app
from spotd.daemon.credentials import load_credentials
from spotd.daemon.directory_store import DirectoryStore
from spotd.daemon.engine import Engine
from spotd.daemon.peer import Peer, peer_of
from spotd.daemon.reader import Reader
from spotd.daemon.report import savings_report
from spotd.daemon.store import SqlStore

START = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
POLICY = "candidates: [{provider: local, instance_types: [v100], regions: [us-1, eu-1]}]\n"
JOB = "name: llama-ft\npolicy: demo\nrun: python train.py\n"
FACTS = {"local": ProviderFacts(timedelta(seconds=120), timedelta(minutes=10), "aws", 600)}
WORKDIR_LIMIT = 100_000


class StepClock:
    """Time that stands until it is moved."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> datetime:
        """Wall time."""
        return self.time

    def monotonic(self) -> float:
        """The same as seconds."""
        return (self.time - START).total_seconds()

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Nobody waits here."""
        raise NotImplementedError


class Desk:
    """Implements `ports.Recorder` by stepping the engine in the caller's thread; effects are noted, not executed."""

    def __init__(self, policies: Mapping[str, str] | None = None) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="spotd-"))
        self.clock = StepClock()
        self.directory = self.root / "policies"
        self.directory.mkdir()
        for name, text in ({"demo": POLICY} if policies is None else policies).items():
            (self.directory / f"{name}.yaml").write_text(text)
        self._store = SqlStore.open(self.root / "spotd.db", "d")
        self.reader = Reader(self.root / "spotd.db")
        self.engine = Engine(self._store, self._store.load(), FACTS, START)
        self.book = PolicyBook(self.directory)
        self._lock = threading.Lock()
        self.commits = 0
        #: None: the kernel says who calls.
        self.peer: Peer | None = None
        self.health: Callable[[], Mapping[str, object]] = lambda: {
            "local": {"last_listing_at": None, "last_sweep_at": None, "failures": 2, "last_error": "time-out"}
        }
        self.control = Control(
            recorder=self,
            reader=self.reader,
            policies=self.book,
            clock=self.clock,
            savings=self._savings,
            health=self._health,
            logs_dir=self.root / "logs",
            workdirs=DirectoryStore(self.root / "workdirs", load_credentials(self.root / "key")),
            workdir_limit=WORKDIR_LIMIT,
            admin_group="no-such-group",
            version="1.2.3",
            started_at=START,
            identify=lambda request: self.peer or peer_of(request),
        )
        self.socket = self.root / "s"
        self._server = _Server(self.control, self.socket)
        self.refresh()

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.stop()
        self.reader.close()
        self._store.close()
        shutil.rmtree(self.root)

    # What the API needs of the engine.

    @property
    def world(self) -> World:
        """The current world."""
        return self.engine.world

    def record(self, events: Sequence[e.Event]) -> None:
        """Fold, plan, commit."""
        with self._lock:
            self.engine.step(self.clock.now(), events)
            self.commits += 1

    def heard(self, instance_id: str) -> None:
        """Nobody calls."""
        raise NotImplementedError

    def snapshot(self) -> Snapshot:
        """What a plan made now would read."""
        return self.engine.snapshot(self.clock.now())

    def holds(self) -> Mapping[str, Hold]:
        """Why nothing is done."""
        return self.engine.holds

    # What tests do to it.

    def refresh(self) -> None:
        """Read the policy directory, as the daemon does every two seconds."""
        in_use = {job.spec.policy for job in self.world.jobs.values()}
        changes = self.book.refresh(in_use)
        self.engine.use_policies(self.book.policies())
        if changes:
            self.record([e.PolicyLoaded(self.clock.now(), change.policy, change.problem) for change in changes])

    def see_offers(self, *, spot: str = "1.00", on_demand: str = "3.00") -> None:
        """Prices arrive."""
        now = self.clock.now()
        offers = [
            Offer(
                OfferKey("local", region, f"{region}a", "v100", market),
                Decimal(price),
                now,
                "spot price history",
                0.25 if market is Market.SPOT else None,
            )
            for region in ("us-1", "eu-1")
            for market, price in ((Market.SPOT, spot), (Market.ON_DEMAND, on_demand))
        ]
        self._store.record_prices(offers)
        self.engine.use_offers({offer.key: offer for offer in offers})
        self.record([])

    def pass_time(self, seconds: float) -> None:
        """Move the clock."""
        self.clock.time += timedelta(seconds=seconds)

    def instance(self) -> Instance:
        """The newest."""
        return max(self.world.instances.values(), key=lambda i: (i.request.attempt, i.try_number))

    def run_job(self) -> Instance:
        """Bring the newest attempt to where its workload runs and has saved once."""
        now, instance = self.clock.now(), self.instance()
        self.record([e.LaunchSucceeded(now, instance.id, "i-1", now)])
        self.record([e.AgentReady(now, instance.id, None, None, 1.0, 0.0, 0.0)])
        self.record([e.WorkloadStarted(now, instance.id), e.ProgressReported(now, instance.id, 120, 2.5)])
        number = instance.request.attempt
        saved = Checkpoint(f"{number:05d}-000001", instance.job_id, number, 1, 100, 2, 5_000, "0" * 64, now)
        self.record([e.CheckpointCommitted(now, instance.id, saved)])
        return instance

    def write_log(self, job_id: str, attempt: int, text: bytes) -> None:
        """An agent sends output."""
        path = self.root / "logs" / job_id / f"{attempt:05d}-000.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as stream:
            stream.write(text)

    def restart_server(self, between: Callable[[], object]) -> None:
        """The daemon goes away and comes back; what it knows is on disk."""
        self._server.stop()
        between()
        self.control = replace(self.control, closing=asyncio.Event(), submitting=asyncio.Lock())
        self._server = _Server(self.control, self.socket)
        self._server.start()

    def _savings(self, since: datetime | None, until: datetime | None, by: str) -> Mapping[str, Any]:
        return savings_report(self.reader, {"local": ("aws", 600)}, now=self.clock.now(), since=since, until=until, by=by)

    def _health(self) -> Mapping[str, Any]:
        return self.health()

    # Requests.

    def call(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
        """One request: the status and the JSON. `body` may be bytes, or something to make JSON of."""
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        status, _, content = self.raw(method, path, raw, headers)
        return status, json.loads(content)

    def raw(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """One request: the status, the headers and the bytes."""
        connection = http.client.HTTPConnection("spotd", timeout=30)
        connection.sock = socket.socket(socket.AF_UNIX)
        try:
            connection.sock.connect(str(self.socket))
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return response.status, dict(response.headers), response.read()
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """An answer that must be 200."""
        status, answer = self.call("GET", path)
        assert status == 200, answer
        return answer

    def submit(self, text: str = JOB, **more: object) -> str:
        """A job that must be taken; its id."""
        status, answer = self.call("POST", "/v1/jobs", {"yaml": text, "file": "job.yaml", **more})
        assert status == 201, answer
        return str(answer["job"]["id"])

    def facts(self) -> tuple[object, ...]:
        """All that a refused request must leave as it was."""
        return (self.world, self.reader.last_seq(), self.commits, sorted(str(p) for p in (self.root / "workdirs").rglob("*") if p.is_file()))


class _Server:
    """The application in a thread of its own."""

    def __init__(self, control: Control, path: Path) -> None:
        self._control = control
        self._path = path
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(30)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner = control_runner(make_control_app(self._control))
        self._loop.run_until_complete(runner.setup())
        self._loop.run_until_complete(web.UnixSite(runner, str(self._path)).start())
        self._loop.call_soon(self._ready.set)
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
