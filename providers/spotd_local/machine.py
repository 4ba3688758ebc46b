"""One instance of the local cloud: `python -m spotd_local.machine DIRECTORY`, a process that outlives the daemon.

It is the hypervisor and the operating system in one: it runs the boot script and starts it again when it dies (as a
systemd unit with Restart=on-failure), serves the metadata, watches the market, and at the end leaves none of its
descendants alive. It alone writes the instance's record while it lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

from spotd.core.instance import EndedBy, ObservedState
from spotd.core.offer import Market
from spotd_local import imds, processes, replay
from spotd_local.fate import MACHINE_LOST, End, Fate
from spotd_local.record import MARKER, InstanceDirectory, Record

#: How often it looks at its orders, the market and its children.
_TICK_S = 0.1
#: How often it notes that it lives, which is how exactly the time of its death is known if it is killed.
_LIVE_SIGN_S = 1.0
#: As systemd's RestartSec.
_RESTART_S = 0.5


@dataclass(slots=True)
class Machine:
    """A machine from power-on to its end."""

    directory: InstanceDirectory
    record: Record
    market: replay.LiveMarket
    fate: Fate
    now: Callable[[], float] = time.time
    metadata: imds.Metadata = field(init=False)
    #: The boot script's process while it runs, and when it is to be started (again).
    _script: int | None = None
    _start_at: float | None = None
    _live_sign_at: float = 0.0

    def __post_init__(self) -> None:
        self.metadata = imds.Metadata(self.record)

    def run(self) -> None:
        """Live, then die completely."""
        try:
            self._start_at = self.record.launched_at + self.record.boot_delay_s
            while self.fate.end is None:
                self._tick()
                time.sleep(_TICK_S)
            self._shut_down(self.fate.end)
        finally:
            processes.end_all(self._processes)

    def _tick(self) -> None:
        now = self.now()
        if now - self._live_sign_at >= _LIVE_SIGN_S:
            self._live_sign_at = now
            self.directory.live_sign()
        for name, fields in self.directory.take_orders():
            with contextlib.suppress(ValueError, TypeError):  # anybody inside the instance can write nonsense
                self.fate.obey(name, fields, now)
        self.fate.observe(now, has_capacity=self._has_capacity(now))
        self._save(mark=self.fate.mark, rebalance_at=self.fate.rebalance_at)
        exit_code = processes.reap().get(self._script or 0)
        if exit_code is not None:
            self._script = None
            self._start_at = now + _RESTART_S if exit_code != 0 else None
        if self._start_at is not None and now >= self._start_at and self.fate.end is None:
            self._boot()

    def _has_capacity(self, now: float) -> bool:
        """Whether the market leaves this instance its place: the zone is up, the price within the request's limit."""
        if self.record.market is not Market.SPOT:
            return True
        limit = self.record.max_price_usd_per_hour
        price = self.market.spot_price(self.record.zone, self.record.instance_type, now)
        return self.market.up(self.record.zone, now) and (limit is None or price <= Decimal(limit))

    def _boot(self) -> None:
        """Run the boot script; the first time the metadata server comes up before it."""
        if self.record.metadata_port is None:
            server = imds.serve(self.metadata)
            self._save(state=ObservedState.RUNNING, metadata_port=server.server_address[1])
        self._start_at = None
        bash = shutil.which("bash") or "/bin/bash"
        console = os.open(self.directory.console, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            self._script = os.posix_spawn(
                bash,
                [bash, str(self.directory.user_data)],
                self._environment(),
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, nothing, 0),
                    (os.POSIX_SPAWN_DUP2, console, 1),
                    (os.POSIX_SPAWN_DUP2, console, 2),
                ],
                setsid=True,
            )
        finally:
            os.close(console)
            os.close(nothing)

    def _environment(self) -> dict[str, str]:
        """All that the boot script is told: nothing of the daemon's own environment but where programs are."""
        home, scratch = self.directory.disk / "home", self.directory.disk / "tmp"
        return {
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{self.record.metadata_port}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PATH": os.environ["PATH"],
            "TMPDIR": str(scratch),
            "SPOTD_INSTANCE": self.record.token,
            "SPOTD_POWER_OFF": shlex.join(["touch", str(self.directory.orders / "power-off")]),
            "SPOTD_ROOT": str(self.directory.disk),
            MARKER: str(self.directory.path),
        }

    def _shut_down(self, end: End) -> None:
        """As an operating system does. Billing ends where shutting down begins (facts/reclaim.md §1.11)."""
        self._save(state=ObservedState.ENDING, ended_at=self.now(), ended_by=end.ended_by, end_code=end.code)
        services = set() if self._script is None else {self._script}
        processes.end_all(self._processes, services, end.grace_s)
        self.directory.purge()
        self._save(state=ObservedState.GONE)

    def _processes(self) -> set[int]:
        """Everything that runs on this machine."""
        own = processes.descendants(os.getpid())
        return (own | processes.marked(MARKER, str(self.directory.path))) - {os.getpid()}

    def _save(self, **changes: object) -> None:
        """Change the record, on disk and for the metadata server, if anything changes."""
        changed = replace(self.record, **changes)  # type: ignore[arg-type] # named by keyword just above
        if changed != self.record:
            self.directory.write(changed)
            self.record = self.metadata.record = changed


def main() -> None:
    """Play the machine in the directory given."""
    directory = InstanceDirectory(Path(sys.argv[1]))
    lock = os.open(directory.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # another process plays this machine already
    identity = processes.identify(os.getpid())
    if identity is not None:
        directory.write_machine(identity)
    processes.become_subreaper()
    record = directory.read()
    if record.gone:
        return
    os.chdir(directory.disk)
    live = replay.live(directory.path.parent.parent)
    fate = Fate(record.market is Market.SPOT, record.notice_s, record.expires_at)
    machine = Machine(directory, record, live, fate)

    def stopped(*_: object) -> None:
        machine.fate.end = machine.fate.end or End(EndedBy.UNKNOWN, MACHINE_LOST)

    signal.signal(signal.SIGTERM, stopped)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    machine.run()


if __name__ == "__main__":
    main()
