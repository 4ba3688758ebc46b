"""Committing a checkpoint against a store in memory that misbehaves to order."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from spotd.node.candidates import Candidate
from spotd.node.journal import Journal
from spotd.node.targets import Targets
from spotd.node.upload import Result, Source, Uploader
from spotd.node.web import Refused, Web, WebError
from tests.unit.node.fakes import certificate
from tests.unit.node.stepped import SteppedClock


class Store(Web):
    """Objects by address. `trouble` is asked before each PUT and may raise; `after` runs when one has been stored and may raise."""

    def __init__(self) -> None:
        super().__init__("https://127.0.0.1:1", certificate()[0])
        self.objects: dict[str, bytes] = {}
        self.order: list[str] = []
        self.trouble: Callable[[str], None] = lambda _url: None
        self.after: Callable[[str], None] = lambda _url: None
        self._lock = threading.Lock()

    def put(self, url: str, body: bytes | Iterable[bytes], size: int, *, create_only: bool = False, timeout: float = 30.0) -> None:
        """Store it."""
        self.trouble(url)
        data = body if isinstance(body, bytes) else b"".join(body)
        assert len(data) == size
        with self._lock:
            if create_only and url in self.objects:
                raise Refused(412, "exists")
            self.objects[url] = data
            self.order.append(url)
        self.after(url)


class Bench:
    """An uploader with everything around it."""

    def __init__(self, directory: Path) -> None:
        self.clock = SteppedClock()
        self.store = Store()
        self.ckpt = directory / "ckpt"
        self.ckpt.mkdir()
        self.private = directory / "agent"
        self.private.mkdir()
        self.restart()

    def restart(self) -> None:
        """As after kill -9."""
        self.journal = Journal(str(self.private / "state.json"), self.clock, "boot-1")
        self.targets = Targets()
        self.asked = 0
        source = Source("job-1", 3, str(self.ckpt), str(self.private))
        self.uploader = Uploader(self.store, self.journal, self.clock, source, self.targets, self.hear)
        self.hear()

    def hear(self) -> None:
        """A sync: the daemon hands out addresses."""
        self.asked += 1
        first = self.journal.get("next_sequence", 1)
        count = self.journal.get("objects_per_checkpoint", 16)
        self.targets.hear(
            [
                {"checkpoint": f"00003-{n:06d}", "sequence": n, "objects": [f"{n}/{k}?{self.asked}" for k in range(count)], "manifest": f"{n}/m"}
                for n in (first, first + 1)
            ]
        )

    def commit(self, name: str | None = "one") -> Result:
        """Commit what the job announced as *name*."""
        return self.uploader.commit(Candidate(name, 7, "announced", 1, "signature", 0.5))

    def said(self) -> list[dict[str, Any]]:
        """Messages of type checkpoint."""
        return [message for message in self.journal.unacknowledged() if message["type"] == "checkpoint"]


@pytest.fixture(name="bench")
def _bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    (bench.ckpt / "one").mkdir()
    (bench.ckpt / "one/w").write_bytes(os.urandom(700_000))
    (bench.ckpt / "one/meta").write_text("x")
    (bench.ckpt / "other").write_text("not part of it")
    return bench


def _lost(_url: str) -> None:
    raise WebError("broken off")


def test_the_manifest_comes_last_and_tells_the_truth(bench: Bench) -> None:
    """Paths, sizes and sums are those of the bytes in the store; the message has the manifest's sum; the number is used up."""
    assert bench.commit() is Result.COMMITTED

    assert bench.store.order[-1] == "1/m"
    manifest = json.loads(bench.store.objects["1/m"])
    assert [(f["path"], f["object"]) for f in manifest["files"]] == [("one/meta", 0), ("one/w", 1)]
    for file in manifest["files"]:
        data = next(value for key, value in bench.store.objects.items() if key.startswith(f"1/{file['object']}?"))
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["size"], file["sha256"])
    (message,) = bench.said()
    assert message["manifest_sha256"] == hashlib.sha256(bench.store.objects["1/m"]).hexdigest()
    assert (message["files"], message["bytes"], message["sequence"], bench.journal.get("next_sequence")) == (2, 700_001, 1, 2)


@pytest.mark.parametrize("change", ["content", "touch", "grow", "replace", "remove", "add", "become a link"])
def test_any_change_while_it_is_read_discards_the_candidate(bench: Bench, change: str) -> None:
    """Nothing is committed, the number is still free, and the next try, of an unchanged tree, succeeds with it."""
    path = bench.ckpt / "one/w"

    def act(_url: str) -> None:
        bench.store.after = lambda _url: None
        if change == "content":
            path.write_bytes(os.urandom(700_000))
        elif change == "touch":
            os.utime(path, ns=(1, 1))
        elif change == "grow":
            with path.open("ab") as stream:
                stream.write(b"x")
        elif change == "replace":
            (bench.ckpt / "new").write_bytes(path.read_bytes())
            (bench.ckpt / "new").rename(path)
        elif change == "remove":
            path.unlink()
        elif change == "add":
            (bench.ckpt / "one/late").touch()
        else:
            path.rename(bench.ckpt / "moved")
            path.symlink_to(bench.ckpt / "moved")

    bench.store.after = act
    assert bench.commit() is Result.CHANGED
    assert "1/m" not in bench.store.objects
    assert bench.commit() is Result.COMMITTED
    assert bench.said()[0]["sequence"] == 1


def test_a_lost_answer_is_our_own_success(bench: Bench) -> None:
    """The manifest was stored and the answer lost: 412 to the very same bytes is success, said once."""

    def lose(url: str) -> None:
        if url == "1/m":
            raise WebError("broken off")

    bench.store.after = lose

    assert bench.commit() is Result.COMMITTED
    assert [message["sequence"] for message in bench.said()] == [1]


def test_a_restarted_agent_ends_what_was_sent(bench: Bench) -> None:
    """Killed between sending and hearing: the next agent sends the same bytes, takes 412 for success, and only then goes on to number 2."""

    def lose(url: str) -> None:
        if url == "1/m":
            bench.uploader.give_up_at = bench.clock.monotonic()
            raise WebError("broken off")

    bench.store.after = lose
    assert bench.commit() is Result.LATER
    sent = bench.store.objects["1/m"]
    bench.store.after = lambda _url: None
    bench.restart()
    (bench.ckpt / "one/meta").write_text("y")

    assert bench.commit() is Result.COMMITTED
    assert bench.store.objects["1/m"] == sent
    assert [message["sequence"] for message in bench.said()] == [1, 2]
    assert bench.said()[0]["manifest_sha256"] == hashlib.sha256(sent).hexdigest()


def test_a_manifest_that_was_never_ours_burns_the_number(bench: Bench) -> None:
    """412 to the first sending: somebody else's; nothing is claimed, and the next try has the next number."""
    bench.store.objects["1/m"] = b"theirs"
    assert bench.commit() is not Result.COMMITTED
    assert bench.said() == []
    assert bench.commit() is Result.COMMITTED

    assert bench.said()[0]["sequence"] == 2
    assert bench.store.objects["1/m"] == b"theirs"


def test_an_expired_signature_is_renewed(bench: Bench) -> None:
    """403 asks the daemon for new addresses and goes on with them."""

    def refuse(url: str) -> None:
        if url.endswith("?1"):
            raise Refused(403, "expired")

    bench.store.trouble = refuse

    assert bench.commit() is Result.COMMITTED


def test_an_expired_signature_is_renewed_also_where_the_refusal_was_not_read(bench: Bench) -> None:
    """A store may break the connection off before its refusal arrives: the next try takes the newest addresses in hand."""
    bench.store.trouble = lambda url: _lost(url) if url.endswith("?1") else bench.hear()
    wait = bench.clock.wait

    def hear_meanwhile(event: threading.Event, seconds: float) -> bool:
        bench.hear()
        return wait(event, seconds)

    bench.clock.wait = hear_meanwhile  # type: ignore[method-assign]

    assert bench.commit() is Result.COMMITTED


@pytest.mark.parametrize("refusal", [Refused(409, "conflict", code="ConditionalRequestConflict"), Refused(503, "slow", code="SlowDown")])
def test_a_store_that_says_later_is_asked_again(bench: Bench, refusal: Refused) -> None:
    """409 for a write at the same moment, 503 under load: waits that grow, then success, said once."""
    refusals = [refusal] * 5

    def refuse(url: str) -> None:
        if url == "1/m" and refusals:
            raise refusals.pop()

    bench.store.trouble = refuse
    begun = bench.clock.monotonic()

    assert bench.commit() is Result.COMMITTED
    assert [message["sequence"] for message in bench.said()] == [1]
    assert bench.clock.monotonic() - begun >= 0.5 * (0.2 + 0.4 + 0.8 + 1.6 + 3.2)


@pytest.mark.parametrize("status", [409, 403])
def test_a_refused_manifest_is_not_taken_for_ours_later(bench: Bench, status: int) -> None:
    """After a refusal nothing was stored, so a 412 at the next sending means somebody else's manifest."""
    refusals = [Refused(status, "no")]

    def refuse(url: str) -> None:
        if url == "1/m" and refusals:
            bench.store.objects["1/m"] = b"theirs"
            raise refusals.pop()

    bench.store.trouble = refuse

    assert bench.commit() is not Result.COMMITTED
    assert bench.said() == []
    assert bench.journal.get("next_sequence") == 2


@pytest.mark.parametrize("refusal", [Refused(400, "too large", code="EntityTooLarge"), Refused(413, "too large")])
def test_a_file_larger_than_the_store_takes_is_said(bench: Bench, refusal: Refused) -> None:
    """It will not get smaller by trying again: the sentence names the file and its size."""

    def refuse(url: str) -> None:
        if url.startswith("1/1"):
            raise refusal

    bench.store.trouble = refuse

    assert bench.commit() is Result.UNFIT
    assert "one/w has 700000 bytes, more than the store takes in one object" in str(bench.uploader.problem)


def test_a_store_that_is_away_is_given_up_in_time(bench: Bench) -> None:
    """With a limit the try ends; nothing was committed and the number is still free."""
    bench.store.trouble = _lost
    bench.uploader.give_up_at = bench.clock.monotonic() + 20

    assert bench.commit() is Result.LATER
    assert bench.clock.monotonic() < 1040
    assert bench.journal.get("next_sequence", 1) == 1


def test_many_files_ask_for_many_addresses(bench: Bench) -> None:
    """More files than addresses in hand: the daemon is told how many are needed, and the next try has them."""
    for number in range(40):
        (bench.ckpt / f"one/{number}").touch()
    assert bench.commit() is Result.LATER

    assert bench.commit() is Result.COMMITTED
    assert bench.said()[0]["files"] == 42


@pytest.mark.parametrize("name", ["../agent", "/etc", "absent/../.."])
def test_a_name_that_leads_out_is_no_checkpoint(bench: Bench, name: str) -> None:
    """What the job announces cannot make the agent read elsewhere."""
    assert bench.commit(name) is Result.UNFIT
    assert bench.store.objects == {}


def test_a_link_that_leads_out_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    """Links inside are kept as links; those that leave, and pipes, are left out."""
    (tmp_path / "secret").write_text("secret")
    (bench.ckpt / "one/out").symlink_to(tmp_path / "secret")
    (bench.ckpt / "one/in").symlink_to("w")
    os.mkfifo(bench.ckpt / "one/pipe")
    assert bench.commit() is Result.COMMITTED

    manifest = json.loads(bench.store.objects["1/m"])
    assert [file["path"] for file in manifest["files"]] == ["one/meta", "one/w"]
    assert manifest["links"] == [{"path": "one/in", "target": "w"}]
    assert b"secret" not in bench.store.objects.values()


def test_a_single_file_and_the_whole_tree_are_checkpoints_too(bench: Bench) -> None:
    """`name` is a file's path, or None for everything."""
    assert bench.commit("other") is Result.COMMITTED
    assert bench.commit(None) is Result.COMMITTED

    assert [json.loads(bench.store.objects[f"{n}/m"])["name"] for n in (1, 2)] == ["other", None]
    assert len(json.loads(bench.store.objects["2/m"])["files"]) == 3
