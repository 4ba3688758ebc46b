"""Which store the checkpoints of a deployment lie in, and when another one is taken up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from spotd.config.daemon import Checkpoints, DaemonConfig, parse_daemon_config
from spotd.core.errors import InvalidRequest, NotAuthorized, ProviderUnavailable, Throttled
from spotd.core.instance import InstanceState
from spotd.core.job import Outcome
from spotd.core.world import World
from spotd.daemon import plugins
from spotd.daemon.checkpoints import open_checkpoints, try_store
from spotd.daemon.plugins import StoreProblem, open_store
from spotd.ports import AlreadyExists, ObjectInfo, ObjectStore
from tests.contract.agent_world import INSTANCE, JOB, a_checkpoint, a_world


class Memory:
    """A store in memory; `trouble` is asked before each use and may raise."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.trouble: Callable[[str], None] = lambda _use: None
        self.keeps_its_word = True

    def put(self, key: str, body: bytes, *, create_only: bool = False) -> None:
        """Write."""
        self.trouble("put")
        if create_only and key in self.objects and self.keeps_its_word:
            raise AlreadyExists(key)
        self.objects[key] = body

    def get(self, key: str) -> bytes:
        """Read."""
        self.trouble("get")
        return self.objects[key]

    def head(self, key: str) -> ObjectInfo:
        """Look."""
        return ObjectInfo(key, len(self.objects[key]))

    def list(self, prefix: str) -> list[str]:
        """List."""
        return sorted(key for key in self.objects if key.startswith(prefix))

    def delete(self, key: str) -> None:
        """Remove."""
        self.trouble("delete")
        self.objects.pop(key, None)

    def sign(self, method: str, key: str, expires_at: datetime, *, create_only: bool = False) -> str:
        """The key itself."""
        return key

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture(name="memory")
def _memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Installed as the store of `mem://`."""
    memory = Memory()
    _install(monkeypatch, lambda _url, _settings: memory)
    return memory


def _install(monkeypatch: pytest.MonkeyPatch, make: Callable[[str, Mapping[str, object]], ObjectStore]) -> None:
    class Point:
        name = "mem"
        module = "spotd_mem.store"

        @staticmethod
        def load() -> Any:
            return make

    monkeypatch.setattr(plugins, "entry_points", lambda group: [Point()] if group == "spotd.stores" else [])


def _config(state: Path, store: str | None = None, **more: str) -> DaemonConfig:
    return replace(parse_daemon_config(""), state_dir=state, checkpoints=Checkpoints(store, **more))


def _open(config: DaemonConfig, world: World, directory: ObjectStore | None = None) -> ObjectStore:
    return open_checkpoints(config, world, lambda: directory or Memory())


def _busy(*, saved: bool = True) -> World:
    """An unfinished job with or without a committed checkpoint, whose instance is gone."""
    world = a_world()
    gone = replace(world.instances[INSTANCE], state=InstanceState.GONE)
    return replace(world, instances={INSTANCE: gone}, checkpoints={JOB: (a_checkpoint(1),)} if saved else {})


def test_without_a_store_it_is_the_daemons_directory(tmp_path: Path) -> None:
    """Nothing is written down for it: a state directory from before there was a choice means the same."""
    directory = Memory()
    assert _open(_config(tmp_path), _busy(), directory) is directory
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_taken_up_tried_and_kept(tmp_path: Path, memory: Memory) -> None:
    """Nothing of the trial is left; from then on the store is in use whatever unfinished jobs there are."""
    config = _config(tmp_path, "mem://bucket/prefix")
    assert _open(config, World("d")) is memory
    assert memory.objects == {}
    assert (tmp_path / "checkpoint-store").read_text() == "mem://bucket/prefix\n"
    assert _open(config, _busy()) is memory
    assert _open(replace(config, checkpoints=Checkpoints("mem://bucket/prefix", "eu-west-1", None, "other")), _busy()) is memory


@pytest.mark.parametrize(
    ("before", "after", "step"),
    [
        (Checkpoints(), Checkpoints("mem://new"), r"lie in the daemon's own directory, .* says mem://new: take \[checkpoints\] store out"),
        (Checkpoints("mem://old"), Checkpoints("mem://new"), r"lie in mem://old, .* says mem://new: set \[checkpoints\] to mem://old again"),
        (Checkpoints("mem://old"), Checkpoints(), "set .* to mem://old again"),
        (
            Checkpoints("mem://old"),
            Checkpoints("mem://old", endpoint_url="https://minio"),
            "says mem://old at https://minio: .* write its new address into .*/checkpoint-store",
        ),
    ],
)
def test_a_store_that_jobs_need_is_not_exchanged(tmp_path: Path, memory: Memory, before: Checkpoints, after: Checkpoints, step: str) -> None:
    """The sentence names the jobs and what to do; nothing was changed by the attempt, and without the jobs it is no question."""
    config = _config(tmp_path)
    _open(replace(config, checkpoints=before), World("d"))
    with pytest.raises(StoreProblem, match=step) as caught:
        _open(replace(config, checkpoints=after), _busy())
    assert "unfinished jobs (llama-ft)" in str(caught.value)
    _open(replace(config, checkpoints=before), _busy())
    _open(replace(config, checkpoints=after), _busy(saved=False))


def test_an_agent_that_may_still_write_ties_its_store(tmp_path: Path, memory: Memory) -> None:
    """Its first checkpoint is on the way to where its addresses lead: nobody would find it. A finished job ties nothing."""
    world = a_world()
    with pytest.raises(StoreProblem, match="llama-ft"):
        _open(_config(tmp_path, "mem://new"), world)
    done = replace(_busy(), jobs={JOB: replace(world.jobs[JOB], outcome=Outcome.SUCCEEDED)})
    _open(_config(tmp_path, "mem://new"), done)


def test_many_jobs_are_named_in_short(tmp_path: Path, memory: Memory) -> None:
    """Three names and a number."""
    world = _busy()
    jobs = {f"job-{n}": replace(world.jobs[JOB], id=f"job-{n}", spec=replace(world.jobs[JOB].spec, name=f"train-{n}")) for n in range(7)}
    world = replace(world, jobs=jobs, checkpoints={name: (a_checkpoint(1),) for name in jobs})
    with pytest.raises(StoreProblem, match=r"\(train-0, train-1, train-2 and 4 more\)"):
        _open(_config(tmp_path, "mem://new"), world)


@pytest.mark.parametrize("error", [ProviderUnavailable("no answer"), Throttled("slow down")])
@pytest.mark.parametrize("use", ["put", "get", "delete"])
def test_a_store_that_does_not_answer_is_waited_for(
    tmp_path: Path, memory: Memory, caplog: pytest.LogCaptureFixture, error: Exception, use: str
) -> None:
    """The daemon starts, and says so: agents run without it meanwhile, and a store comes back."""
    memory.trouble = _raises(use, error)
    with caplog.at_level(logging.WARNING):
        assert _open(_config(tmp_path, "mem://bucket"), World("d")) is memory
    assert f"the checkpoint store mem://bucket does not answer; spotd goes on, and asks again when it is needed: {error}" in caplog.text


def _raises(use: str, error: Exception) -> Callable[[str], None]:
    def trouble(asked: str) -> None:
        if asked == use:
            raise error

    return trouble


@pytest.mark.parametrize("error", [NotAuthorized("may not do s3:PutObject", "AccessDenied"), InvalidRequest("there is no bucket")])
@pytest.mark.parametrize("use", ["put", "get", "delete"])
def test_a_store_that_refuses_us_is_said_at_the_start(
    tmp_path: Path, memory: Memory, caplog: pytest.LogCaptureFixture, error: Exception, use: str
) -> None:
    """Ops hear it while they look. With jobs that depend on the daemon it starts all the same: their reclaims need it more than the store does."""
    config = _config(tmp_path, "mem://bucket")
    memory.trouble = _raises(use, error)
    with pytest.raises(StoreProblem, match=r"\[checkpoints\] mem://bucket cannot be used: (may not|there is no bucket)"):
        _open(config, World("d"))
    assert not (tmp_path / "checkpoint-store").exists()

    memory.trouble = lambda _use: None
    _open(config, World("d"))
    memory.trouble = _raises(use, error)
    assert _open(config, _busy()) is memory
    assert f"the checkpoint store mem://bucket cannot be used, and jobs need it: {error}" in caplog.text


def test_a_store_that_replaces_what_it_must_not_is_refused(memory: Memory) -> None:
    """Not every compatible store knows conditional writes: two manifests under one name would be a lost checkpoint."""
    memory.keeps_its_word = False
    with pytest.raises(InvalidRequest, match="If-None-Match"):
        try_store(memory)
    assert memory.objects == {}


def test_a_store_that_forgets_is_refused(memory: Memory) -> None:
    """What was written must be there."""
    memory.trouble = lambda use: memory.objects.clear() if use == "get" else None
    with pytest.raises(InvalidRequest, match="not found again"):
        try_store(memory)


def test_a_store_that_nobody_brought_is_a_sentence(monkeypatch: pytest.MonkeyPatch, memory: Memory) -> None:
    """Unknown scheme, missing library, wrong settings: each names the key or the package."""
    with pytest.raises(StoreProblem, match=r"\[checkpoints\] store: no store for ftp:// is installed \(installed: mem://\)"):
        open_store("ftp://x", {})

    def lacking(_url: str, _settings: Mapping[str, object]) -> ObjectStore:
        raise ModuleNotFoundError("No module named 'sdk'", name="sdk")

    _install(monkeypatch, lacking)
    with pytest.raises(StoreProblem, match=r"sdk is not installed: pip install 'spotd\[mem\]'"):
        open_store("mem://x", {})

    def wrong(_url: str, _settings: Mapping[str, object]) -> ObjectStore:
        raise ValueError("region: is not one")

    _install(monkeypatch, wrong)
    with pytest.raises(StoreProblem, match=r"\[checkpoints\] region: is not one"):
        open_store("mem://x", {})


def test_s3_is_installed() -> None:
    """The entry point is there and leads somewhere."""
    store = open_store("s3://bucket/prefix", {"region": "us-west-2"})
    assert type(store).__name__ == "S3Store"


@pytest.mark.parametrize(
    ("endpoint", "warned"), [("http://minio.example.com:9000", True), ("http://127.0.0.1:9000", False), ("https://minio", False)]
)
def test_checkpoints_in_the_clear_are_said(tmp_path: Path, memory: Memory, caplog: pytest.LogCaptureFixture, endpoint: str, *, warned: bool) -> None:
    """Ops may have it so, and are told at every start."""
    _open(_config(tmp_path, "mem://bucket", endpoint_url=endpoint), World("d"))
    assert ("travel unencrypted" in caplog.text) == warned


def test_a_note_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """It is not taken for the default."""
    (tmp_path / "checkpoint-store").mkdir()
    with pytest.raises(StoreProblem, match="checkpoint-store cannot be read"):
        _open(_config(tmp_path), World("d"))
