"""What the local cloud knows of its instances: one directory each, below `ROOT/instances`.

    state.json     the record: who, where, since when, ended when and by whom; the ground truth of what there is to pay
    request.json   the launch request it was made from; a repeated launch must be equal to it
    machine.json   which process plays the machine
    user-data      the boot script (0600: it holds a credential); gone when the instance is
    disk/          the instance's file system; gone when the instance is
    orders/        what the machine is asked to do, one file each
    acknowledged/  which notices the daemon has taken
    console.log    what the boot script and all it starts print; machine.log is the machine's own

A directory appears whole (it is prepared beside and renamed), and files change by rename, so nothing is ever seen
half-written. What cannot be read is therefore damage, and an error: a row that is skipped would be an instance that
nobody ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotd.core.instance import EndedBy, LaunchRequest, ObservedState
from spotd.core.offer import Market
from spotd_local.processes import Identity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: In the environment of all that an instance runs: its directory, which no other instance shares.
MARKER = "SPOTD_LOCAL_MACHINE"


class RecordError(Exception):
    """A file of the local cloud that cannot be read as what it should be; the text names it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The cloud's decision to take an instance back, and who is told. Times in epoch seconds."""

    marked_at: float
    deadline: float
    #: Which channels tell of it: the instance's metadata server, the provider's own.
    imds: bool = True
    provider: bool = True
    #: A cancelled one: nothing happens at the deadline, and the mark goes away then.
    unmark_at: float | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One instance of the local cloud. Times in epoch seconds."""

    provider_id: str
    token: str
    deployment: str
    region: str
    zone: str
    instance_type: str
    market: Market
    max_price_usd_per_hour: str | None
    launched_at: float
    expires_at: float
    boot_delay_s: float
    notice_s: float
    state: ObservedState = ObservedState.PENDING
    metadata_port: int | None = None
    mark: Mark | None = None
    rebalance_at: float | None = None
    ended_at: float | None = None
    ended_by: EndedBy | None = None
    end_code: str = ""

    @property
    def gone(self) -> bool:
        """Whether it executes nothing any more."""
        return self.state is ObservedState.GONE


@dataclass(frozen=True, slots=True)
class InstanceDirectory:
    """Where one instance lives."""

    path: Path

    @property
    def disk(self) -> Path:
        """The instance's own file system."""
        return self.path / "disk"

    @property
    def user_data(self) -> Path:
        """The boot script."""
        return self.path / "user-data"

    @property
    def orders(self) -> Path:
        """What the machine is asked to do."""
        return self.path / "orders"

    @property
    def console(self) -> Path:
        """What the boot script and all it starts print."""
        return self.path / "console.log"

    def read(self) -> Record:
        """The record. RecordError when it is damaged."""
        path = self.path / "state.json"
        fields = read_json(path)
        try:
            fields["market"] = Market(fields["market"])
            fields["state"] = ObservedState(fields["state"])
            fields["ended_by"] = None if fields["ended_by"] is None else EndedBy(fields["ended_by"])
            fields["mark"] = None if fields["mark"] is None else Mark(**fields["mark"])
            record = Record(**fields)
            float(record.launched_at)
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"{path}: not the record of an instance: {error!r}") from error
        return record

    def write(self, record: Record) -> None:
        """Replace the record, all or nothing."""
        write_atomic(self.path / "state.json", json.dumps(asdict(record), indent=1))

    def machine(self) -> Identity | None:
        """Which process plays the machine; None when none was started yet."""
        path = self.path / "machine.json"
        if not path.exists():
            return None
        try:
            return Identity(**read_json(path))
        except TypeError as error:
            raise RecordError(f"{path}: not the identity of a process: {error}") from error

    def write_machine(self, identity: Identity) -> None:
        """Remember which process plays the machine."""
        write_atomic(self.path / "machine.json", json.dumps(asdict(identity)))

    def order(self, name: str, **fields: object) -> None:
        """Ask the machine for something: `terminate`, `power-off`, `reclaim`, `rebalance`."""
        write_atomic(self.orders / name, json.dumps(fields))

    def take_orders(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Every order not taken yet. An empty file is one as well: the instance orders its power off with `touch`."""
        for path in sorted(self.orders.glob("[a-z]*")):
            fields: object = None
            with contextlib.suppress(OSError, ValueError):
                fields = json.loads(path.read_bytes() or b"{}")
            path.unlink(missing_ok=True)
            if isinstance(fields, dict):
                yield path.name, fields

    def live_sign(self) -> None:
        """The machine says that it lives."""
        (self.path / "lock").touch()

    def last_sign_of_life(self) -> float:
        """When the machine last said so, or at least when its directory was made: where billing ends if it died without a word."""
        lock = self.path / "lock"
        return (lock if lock.exists() else self.path / "request.json").stat().st_mtime

    def purge(self) -> None:
        """Remove the disk and the credential in the boot script; the record stays."""
        self.user_data.unlink(missing_ok=True)
        for folder, _, _ in os.walk(self.disk):
            with contextlib.suppress(OSError):  # a job may have written directories that nobody may write to
                Path(folder).chmod(0o700)
        shutil.rmtree(self.disk, ignore_errors=True)


def request_document(request: LaunchRequest) -> dict[str, object]:
    """A launch request as it is stored: equal documents are equal requests."""
    return {
        **{name: getattr(request, name) for name in ("token", "deployment", "job_id", "job_name", "attempt", "rank")},
        "offer": list(request.offer.parts()),
        "max_price_usd_per_hour": _text(request.max_price_usd_per_hour),
        "expires_at": request.expires_at.isoformat(),
        "labels": dict(request.labels),
    }


def directories(root: Path) -> list[InstanceDirectory]:
    """Every instance there is a record of, in order of token."""
    if not (root / "instances").is_dir():
        return []
    return [InstanceDirectory(p) for p in sorted((root / "instances").iterdir()) if not p.name.startswith(".")]


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. RecordError when there is none."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise RecordError(f"{path}: not a JSON object")
    return value


def write_atomic(path: Path, text: str, *, replace: bool = True) -> None:
    """Write a file (mode 0600), whole or not at all. Without `replace`, FileExistsError when there is one."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        if replace:
            Path(name).replace(path)
        else:
            os.link(name, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()


def _text(value: object) -> str | None:
    return None if value is None else str(value)
