"""A world with one job on one instance, a recorder that keeps it in memory, and a caller of the agents' API."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp.test_utils import TestClient, TestServer

from spotd.core import events as e
from spotd.core.attempt import Checkpoint, Purpose
from spotd.core.fold import fold
from spotd.core.instance import Instance, LaunchRequest
from spotd.core.job import Job, JobSpec
from spotd.core.offer import Market, OfferKey
from spotd.core.plan import Hold, Snapshot
from spotd.core.policy import Candidate, Policy, SpotHandlers
from spotd.core.world import World
from spotd.daemon.agent_api import AgentServices, make_agent_app
from spotd.daemon.agent_builds import AgentBuilds
from spotd.daemon.agent_spec import manifest_key
from spotd.daemon.agent_zip import AgentZip
from spotd.daemon.credentials import Credentials
from spotd.daemon.directory_store import DirectoryStore
from spotd.ports import Capabilities, MetadataKind

START = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
JOB, ATTEMPT, INSTANCE = "job-1", "attempt-1", "instance-1"
NONCE = "0123456789abcdef0123456789abcdef"
OFFER = OfferKey("local", "here", "here-a", "v100", Market.SPOT)
POLICY = Policy(
    "cheap",
    (Candidate("local", ("v100",), ("here",)),),
    SpotHandlers(pre_reclaim_hook="python save.py"),
    replace_when_unreachable=timedelta(minutes=30),
)
CAPABILITIES = Capabilities(
    notice=timedelta(seconds=120),
    boot_timeout=timedelta(minutes=10),
    heartbeat=timedelta(seconds=10),
    metadata_poll=timedelta(seconds=2),
    metadata=MetadataKind.IMDS,
    listing_lag=timedelta(0),
    billing_rule="local",
)


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

    def step(self, seconds: float) -> None:
        """Move on."""
        self.time += timedelta(seconds=seconds)


class MemoryRecorder:
    """Folds events into a world. `broken` makes it refuse them, as a full disk would."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.events: list[e.Event] = []
        self.commits = 0
        self.calls: list[str] = []
        self.broken: Exception | None = None
        #: Called while a commit is under way.
        self.meanwhile: Callable[[], object] = lambda: None

    def record(self, events: Sequence[e.Event]) -> None:
        """Fold, or fail with nothing changed."""
        self.meanwhile()
        if self.broken is not None:
            raise self.broken
        self.world, _ = fold(self.world, events)
        self.events += events
        self.commits += 1

    def heard(self, instance_id: str) -> None:
        """Note who called."""
        self.calls.append(instance_id)

    def snapshot(self) -> Snapshot:
        """Of no use to agents."""
        raise NotImplementedError

    def holds(self) -> Mapping[str, Hold]:
        """Of no use to agents."""
        raise NotImplementedError

    @property
    def journal(self) -> list[e.Event]:
        """What the journal would keep."""
        return [event for event in self.events if event.journaled]

    @property
    def instance(self) -> Instance:
        """The one instance, as recorded."""
        return self.world.instances[INSTANCE]


def a_job(**spec: Any) -> Job:
    """A job that trains and saves."""
    defaults: dict[str, Any] = {"name": "llama-ft", "policy": "cheap", "run": "python train.py", "checkpoint_dir": "ckpt"}
    return Job(JOB, JobSpec(**{**defaults, **spec}), "alice", START - timedelta(hours=1))


def an_instance(name: str = INSTANCE, attempt: str = ATTEMPT, number: int = 1) -> Instance:
    """One that was just asked for."""
    request = LaunchRequest(name, "d", JOB, "llama-ft", number, 0, OFFER, None, START + timedelta(days=8))
    asked = START - timedelta(minutes=5)
    return Instance(name, JOB, attempt, 0, 1, request, Decimal("1.5"), "cheapest", asked)


def a_world(job: Job | None = None) -> World:
    """One job, placed, its instance launched."""
    placed: list[e.Event] = [
        e.JobSubmitted(START, job or a_job()),
        e.AttemptPlaced(START, JOB, ATTEMPT, 1, Purpose.START),
        e.LaunchRequested(START - timedelta(minutes=5), an_instance()),
        e.LaunchSucceeded(START - timedelta(minutes=4), INSTANCE, "i-1", START - timedelta(minutes=4)),
    ]
    return fold(World("d"), placed)[0]


def a_checkpoint(sequence: int, attempt: int = 1) -> Checkpoint:
    """A committed one."""
    return Checkpoint(f"{attempt:05d}-{sequence:06d}", JOB, attempt, sequence, sequence * 10, 1, 5, f"{sequence:064x}", START)


@dataclass
class Answer:
    """What came back."""

    status: int
    content: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.content)


@dataclass
class Daemon:
    """The API over a recorder, in a loop of its own that runs while a request does."""

    directory: Path
    recorder: MemoryRecorder = field(default_factory=lambda: MemoryRecorder(a_world()))
    clock: StepClock = field(default_factory=StepClock)
    credentials: Credentials = field(default_factory=lambda: Credentials(b"k" * 32))
    policies: dict[str, Policy] = field(default_factory=lambda: {"cheap": POLICY})
    object_limit: int = 1 << 20
    #: Changes the services before the application is made.
    tune: Callable[[AgentServices], AgentServices] = lambda services: services

    def __enter__(self) -> Self:
        self.store = DirectoryStore(self.directory / "objects", self.credentials)
        self.workdirs = DirectoryStore(self.directory / "workdirs", self.credentials)
        self.builds = AgentBuilds(self.directory / "agents")
        services = AgentServices(
            recorder=self.recorder,
            clock=self.clock,
            credentials=self.credentials,
            store=self.store,
            agent_zip=AgentZip(b"the agent", "0" * 64),
            builds=self.builds,
            policy=self.policies.get,
            capabilities={"local": CAPABILITIES},
            logs=self.directory / "logs",
            workdirs=self.workdirs,
            object_limit=self.object_limit,
        )
        self._loop = asyncio.new_event_loop()
        server = TestServer(make_agent_app(self.tune(services)))
        self._loop.run_until_complete(server.start_server(auto_decompress=False, access_log=None))
        self.port = server.port
        self._client = self._loop.run_until_complete(_client(server))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def request(self, method: str, path: str, **options: Any) -> Answer:
        """One request. The path is sent as it stands."""
        return self._loop.run_until_complete(self._request(method, path, **options))

    def together(self, *requests: tuple[str, str, dict[str, Any]]) -> list[Answer]:
        """Several requests at once."""

        async def gather() -> list[Answer]:
            return await asyncio.gather(*(self._request(m, p, **o) for m, p, o in requests))

        return self._loop.run_until_complete(gather())

    def run(self, task: Coroutine[Any, Any, None]) -> None:
        """Let the daemon work while a task of the caller's does."""
        self._loop.run_until_complete(task)

    def until(self, holds: Callable[[], bool]) -> None:
        """Let the daemon work until something holds."""

        async def wait() -> None:
            async with asyncio.timeout(30):
                while not holds():  # noqa: ASYNC110 - what is waited for happens in threads and on the disk
                    await asyncio.sleep(0.001)

        self._loop.run_until_complete(wait())

    async def _request(self, method: str, path: str, **options: Any) -> Answer:
        async with self._client.request(method, path, **options) as response:
            return Answer(response.status, await response.read(), response.headers)

    def bootstrap(self, instance: str = INSTANCE, **changes: Any) -> Answer:
        """The agent's first call."""
        body = {
            "instance": instance,
            "credential": self.credentials.bootstrap(instance),
            "nonce": NONCE,
            "boot_id": "b",
            "agent": "0" * 64,
        }
        return self.request("POST", "/v1/agent/bootstrap", json={**body, **changes})

    def session(self, instance: str = INSTANCE) -> dict[str, str]:
        """The headers of an agent that has bootstrapped, now if it had not yet."""
        if self.recorder.world.instances[instance].session_sha256 is None:
            assert self.bootstrap(instance).status == 200
        return {"Authorization": f"Bearer {self.credentials.session(instance, NONCE)}"}

    def sync(self, *messages: dict[str, Any], instance: str = INSTANCE, **changes: Any) -> Answer:
        """A heartbeat. Messages are numbered by the caller."""
        return self.request("POST", "/v1/agent/sync", json=a_sync(*messages, **changes), headers=self.session(instance))

    def commit_manifest(self, checkpoint: str, body: bytes = b"{}") -> None:
        """Put a manifest into the store, as an agent does before it says so."""
        self.store.put(manifest_key(JOB, checkpoint), body)

    def open_gate(self) -> None:
        """What the planner decides once nothing else of the job runs."""
        self.recorder.record([e.GateOpened(self.clock.now(), ATTEMPT, None, "nothing else runs")])

    def change_instance(self, **changes: Any) -> None:
        """Alter the instance's row."""
        instances = {**self.recorder.world.instances, INSTANCE: replace(self.recorder.instance, **changes)}
        self.recorder.world = replace(self.recorder.world, instances=instances)


async def _client(server: TestServer) -> TestClient[Any, Any]:
    return TestClient(server)


def a_sync(*messages: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The body of a heartbeat."""
    body: dict[str, Any] = {
        "state": "booting",
        "acknowledged_drain": None,
        "progress": {"step": None, "loss": None, "checkpoint_step": None},
        "next_sequence": 1,
        "objects_per_checkpoint": 2,
        "messages": list(messages),
    }
    return {**body, **changes}


READY: dict[str, Any] = {"type": "ready", "restored_checkpoint": None, "restored_step": None, "boot_s": 9.0, "restore_s": 1.0, "setup_s": 2.0}
STARTED: dict[str, Any] = {"type": "started"}
NOTICE: dict[str, Any] = {"type": "notice", "notice_id": "n", "kind": "reclaim", "source": "imds", "action": "terminate", "seconds_left": 100.0}
DRAINED: dict[str, Any] = {
    "type": "drained",
    "kind": "reclaim",
    "step": 20,
    "checkpoint": None,
    "saved": True,
    "seconds_used": 41.0,
    "seconds_given": 120.0,
    "hook_exit": 0,
    "hook_s": 3.0,
    "detail": "the job ended by itself",
}
EXITED: dict[str, Any] = {"type": "exited", "code": 0, "signal": None, "done": True, "step": 30}
FAILED: dict[str, Any] = {"type": "failed", "phase": "setup", "code": 1, "detail": "setup exited with 1"}
CHECKPOINT: dict[str, Any] = {
    "type": "checkpoint",
    "checkpoint": "00001-000001",
    "sequence": 1,
    "step": 10,
    "files": 1,
    "bytes": 5,
    "manifest_sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
    "save_s": 1.0,
    "upload_s": 2.0,
    "trigger": "announced",
}


def said(message: dict[str, Any], seq: int, age_s: float = 0.0) -> dict[str, Any]:
    """A message with its number and age."""
    return {**message, "seq": seq, "age_s": age_s}
