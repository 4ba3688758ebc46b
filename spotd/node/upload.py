"""Put one checkpoint into the store: every file as an object, then the manifest, which alone makes it exist.

The sequence number of a manifest that was sent is never used for other content: its objects would be overwritten under a manifest that may
have been accepted although the answer was lost.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import enum
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from typing import Any, Callable

from spotd.node import files, tree
from spotd.node.backoff import Backoff
from spotd.node.candidates import Candidate
from spotd.node.clock import Clock
from spotd.node.journal import Journal
from spotd.node.targets import Target, Targets
from spotd.node.web import Refused, Web, WebError

_CHUNK = 256 << 10
_PARALLEL = 4
MOST_FILES = 10_000
_FEWEST_OBJECTS = 16
_SENT = "manifest.sent"  # the bytes of the last manifest, until its answer came


class Result(enum.Enum):
    """How an attempt to commit ended."""

    COMMITTED = "committed"
    CHANGED = "changed"  # touched while it was read
    UNFIT = "unfit"  # nothing there, or more than fits a checkpoint: will not get better by itself
    LATER = "later"  # no addresses, no answer, no time


class _Changed(Exception):
    """A file is not what it was when the candidate was found complete, or cannot be read."""


class _TooLarge(Exception):
    """A file is larger than the store takes an object."""


class _NoTime(Exception):
    """Given up before the store answered."""


@dataclasses.dataclass
class Source:
    """Who we are and where the files are."""

    job_id: str
    attempt: int
    directory: str  # the checkpoint directory
    private: str  # the agent's own directory


class Uploader:
    """Commits candidates one after the other. Its state is in the journal, so that a restarted agent ends what was begun."""

    def __init__(
        self,
        web: Web,
        journal: Journal,
        clock: Clock,
        source: Source,
        targets: Targets,
        ask_for_targets: Callable[[], None],
    ) -> None:
        self._web = web
        self._journal = journal
        self._clock = clock
        self._source = source
        self._targets = targets
        self._ask = ask_for_targets
        self._give_up = threading.Event()
        self.give_up_at: float | None = None
        self.last_upload_s: float | None = journal.get("upload_s")
        self.problem: str | None = None

    def settle(self) -> bool:
        """End a commit whose manifest was sent but never answered for; False while that is open."""
        record = self._journal.get("manifest")
        if record is None:
            return True
        try:
            with open(os.path.join(self._source.private, _SENT), "rb") as stream:
                data = stream.read()
        except OSError:
            data = b""
        if hashlib.sha256(data).hexdigest() != record["message"]["manifest_sha256"]:
            self._burn(record)
            return True
        try:
            self._send_manifest(record, data)
        except _NoTime:
            return False
        return self._journal.get("manifest") is None

    def commit(self, candidate: Candidate) -> Result:
        """Upload *candidate*; never raises for what the job, the disk, the store or the network do."""
        self.problem = None
        if not self.settle():
            return Result.LATER
        begun = self._clock.monotonic()
        try:
            name = tree.inside(self._source.directory, candidate.name or ".")
            found = tree.scan(self._source.directory, name) if name is not None else tree.Tree((), (), 0)
        except OSError as error:
            self.problem = f"{candidate.name or 'the checkpoint directory'}: {error.strerror}"
            return Result.CHANGED
        if name is None or not found.entries or len(found.entries) > MOST_FILES:
            self.problem = f"checkpoint {candidate.name!r}: {len(found.entries)} files inside the checkpoint directory"
            return Result.UNFIT
        target = self._target(len(found.entries))
        if target is None:
            return Result.LATER
        try:
            sums = self._objects(found, target)
            if tree.scan(self._source.directory, name).signature != found.signature:
                self.problem = f"checkpoint {candidate.name or ''} changed while it was read: files came or went"
                return Result.CHANGED
            return self._manifest(candidate, None if name == "." else name, found, sums, target, begun)
        except (_Changed, OSError, _TooLarge, _NoTime) as error:
            return self._given_up(candidate, error)

    def _given_up(self, candidate: Candidate, error: Exception) -> Result:
        if isinstance(error, _NoTime):
            return Result.LATER
        if isinstance(error, _TooLarge):
            self.problem = f"checkpoint {candidate.name or ''} cannot be stored: {error}"
            return Result.UNFIT
        self.problem = f"checkpoint {candidate.name or ''} changed while it was read: {error}"
        return Result.LATER if isinstance(error, WebError) else Result.CHANGED

    def _out_of_time(self) -> bool:
        return self.give_up_at is not None and self._clock.monotonic() >= self.give_up_at

    def _timeout(self) -> float:
        """Seconds of silence that a request is allowed; less when time is short, so that one dead connection does not use it up."""
        if self.give_up_at is None:
            return 30.0
        return max(0.5, min(10.0, self.give_up_at - self._clock.monotonic()))

    def _target(self, objects: int) -> Target | None:
        """Return addresses for so many objects, asking for more where the list in hand is short."""
        sequence = self._journal.get("next_sequence", 1)
        target = self._targets.at_least(sequence)
        if objects > self._journal.get("objects_per_checkpoint", _FEWEST_OBJECTS):
            self._journal.put(objects_per_checkpoint=objects + objects // 4)
        if target is not None and len(target.objects) >= objects:
            return target
        self.problem = f"no addresses for {objects} objects yet"
        self._ask()
        return None

    def _objects(self, found: tree.Tree, target: Target) -> list[str]:
        """Upload every file in parallel; their sha256 sums in order."""
        stop = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(min(_PARALLEL, len(found.entries))) as pool:
            sent = [pool.submit(self._object, entry, number, target, stop) for number, entry in enumerate(found.entries)]
            try:
                return [future.result() for future in sent]
            except BaseException:
                stop.set()
                for future in sent:
                    future.cancel()
                raise

    def _object(self, entry: tree.Entry, number: int, target: Target, stop: threading.Event) -> str:
        backoff = Backoff(0.2, 5.0)
        while True:
            if stop.is_set() or self._out_of_time():
                raise _NoTime
            try:
                digest = hashlib.sha256()
                self._web.put(
                    target.objects[number],
                    _content(self._source.directory, entry, digest),
                    entry.size,
                    timeout=self._timeout(),
                )
                return digest.hexdigest()
            except WebError as error:
                self.problem = f"object {number}: {error}"
                if isinstance(error, Refused) and (error.status == 413 or error.code == "EntityTooLarge"):
                    raise _TooLarge(f"{entry.path} has {entry.size} bytes, more than the store takes in one object") from error
                self._renew(error)
                # Also where no answer said so: a store that refuses an address may break off before its refusal was read.
                fresh = self._targets.exactly(target.sequence)
                if fresh is not None and number < len(fresh.objects):
                    target = fresh
                self._clock.wait(stop, backoff.failed())

    def _renew(self, error: WebError) -> None:
        """Where a store refused the signature (expired, most likely), ask for new addresses."""
        if isinstance(error, Refused) and error.status in (400, 401, 403):
            self._ask()

    def _manifest(self, candidate: Candidate, name: str | None, found: tree.Tree, sums: list[str], target: Target, begun: float) -> Result:
        manifest: dict[str, Any] = {
            "format": 1,
            "job": self._source.job_id,
            "checkpoint": target.checkpoint,
            "attempt": self._source.attempt,
            "sequence": target.sequence,
            "step": candidate.step,
            "name": name,
            "created_epoch": round(self._clock.epoch(), 3),
            "files": [
                {"path": entry.path, "size": entry.size, "sha256": sums[number], "object": number, "mode": entry.mode}
                for number, entry in enumerate(found.entries)
            ],
        }
        if found.links:
            manifest["links"] = [{"path": path, "target": where} for path, where in found.links]
        data = json.dumps(manifest).encode("ascii")
        self._keep(data)
        record = {
            "sequence": target.sequence,
            "url": target.manifest,
            "sends": 0,
            "begun_at": begun,
            "ordinal": candidate.ordinal,
            "signature": candidate.signature,
            "message": {
                "checkpoint": target.checkpoint,
                "sequence": target.sequence,
                "step": candidate.step,
                "files": len(found.entries),
                "bytes": found.size,
                "manifest_sha256": hashlib.sha256(data).hexdigest(),
                "save_s": round(candidate.save_s, 3),
                "trigger": candidate.trigger,
            },
        }
        self._send_manifest(record, data)
        return Result.COMMITTED if self._journal.get("next_sequence", 1) > target.sequence and not self._burnt(target) else Result.LATER

    def _burnt(self, target: Target) -> bool:
        return bool(self._journal.get("burnt_sequence") == target.sequence)

    def _keep(self, data: bytes) -> None:
        """Write down what is about to be sent, for an agent after us. On a full disk it is sent all the same: the checkpoint comes first."""
        path = os.path.join(self._source.private, _SENT)
        try:
            try:
                files.write_bytes(path, data)
            except OSError as error:
                if not self._journal.make_room(error):
                    raise
                files.write_bytes(path, data)
        except OSError as error:
            self.problem = f"the manifest could not be kept: {error.strerror}"

    def _send_manifest(self, record: dict[str, Any], data: bytes) -> None:
        """Send the manifest until the store has answered. Raises _NoTime."""
        backoff = Backoff(0.2, 5.0)
        never = threading.Event()
        while not self._out_of_time():
            # On disk before it is sent: a 412 later is our own success only if this very manifest was sent before.
            record = {**record, "sends": record["sends"] + 1}
            self._journal.put(manifest=record)
            target = self._targets.exactly(record["sequence"])
            try:
                self._web.put(
                    record["url"] if target is None else target.manifest,
                    data,
                    len(data),
                    create_only=True,
                    timeout=self._timeout(),
                )
                self._committed(record)
                return
            except Refused as error:
                if error.status == 412:
                    (self._committed if record["sends"] > 1 else self._burn)(record)
                    return
                if error.status < 500:
                    # It was not stored: 409, say, is S3's for a write at the same moment (try again), 403 an address that has expired.
                    record = {**record, "sends": record["sends"] - 1}
                    self._journal.put(manifest=record)
                self.problem = f"manifest: {error}"
                self._renew(error)
            except WebError as error:
                self.problem = f"manifest: {error}"
            self._clock.wait(never, backoff.failed())
        raise _NoTime

    def _committed(self, record: dict[str, Any]) -> None:
        self.last_upload_s = max(0.0, self._clock.monotonic() - record["begun_at"])
        self._journal.say(
            "checkpoint",
            {**record["message"], "upload_s": round(self.last_upload_s, 3)},
            manifest=None,
            next_sequence=record["sequence"] + 1,
            upload_s=self.last_upload_s,
            committed={
                "checkpoint": record["message"]["checkpoint"],
                "step": record["message"]["step"],
                "ordinal": record["ordinal"],
                "signature": record["signature"],
                "committed_at": self._clock.monotonic(),
            },
        )
        self._ask()

    def _burn(self, record: dict[str, Any]) -> None:
        """Somebody else's manifest has this sequence: go on with the next."""
        self.problem = f"sequence {record['sequence']} is taken"
        self._journal.put(manifest=None, next_sequence=record["sequence"] + 1, burnt_sequence=record["sequence"])
        self._ask()


def _content(directory: str, entry: tree.Entry, digest: Any) -> Iterator[bytes]:
    """Yield the file piece by piece, hashing. Raises _Changed where it is not the file that was scanned, before its last byte is given away."""
    try:
        descriptor = os.open(os.path.join(directory, entry.path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _Changed(f"{entry.path}: {error.strerror}") from error
    # A directory above it may have become a link: an agent that runs as root must not read what its job may not.
    if os.readlink(f"/proc/self/fd/{descriptor}") != os.path.join(os.path.realpath(directory), entry.path):
        os.close(descriptor)
        raise _Changed(f"{entry.path}: moved")
    with open(descriptor, "rb", buffering=0) as stream:
        left = entry.size
        while True:
            try:
                chunk = stream.read(min(_CHUNK, left)) if left else b""
                status = os.fstat(descriptor)
            except OSError as error:
                raise _Changed(f"{entry.path}: {error.strerror}") from error
            if (status.st_ino, status.st_size, status.st_mtime_ns) != (entry.inode, entry.size, entry.mtime_ns) or (left and not chunk):
                raise _Changed(entry.path)
            if not chunk:
                return
            left -= len(chunk)
            digest.update(chunk)
            yield chunk
