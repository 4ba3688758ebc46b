"""What every object store keeps to, whoever it is: the daemon's directory, and S3 over real HTTP."""

from __future__ import annotations

import hashlib
import http.client
import io
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typing_extensions import override

from spotd.core.object_key import InvalidKey
from spotd.daemon.checkpoints import try_store
from spotd.ports import AlreadyExists, ObjectStore
from spotd.testing.fake_aws import FakeAws
from spotd_aws.store import open_store
from tests.contract.agent_world import Daemon
from tests.contract.aws_clients import client_of
from tests.contract.strict_s3 import StrictS3

_BUCKET = "checkpoints"
_CREATE = {"If-None-Match": "*"}


class Place(ABC):
    """A store, and what a holder of its addresses can do."""

    store: ObjectStore

    @abstractmethod
    def request(self, method: str, url: str, data: bytes | None = None, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """Use an address; status and body."""

    @abstractmethod
    def now(self) -> datetime:
        """The time by which addresses end."""

    @abstractmethod
    def step(self, seconds: float) -> None:
        """Let time pass."""

    def address(self, method: str, key: str, seconds: float = 60, *, create_only: bool = False) -> str:
        """A signed one."""
        return self.store.sign(method, key, self.now() + timedelta(seconds=seconds), create_only=create_only)


class Directory(Place):
    """The daemon's own, behind its API."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.store = daemon.store

    @override
    def request(self, method: str, url: str, data: bytes | None = None, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        answer = self._daemon.request(method, url, data=None if data is None else io.BytesIO(data), headers=dict(headers or {}))
        return answer.status, answer.content

    @override
    def now(self) -> datetime:
        return self._daemon.clock.now()

    @override
    def step(self, seconds: float) -> None:
        self._daemon.clock.step(seconds)


class Bucket(Place):
    """S3's, behind a gate that checks signatures."""

    def __init__(self, gate: StrictS3, prefix: str) -> None:
        self._gate = gate
        self.store = open_store(f"s3://{_BUCKET}/{prefix}", {"endpoint_url": gate.endpoint, "region": "eu-west-1"})

    @override
    def request(self, method: str, url: str, data: bytes | None = None, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        parts = urlsplit(url)
        with closing(http.client.HTTPConnection(parts.netloc, timeout=20)) as connection:
            connection.request(method, f"{parts.path}?{parts.query}", data, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read()

    @override
    def now(self) -> datetime:
        return datetime.now(UTC) + self._gate.later

    @override
    def step(self, seconds: float) -> None:
        self._gate.later += timedelta(seconds=seconds)


@pytest.fixture(scope="module", name="account")
def _account() -> Iterator[FakeAws]:
    with FakeAws(regions=("eu-west-1",)) as aws:
        client_of(aws, "s3", "eu-west-1").create_bucket(Bucket=_BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        yield aws


@pytest.fixture(name="place", params=["directory", "s3"])
def _place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with ExitStack() as stack:
        if request.param == "directory":
            yield Directory(stack.enter_context(Daemon(tmp_path, object_limit=1 << 24)))
            return
        account: FakeAws = request.getfixturevalue("account")
        for name, value in account.environment().items():
            monkeypatch.setenv(name, value)
        gate = stack.enter_context(StrictS3(account, page=3))
        place = Bucket(gate, tmp_path.name)
        stack.callback(place.store.close)
        yield place


def test_what_was_put_is_got_until_it_is_deleted(place: Place) -> None:
    """Put, get, head, list, replace, delete, and delete again."""
    store = place.store
    store.put("jobs/j/0000", b"weights")
    assert store.get("jobs/j/0000") == b"weights"
    info = store.head("jobs/j/0000")
    assert (info.key, info.size, info.sha256) == ("jobs/j/0000", 7, hashlib.sha256(b"weights").hexdigest())
    store.put("jobs/j/0000", b"")
    assert (store.get("jobs/j/0000"), store.head("jobs/j/0000").size) == (b"", 0)
    assert store.list("jobs/") == ["jobs/j/0000"]
    store.delete("jobs/j/0000")
    store.delete("jobs/j/0000")
    assert store.list("") == []


def test_absent_objects_are_key_errors(place: Place) -> None:
    """Nothing is there, not above an object, and not beside it."""
    place.store.put("jobs/j/0000", b"x")
    for key in ("absent", "jobs", "jobs/j", "jobs/j/000"):
        with pytest.raises(KeyError):
            place.store.get(key)
        with pytest.raises(KeyError):
            place.store.head(key)


def test_a_create_only_write_never_replaces(place: Place) -> None:
    """A manifest that exists stays what it is; an ordinary write replaces."""
    place.store.put("m", b"first", create_only=True)
    with pytest.raises(AlreadyExists):
        place.store.put("m", b"second", create_only=True)
    assert place.store.get("m") == b"first"
    place.store.put("m", b"third")
    assert place.store.get("m") == b"third"


def test_of_creators_at_the_same_time_one_wins(place: Place) -> None:
    """Exactly one succeeds, and its content stays."""
    won: list[bytes] = []
    start = threading.Barrier(6)

    def create(number: int) -> None:
        content = b"%d" % number
        start.wait()
        try:
            place.store.put("a/m", content, create_only=True)
        except AlreadyExists:
            return
        won.append(content)

    threads = [threading.Thread(target=create, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [place.store.get("a/m")]


def test_lists_are_whole_and_sorted(place: Place) -> None:
    """Also over several pages; exactly what begins with the prefix."""
    keys = [f"jobs/{job}/checkpoints/{n:05d}/manifest.json" for job in ("b", "a", "a1") for n in (2, 10, 1)]
    for key in keys:
        place.store.put(key, b"")
    assert place.store.list("jobs/") == sorted(keys)
    assert place.store.list("jobs/a/") == sorted(key for key in keys if key.startswith("jobs/a/"))
    assert place.store.list("jobs/a") == sorted(key for key in keys if key.startswith("jobs/a"))
    assert place.store.list("jobs/c/") == []


@pytest.mark.parametrize("key", ["", "/", "a/../b", "../a", "a//b", "/a", "a/", ".", "a/.b", "a\\b", "a\nb", "ä", "x" * 256])
def test_what_is_no_key_is_refused_everywhere(place: Place, key: str) -> None:
    """Nothing is written, read or signed that could be taken for another place."""
    store = place.store
    uses = (
        lambda: store.put(key, b"x"),
        lambda: store.put(key, b"x", create_only=True),
        lambda: store.get(key),
        lambda: store.head(key),
        lambda: store.delete(key),
        lambda: place.address("GET", key),
    )
    for use in uses:
        with pytest.raises(InvalidKey):
            use()


def test_a_holder_of_an_address_may_do_just_that(place: Place) -> None:
    """PUT, HEAD and GET without any credentials; another method or another object is refused."""
    body = bytes(range(256)) * 8192
    put = place.address("PUT", "jobs/j/0000")
    assert place.request("PUT", put, body)[0] == 200
    assert place.store.get("jobs/j/0000") == body
    assert place.store.head("jobs/j/0000").size == len(body)
    assert place.request("HEAD", place.address("HEAD", "jobs/j/0000"))[0] == 200
    get = place.address("GET", "jobs/j/0000")
    assert place.request("GET", get) == (200, body)
    assert place.request("GET", place.address("GET", "jobs/j/0001"))[0] == 404
    for method, url in (("GET", put), ("PUT", get), ("PUT", put.replace("0000", "0001")), ("GET", get.partition("?")[0])):
        status, content = place.request(method, url, b"stolen" if method == "PUT" else None)
        assert status in {401, 403}
        assert body not in content
    assert place.store.list("") == ["jobs/j/0000"]
    assert place.store.get("jobs/j/0000") == body


def test_an_address_for_creating_never_replaces(place: Place) -> None:
    """With the header it creates once; without, nothing is replaced either: that is not the holder's to choose."""
    url = place.address("PUT", "m", create_only=True)
    assert place.request("PUT", url, b"first", _CREATE)[0] == 200
    assert place.request("PUT", url, b"second", _CREATE)[0] == 412
    assert place.request("PUT", url, b"second")[0] in {403, 412}
    assert place.store.get("m") == b"first"


def test_addresses_end(place: Place) -> None:
    """After its time an address is worth nothing."""
    place.store.put("k", b"x")
    url = place.address("GET", "k", 600)
    assert place.request("GET", url)[0] == 200
    place.step(601)
    assert place.request("GET", url)[0] in {401, 403}


@pytest.mark.parametrize("key", ["a b/c", "a+b", "100%", "a=b&c?d#e", "it's(~)*!@$:;,[]{}|^`<>\""])
def test_every_printable_character_comes_through(place: Place, key: str) -> None:
    """Keys are theirs in lists, in addresses and in what is stored, however they are written in between."""
    assert place.request("PUT", place.address("PUT", key), b"x")[0] == 200
    assert place.store.list("") == [key]
    assert place.store.get(key) == b"x"
    assert place.request("GET", place.address("GET", key)) == (200, b"x")


def test_a_store_that_keeps_its_word_passes_the_trial(place: Place) -> None:
    """What the daemon tries at its start leaves nothing behind."""
    try_store(place.store)
    assert place.store.list("") == []


@pytest.mark.parametrize(("method", "options"), [("DELETE", {}), ("POST", {}), ("GET", {"create_only": True})])
def test_only_what_agents_need_is_signed(place: Place, method: str, options: dict[str, Any]) -> None:
    """No address deletes, and only a PUT can be create-only."""
    with pytest.raises(ValueError, match="signed"):
        place.address(method, "k", **options)
