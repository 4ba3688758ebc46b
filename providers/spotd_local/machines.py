"""Machines seen from outside: start one, and bury one that died without a word.

A machine ends its instance itself and writes so. Only when its process is gone and the record does not say why (it was
killed, the host was rebooted) others act for it: they end what it left running and write the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

from spotd.core.instance import EndedBy, ObservedState
from spotd_local import processes
from spotd_local.fate import MACHINE_LOST, TERMINATED
from spotd_local.record import MARKER, InstanceDirectory, Record, RecordError, directories

#: How long an ended instance stays listed, as on EC2 (facts/reclaim.md §1.9).
_REMEMBERED_S = 3600.0
#: A machine takes its orders within a tenth of a second; one that has not by then hangs.
_OBEYS_WITHIN_S = 10.0


def ensure(directory: InstanceDirectory) -> None:
    """Start the machine, unless one was started already."""
    if directory.machine() is not None or _processes(directory):
        return  # in the second case its starter died before it could note it; the machine notes itself first of all
    log = str(directory.path / "machine.log")
    environment = {name: os.environ[name] for name in ("LANG", "PYTHONPATH") if name in os.environ}
    environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    environment[MARKER] = str(directory.path)
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", "spotd_local.machine", str(directory.path)],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    identity = processes.identify(pid)
    if identity is None:
        raise RecordError(f"{log}: the machine ended as it was started")
    directory.write_machine(identity)


def current(directory: InstanceDirectory, now: float) -> Record:
    """The record as it is true now: a machine that was never started is started, one that died is buried."""
    record = directory.read()
    machine = directory.machine()
    if machine is None:
        if not record.gone:
            ensure(directory)  # whoever made the directory died before it could
        return record
    if machine.is_alive():
        return record
    processes.collect(machine)
    return _bury(directory, now)


def terminate(directory: InstanceDirectory, now: float) -> None:
    """Order the machine to end itself; one that has not taken this order for long is killed, and buried here."""
    pending = directory.orders / "terminate"
    machine = directory.machine()
    if machine is not None and pending.exists() and pending.stat().st_mtime < now - _OBEYS_WITHIN_S:
        with contextlib.suppress(ProcessLookupError):
            os.kill(machine.pid, signal.SIGKILL)
        processes.end_all(lambda: {machine.pid} if machine.is_alive() else set())
        current(directory, now)
    elif not pending.exists():
        directory.order("terminate", by=EndedBy.US)


def power_cut(root: Path, now: float) -> None:
    """End every instance of this local cloud at once, machines included, and leave no process of theirs."""
    for directory in directories(root):
        processes.end_all(lambda d=directory: _processes(d))  # type: ignore[misc] # a default binds the loop's variable
        if machine := directory.machine():
            processes.collect(machine)
        _bury(directory, now)


def forget(root: Path, now: float) -> None:
    """Remove the records of instances that ended long ago, and what launches left that were never completed."""
    for directory in directories(root):
        record = directory.read()
        if record.gone and (record.ended_at or now) < now - _REMEMBERED_S:
            shutil.rmtree(directory.path.rename(directory.path.parent / f".old-{record.token}"), ignore_errors=True)
    for path in (root / "instances").glob(".*"):
        if path.stat().st_mtime < now - _REMEMBERED_S:
            shutil.rmtree(path, ignore_errors=True)


def _bury(directory: InstanceDirectory, now: float) -> Record:
    """End what a dead machine left running. If it had begun to end the instance, or was asked to, that is the reason."""
    record = directory.read()
    if record.gone:
        return record
    processes.end_all(lambda: _processes(directory))
    directory.purge()
    asked = dict(directory.take_orders()).get("terminate")
    ended_by, code = (EndedBy.UNKNOWN, MACHINE_LOST) if asked is None else (EndedBy(asked["by"]), TERMINATED)
    record = replace(
        record,
        state=ObservedState.GONE,
        ended_at=record.ended_at or min(now, directory.last_sign_of_life()),
        ended_by=record.ended_by or ended_by,
        end_code=record.end_code or code,
    )
    directory.write(record)
    return record


def _processes(directory: InstanceDirectory) -> set[int]:
    return processes.marked(MARKER, str(directory.path))
