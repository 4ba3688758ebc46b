"""Objects in a directory."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotd.core.object_key import InvalidKey, check_key
from spotd.daemon.credentials import Credentials
from spotd.daemon.directory_store import DirectoryStore
from spotd.ports import AlreadyExists, ObjectStore

CREDENTIALS = Credentials(b"k" * 32)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DirectoryStore]:
    """An empty store; at its end nothing may be left half received."""
    store = DirectoryStore(tmp_path / "objects", CREDENTIALS)
    yield store
    assert not list((tmp_path / "objects" / ".incoming").iterdir())


def files_of(root: Path) -> list[str]:
    """Every file below a directory."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_store_is_an_object_store(store: ObjectStore) -> None:
    """What was put is got, listed and told of, until it is deleted."""
    store.put("jobs/j/0000", b"weights")
    assert store.get("jobs/j/0000") == b"weights"
    info = store.head("jobs/j/0000")
    assert (info.key, info.size, info.sha256) == ("jobs/j/0000", 7, hashlib.sha256(b"weights").hexdigest())
    store.put("jobs/j/0000", b"other")
    assert store.get("jobs/j/0000") == b"other"
    store.delete("jobs/j/0000")
    store.delete("jobs/j/0000")
    assert store.list("") == []


@pytest.mark.parametrize("key", ["absent", "jobs", "jobs/j/0000/below", "jobs/j"])
def test_absent_objects_are_key_errors(store: DirectoryStore, key: str) -> None:
    """A directory is no object, and nothing lies below one."""
    store.put("jobs/j/0000", b"x")
    for read in (store.get, store.head, store.open):
        with pytest.raises(KeyError):
            read(key)
    store.delete(key)
    assert store.list("") == ["jobs/j/0000"]


def test_create_only_keeps_what_is_there(store: DirectoryStore) -> None:
    """A manifest that exists is never replaced by a create-only write."""
    store.put("m", b"first", create_only=True)
    with pytest.raises(AlreadyExists):
        store.put("m", b"second", create_only=True)
    assert store.get("m") == b"first"


def test_one_of_many_creators_wins(store: DirectoryStore) -> None:
    """Of creators at the same time exactly one succeeds, and its content stays."""
    won: list[int] = []
    start = threading.Barrier(8)

    def create(number: int) -> None:
        start.wait()
        try:
            store.put("a/b/m", b"%d" % number, create_only=True)
            won.append(number)
        except AlreadyExists:
            pass

    threads = [threading.Thread(target=create, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.get("a/b/m")] == [b"%d" % n for n in won]


def test_writers_and_deleters_of_neighbours_do_not_hinder_each_other(store: DirectoryStore) -> None:
    """A delete prunes empty directories; a write into one at the same moment still succeeds."""

    def churn(number: int) -> None:
        for _ in range(30):
            store.put(f"a/b/{number}", b"x")
            store.delete(f"a/b/{number}")

    threads = [threading.Thread(target=churn, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.list("") == []


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "/etc/passwd",
        "..",
        "a/../b",
        "../a",
        "a//b",
        "a/",
        ".",
        "a/./b",
        ".incoming/x",
        "a/.hidden",
        "a\\b",
        "a\nb",
        "ä",
        "\0",
        "x" * 256,
        "a/" * 600 + "a",
    ],
)
def test_keys_that_could_escape_are_refused_everywhere(store: DirectoryStore, key: str, tmp_path: Path) -> None:
    """No method touches the disk for a key that is not a plain relative path."""
    before = files_of(tmp_path)
    for use in (lambda: store.put(key, b"x"), lambda: store.get(key), lambda: store.head(key), lambda: store.delete(key)):
        with pytest.raises(InvalidKey):
            use()
    with pytest.raises(InvalidKey):
        store.sign("GET", key, datetime(2026, 1, 1, tzinfo=UTC))
    assert files_of(tmp_path) == before


@given(st.text(max_size=40))
def test_accepted_keys_stay_below_the_root(key: str) -> None:
    """Whatever text comes: if it is a key, the file it names lies inside."""
    try:
        check_key(key)
    except InvalidKey:
        return
    root = Path("/srv/objects")
    assert os.path.normpath(root / key) == str(root / key)
    assert (root / key).is_relative_to(root)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(keys=st.sets(st.from_regex(r"[ab]{1,2}(/[ab]{1,2}){0,2}", fullmatch=True)), prefix=st.from_regex(r"[ab/]{0,3}", fullmatch=True))
def test_list_is_what_begins_with_the_prefix(tmp_path_factory: pytest.TempPathFactory, keys: set[str], prefix: str) -> None:
    """For any set of objects, `list` answers the sorted keys that begin with the prefix, as cloud stores do."""
    store = DirectoryStore(tmp_path_factory.mktemp("s"), CREDENTIALS)
    # An object cannot lie below another one in a directory.
    put = {key for key in keys if not any(other.startswith(f"{key}/") for other in keys)}
    for key in put:
        store.put(key, b"")
    below = prefix.rpartition("/")[0]
    if below and (below.startswith("/") or "//" in below or below.endswith("/")):
        with pytest.raises(InvalidKey):
            store.list(prefix)
    else:
        assert store.list(prefix) == sorted(key for key in put if key.startswith(prefix))


def test_an_object_below_an_object_is_refused(store: DirectoryStore) -> None:
    """What a directory cannot hold is an error and changes nothing."""
    store.put("a", b"x")
    with pytest.raises(NotADirectoryError):
        store.put("a/b", b"x")
    assert store.list("") == ["a"]


def test_what_was_not_committed_never_was(store: DirectoryStore, tmp_path: Path) -> None:
    """A write that is given up leaves neither object nor file."""
    with store.receive("a/b") as incoming:
        incoming.write(b"half")
    assert files_of(tmp_path) == []
    assert store.list("") == []


def test_a_restart_clears_what_a_killed_daemon_was_receiving(store: DirectoryStore, tmp_path: Path) -> None:
    """Half an upload of an earlier life is removed; whole objects stay."""
    store.put("whole", b"x")
    half = store.receive("half")
    half.write(b"y" * 100_000)
    again = DirectoryStore(tmp_path / "objects", CREDENTIALS)
    assert files_of(tmp_path) == ["objects/whole"]
    assert again.list("") == ["whole"]
    half.close()


def test_files_are_private(store: DirectoryStore, tmp_path: Path) -> None:
    """Nobody but the daemon can read checkpoints."""
    store.put("a/b/c", b"x")
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "objects").rglob("*"))


def test_signed_paths_say_what_they_are_for(store: DirectoryStore) -> None:
    """A signed path names the object, the method and the time, and carries the signature of exactly these."""
    signed = urlsplit(store.sign("PUT", "jobs/a b/0000", datetime(2026, 1, 1, tzinfo=UTC)))
    query = parse_qs(signed.query)
    assert signed.path == "/o/jobs/a%20b/0000"
    assert query["method"] == ["PUT"]
    assert CREDENTIALS.is_signature("PUT", "jobs/a b/0000", int(query["expires"][0]), query["signature"][0])


def test_reading_goes_on_while_an_object_is_replaced(store: DirectoryStore) -> None:
    """Who began to read the old content gets the old content."""
    store.put("a", b"old")
    with store.open("a") as stream:
        store.put("a", b"new")
        assert stream.read() == b"old"
