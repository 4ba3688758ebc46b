"""Restoring from a store in memory that refuses to order."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from spotd.node.restore import Cancelled, Restored, Restorer
from spotd.node.spec import Resume
from spotd.node.web import Refused, Web
from tests.unit.node.fakes import certificate
from tests.unit.node.stepped import SteppedClock

_CONTENT = b"weights"


class Store(Web):
    """One checkpoint of one file. Addresses carry a generation; `trouble` is asked before each GET and may raise."""

    def __init__(self) -> None:
        super().__init__("https://127.0.0.1:1", certificate()[0])
        self.trouble: Callable[[str], None] = lambda _url: None
        self.generation = 1
        self.signing: Callable[[], None] = lambda: None
        file = {"path": "w", "size": len(_CONTENT), "sha256": hashlib.sha256(_CONTENT).hexdigest(), "object": 0, "mode": 0o644}
        self.manifest = json.dumps({"format": 1, "step": 7, "name": None, "files": [file]}).encode()

    @property
    def resume(self) -> tuple[Resume, ...]:
        """What the specification names."""
        return (Resume("00001-000001", "m?1", hashlib.sha256(self.manifest).hexdigest()),)

    def read(self, url: str, limit: int, *, timeout: float = 30.0) -> bytes:
        """The manifest."""
        self.trouble(url)
        return self.manifest

    def fetch(self, url: str, path: str, *, timeout: float = 30.0, cancel: threading.Event | None = None) -> tuple[int, str]:
        """The file."""
        self.trouble(url)
        Path(path).write_bytes(_CONTENT)
        return len(_CONTENT), hashlib.sha256(_CONTENT).hexdigest()

    def call(self, url: str, message: Mapping[str, Any], *, session: str | None = None, timeout: float = 20.0) -> dict[str, Any]:
        """The daemon signs anew."""
        self.signing()
        self.generation += 1
        return {"manifest": f"m?{self.generation}", "objects": {str(n): f"{n}?{self.generation}" for n in message["objects"]}}


class _Impatient(SteppedClock):
    """Time passes as it is waited for; after an hour the daemon wants something else."""

    def __init__(self, cancel: threading.Event) -> None:
        super().__init__()
        self._cancel = cancel
        self._ends = self.now + 3600

    def step(self, seconds: float) -> None:
        super().step(seconds)
        if self.now > self._ends:
            self._cancel.set()


def _restore(store: Store, directory: Path) -> Restored:
    cancel = threading.Event()
    restorer = Restorer(store, "session", str(directory / "ckpt"), str(directory / "placed"), _Impatient(cancel), cancel)
    return restorer.newest(store.resume)


def test_old_addresses_are_renewed(tmp_path: Path) -> None:
    """A specification kept on disk for longer than its addresses live is as good as a fresh one."""
    store = Store()

    def expired(url: str) -> None:
        if url.endswith("?1"):
            raise Refused(403, "Request has expired", code="AccessDenied")

    store.trouble = expired

    assert _restore(store, tmp_path).checkpoint == "00001-000001"
    assert (tmp_path / "ckpt/w").read_bytes() == _CONTENT


@pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (503, "SlowDown"), (409, "OperationAborted"), (404, "NoSuchBucket")])
def test_a_store_that_does_not_let_us_in_condemns_no_checkpoint(tmp_path: Path, status: int, code: str) -> None:
    """It is asked for as long as it is wanted: a job whose checkpoints cannot be had now must not be told that none verifies."""
    store = Store()

    def refuse(_url: str) -> None:
        raise Refused(status, "no", code=code)

    store.trouble = refuse

    with pytest.raises(Cancelled):
        _restore(store, tmp_path)


def test_a_store_that_comes_back_is_restored_from(tmp_path: Path) -> None:
    """Refusals for half an hour, then the checkpoint."""
    store = Store()
    left = [60]

    def refuse(_url: str) -> None:
        if left[0]:
            left[0] -= 1
            raise Refused(403, "Request is not yet valid", code="AccessDenied")

    store.trouble = refuse

    assert _restore(store, tmp_path).checkpoint == "00001-000001"


@pytest.mark.parametrize("url", ["m?1", "0?2"])
def test_an_absent_object_is_a_broken_checkpoint(tmp_path: Path, url: str) -> None:
    """404 of a manifest or a file is the end of it; the reason is kept."""
    store = Store()

    def absent(asked: str) -> None:
        if asked == url:
            raise Refused(404, "no such key", code="NoSuchKey")

    store.trouble = absent

    assert _restore(store, tmp_path) == Restored(None, None, None, ("00001-000001: HTTP 404: NoSuchKey: no such key",))


def test_a_daemon_that_does_not_know_us_is_not_asked_for_ever(tmp_path: Path) -> None:
    """401 of the daemon itself means that this instance's part is over."""
    store = Store()

    def ended() -> None:
        raise Refused(401, "ended")

    store.signing = ended

    assert _restore(store, tmp_path).skipped == ("00001-000001: the daemon gives no addresses: HTTP 401: ended",)
