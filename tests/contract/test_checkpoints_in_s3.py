"""The agent's own upload and restore, and the daemon's API, with checkpoints in S3: real HTTP, signed addresses, a gate that checks them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from spotd.core.events import AgentBootstrapped
from spotd.daemon.agent_spec import AgentAddresses, manifest_key
from spotd.daemon.credentials import Credentials, sha256_hex
from spotd.daemon.unheard import unheard
from spotd.node.candidates import Candidate
from spotd.node.journal import Journal
from spotd.node.restore import Restorer
from spotd.node.spec import Resume
from spotd.node.targets import Targets
from spotd.node.upload import Result, Source, Uploader
from spotd.node.web import Web, WebError
from spotd.ports import ObjectStore
from spotd.testing.fake_aws import FakeAws
from spotd_aws.store import open_store
from tests.contract import agent_world as w
from tests.contract.agent_world import INSTANCE, JOB, NONCE, START, Daemon, a_world, an_instance, said
from tests.contract.aws_clients import client_of
from tests.contract.strict_s3 import Said, StrictS3, error
from tests.unit.node.fakes import certificate
from tests.unit.node.stepped import SteppedClock

_BUCKET = "training"


@pytest.fixture(scope="module", name="account")
def _account() -> Iterator[FakeAws]:
    with FakeAws(regions=("us-west-2",)) as aws:
        client_of(aws, "s3").create_bucket(Bucket=_BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        yield aws


@pytest.fixture(name="gate")
def _gate(account: FakeAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[StrictS3]:
    for name, value in account.environment().items():
        monkeypatch.setenv(name, value)
    with StrictS3(account) as gate:
        yield gate


@pytest.fixture(name="store")
def _store(gate: StrictS3, tmp_path: Path) -> Iterator[ObjectStore]:
    store = open_store(f"s3://{_BUCKET}/{tmp_path.name}", {"endpoint_url": gate.endpoint, "region": "us-west-2"})
    yield store
    store.close()


class _Instance(Web):
    """The agent's way to the store, over HTTP; its words to the daemon go to a signer at hand."""

    def __init__(self, addresses: AgentAddresses) -> None:
        super().__init__("https://127.0.0.1:1", certificate()[0])
        self.addresses = addresses
        origin = addresses.insecure_store(datetime.now(UTC))
        assert origin is not None
        self.allow_plain(origin)

    def call(self, url: str, message: Mapping[str, Any], *, session: str | None = None, timeout: float = 20.0) -> dict[str, Any]:
        assert url == "/v1/agent/sign"
        now, checkpoint = datetime.now(UTC), message["checkpoint"]
        objects = self.addresses.reading(JOB, checkpoint, message["objects"], now)
        return {"objects": objects, "manifest": self.addresses.manifest(JOB, checkpoint, now)}


class _Machine:
    """An instance with a checkpoint on its disk."""

    def __init__(self, directory: Path, store: ObjectStore, gate: StrictS3, attempt: int = 1) -> None:
        self.directory = directory / f"machine-{attempt}"
        self.ckpt = self.directory / "ckpt"
        self.ckpt.mkdir(parents=True)
        self.addresses = AgentAddresses(store, Credentials(bytes(32)))
        self.clock = SteppedClock()
        self.web = _Instance(self.addresses)
        self.journal = Journal(str(self.directory / "state.json"), self.clock, "boot")
        self.targets = Targets()
        self.instance = an_instance(number=attempt)
        self.gate = gate
        source = Source(JOB, attempt, str(self.ckpt), str(self.directory))
        self.uploader = Uploader(self.web, self.journal, self.clock, source, self.targets, self.hear)
        self.hear()

    def hear(self) -> None:
        """A sync: the daemon signs anew, and by its clock it is now."""
        self.gate.later = timedelta()
        count = self.journal.get("objects_per_checkpoint", 16)
        self.targets.hear(self.addresses.uploads(self.instance, self.journal.get("next_sequence", 1), count, datetime.now(UTC)))

    def save(self, **files: bytes) -> Result:
        """Write files and commit them."""
        for name, content in files.items():
            (self.ckpt / name).write_bytes(content)
        return self.uploader.commit(Candidate(None, 7, "announced", 1, "signature", 0.5))

    def restore(self, *resume: Resume) -> Mapping[str, bytes]:
        """What lies there after a restore."""
        web = Restorer(self.web, "session", str(self.ckpt), str(self.directory / "placed"), self.clock, threading.Event())
        web.newest(resume)
        return {path.name: path.read_bytes() for path in self.ckpt.iterdir()}

    def said(self) -> list[dict[str, Any]]:
        """The checkpoints that it tells of."""
        return [message for message in self.journal.unacknowledged() if message["type"] == "checkpoint"]


def _resume(machine: _Machine, store: ObjectStore) -> list[Resume]:
    """As the daemon finds it: by asking the store, for nobody has told it."""
    world = a_world()
    found = unheard(store, world, JOB, START)
    checkpoints = {JOB: tuple(event.checkpoint for event in found)}
    listed = machine.addresses.resume(replace(world, checkpoints=checkpoints), JOB, datetime.now(UTC))
    return [Resume(entry["checkpoint"], entry["manifest_url"], entry["manifest_sha256"]) for entry in listed]


def test_a_checkpoint_goes_to_s3_and_comes_back_elsewhere(store: ObjectStore, gate: StrictS3, tmp_path: Path) -> None:
    """Uploaded by one agent, found by the daemon although never told, restored by another agent: the same bytes."""
    files = {"weights": bytes(range(256)) * 4096, "meta": b"{}", "empty": b""}
    one = _Machine(tmp_path, store, gate)
    assert one.save(**files) is Result.COMMITTED
    two = _Machine(tmp_path, store, gate, attempt=2)
    (resume,) = _resume(two, store)

    assert two.restore(resume) == files
    assert resume.manifest_sha256 == one.said()[0]["manifest_sha256"]
    assert two.save(weights=b"more") is Result.COMMITTED
    assert [entry.checkpoint for entry in _resume(two, store)] == ["00002-000001", "00001-000001"]


def test_expired_addresses_are_replaced_on_the_way(store: ObjectStore, gate: StrictS3, tmp_path: Path) -> None:
    """An agent that was without its daemon for longer than addresses live asks for new ones, to upload and to restore."""
    one = _Machine(tmp_path, store, gate)
    gate.later = timedelta(hours=25)
    assert one.save(weights=b"x" * 100_000) is Result.COMMITTED

    two = _Machine(tmp_path, store, gate, attempt=2)
    resume = _resume(two, store)
    gate.later = timedelta(hours=25)
    sign = two.web.addresses.manifest

    def sign_now(job_id: str, checkpoint: str, now: datetime) -> str:
        gate.later = timedelta()
        return sign(job_id, checkpoint, now)

    two.web.addresses.manifest = sign_now  # type: ignore[method-assign] # a daemon whose clock goes with S3's
    assert two.restore(*resume) == {"weights": b"x" * 100_000}


@pytest.mark.parametrize("refusal", [error(503, "SlowDown"), error(500, "InternalError"), error(409, "ConditionalRequestConflict")])
def test_a_store_that_asks_for_patience_gets_it(store: ObjectStore, gate: StrictS3, tmp_path: Path, refusal: Said) -> None:
    """Waits that grow, then the checkpoint; committed once, and told once."""
    one = _Machine(tmp_path, store, gate)
    left = [4]

    def refuse(method: str, path: str, _query: str) -> Said | None:
        if method == "PUT" and path.endswith("manifest.json") and left[0]:
            left[0] -= 1
            return refusal
        return None

    gate.instead = refuse
    begun = one.clock.monotonic()

    assert one.save(weights=b"x") is Result.COMMITTED
    assert len(one.said()) == 1
    assert one.clock.monotonic() - begun > 1.0


def test_of_two_agents_with_one_number_one_commits(store: ObjectStore, gate: StrictS3, tmp_path: Path) -> None:
    """Whoever holds the address of a manifest cannot replace one: the second agent takes the next number."""
    one, two = _Machine(tmp_path / "a", store, gate), _Machine(tmp_path / "b", store, gate)
    assert one.save(weights=b"first") is Result.COMMITTED
    manifest = store.get(manifest_key(JOB, "00001-000001"))

    assert two.save(weights=b"second") is not Result.COMMITTED
    assert two.said() == []
    assert store.get(manifest_key(JOB, "00001-000001")) == manifest
    target = two.addresses.uploads(two.instance, 1, 1, datetime.now(UTC))[0]["manifest"]
    with pytest.raises(WebError, match="SignatureDoesNotMatch"):
        two.web.put(target, b"{}", 2)


def test_a_refused_upload_is_told_in_short(store: ObjectStore, gate: StrictS3, tmp_path: Path) -> None:
    """S3's document becomes one line, without an address in it."""
    one = _Machine(tmp_path, store, gate)
    gate.instead = lambda *_: error(400, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed size\n" * 30)

    assert one.save(weights=b"x") is Result.UNFIT
    assert str(one.uploader.problem) == "checkpoint  cannot be stored: weights has 1 bytes, more than the store takes in one object"


# The daemon -------------------------------------------------------------------------------------------------------------------


@pytest.fixture(name="daemon")
def _daemon(store: ObjectStore, tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path / "state", tune=lambda services: replace(services, store=store))
    # Addresses end by S3's clock.
    daemon.clock.time = datetime.now(UTC)
    with daemon:
        yield daemon


def test_the_daemon_hands_out_addresses_of_s3(daemon: Daemon, gate: StrictS3, store: ObjectStore) -> None:
    """The store's origin is named once, addresses are absolute, and a manifest that is in S3 makes a checkpoint."""
    spec = daemon.bootstrap().json["spec"]
    assert spec["insecure_store"] == gate.endpoint
    upload = daemon.sync().json["uploads"][0]
    for url in (*upload["objects"], upload["manifest"]):
        assert f"{urlsplit(url).scheme}://{urlsplit(url).netloc}" == gate.endpoint
    body = b'{"format": 1}'
    store.put(manifest_key(JOB, "00001-000001"), body)
    told = {**w.CHECKPOINT, "manifest_sha256": hashlib.sha256(body).hexdigest()}
    assert daemon.sync(said(told, 1)).json["acknowledged"] == 1
    answer = daemon.request("POST", "/v1/agent/sign", json={"checkpoint": "00001-000001", "objects": [0]}, headers=daemon.session()).json
    web = Web("https://127.0.0.1:1", certificate()[0])
    web.allow_plain(gate.endpoint)
    assert web.read(answer["manifest"], 100) == body
    assert daemon.request("GET", "/o/jobs/j/0000?expires=1&method=GET&signature=0").status == 401


def test_a_store_that_is_away_keeps_no_order_from_an_agent(daemon: Daemon, gate: StrictS3) -> None:
    """Without the store nobody is told what to resume from; whoever runs hears what he must, and keeps the addresses he has."""
    daemon.session()
    gate.instead = lambda *_: error(503, "ServiceUnavailable")
    answer = daemon.sync(said(w.NOTICE, 1), said({**w.CHECKPOINT}, 2))
    assert (answer.status, answer.json["acknowledged"]) == (200, 1)
    gate.instead = lambda *_: None


def test_credentials_that_are_gone_keep_no_order_from_an_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No addresses can be signed: the list is empty, the rest of the answer is there, and nobody begins a job without them."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    store = open_store("s3://training", {"endpoint_url": "http://127.0.0.1:9", "region": "us-west-2"})
    with Daemon(tmp_path, tune=lambda services: replace(services, store=store)) as daemon:
        session = daemon.credentials.session(INSTANCE, NONCE)
        daemon.recorder.record([AgentBootstrapped(START, INSTANCE, sha256_hex(NONCE), sha256_hex(session), None)])
        headers = {"Authorization": f"Bearer {session}"}
        answer = daemon.sync(said(w.NOTICE, 1))
        assert (answer.status, answer.json["acknowledged"], answer.json["uploads"]) == (200, 1, [])
        assert daemon.bootstrap().status == 503
        daemon.recorder.world = replace(daemon.recorder.world, checkpoints={JOB: (w.a_checkpoint(1),)})
        asked = {"checkpoint": "00001-000001", "objects": [0]}
        assert daemon.request("POST", "/v1/agent/sign", json=asked, headers=headers).status == 503
    store.close()
