"""Machines of the local cloud: real processes, real HTTP, real signals."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spotd.core.errors import InvalidRequest
from spotd.core.instance import EndedBy, LaunchRequest, ObservedInstance, ObservedState
from spotd.core.notice import NoticeKind
from spotd.core.offer import Market
from spotd.ports import Launched
from spotd_local import control, processes
from spotd_local.fate import MACHINE_LOST, POWERED_OFF, RECLAIMED, TERMINATED
from spotd_local.provider import LocalProvider
from spotd_local.record import MARKER, InstanceDirectory, Record, request_document
from tests.unit.local.clouds import cloud, market_document, request, until

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Daemonises properly (two forks, a session of its own), ignores TERM, throws its environment away, and tells its pid.
STUBBORN = """
import os, signal, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1] + ".part", "w").write(str(os.getpid()))
os.rename(sys.argv[1] + ".part", sys.argv[1])
if sys.argv[2] == "scrubbed":
    os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {})
time.sleep(600)
"""


@dataclass(frozen=True)
class Host:
    """A local cloud and what its instances do."""

    folder: Path
    provider: LocalProvider

    @property
    def root(self) -> Path:
        """The directory that is the cloud."""
        return self.provider.config.root

    def launch(self, script: str, wanted: LaunchRequest | None = None) -> InstanceDirectory:
        """Ask for an instance with this boot script."""
        wanted = wanted or request()
        self.provider.launch(wanted, script)
        return InstanceDirectory(self.root / "instances" / wanted.token)

    def boot(self, script: str, wanted: LaunchRequest | None = None) -> InstanceDirectory:
        """The same, and wait until it runs."""
        directory = self.launch(script, wanted)
        until(lambda: directory.read().state is ObservedState.RUNNING)
        return directory

    def listed(self, directory: InstanceDirectory) -> ObservedInstance:
        """Its row in the listing."""
        record = directory.read()
        [row] = [r for r in self.provider.instances(record.region) if r.token == record.token]
        return row

    def gone(self, directory: InstanceDirectory) -> ObservedInstance:
        """The row of this instance, once it is gone."""
        return until(lambda: row if (row := self.listed(directory)).state is ObservedState.GONE else None)  # type: ignore[return-value]

    def tell(self, name: str) -> Path:
        """A file outside of all instances, for a boot script to write to."""
        return self.folder / name


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A local cloud that leaves no process behind, whatever the test did."""
    host = Host(tmp_path, cloud(tmp_path))
    yield host
    control.power_cut(host.root)
    assert all(not processes.marked(MARKER, str(p)) for p in (host.root / "instances").iterdir())


def running(path: Path) -> processes.Identity:
    """The process whose pid a script wrote there."""
    pid = int(until(lambda: path.read_text().strip() if path.exists() else ""))
    identity = processes.identify(pid)
    assert identity is not None
    return identity


def machine_of(directory: InstanceDirectory) -> processes.Identity:
    """The process that plays the machine."""
    machine = directory.machine()
    assert machine is not None
    return machine


def metadata(record: Record, item: str) -> tuple[int, str]:
    """Ask an instance's metadata server, as an agent on it would."""
    connection = http.client.HTTPConnection("127.0.0.1", record.metadata_port, timeout=5)
    with contextlib.closing(connection):
        connection.request("PUT", "/latest/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        token = connection.getresponse().read().decode()
        connection.request("GET", f"/latest/meta-data/{item}", headers={"X-aws-ec2-metadata-token": token})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_the_boot_script_gets_what_it_needs_and_none_of_our_secrets(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Endpoint, root, power-off command and token; of the daemon's environment only where programs are."""
    monkeypatch.setenv("SPOTD_DEPLOYMENT_KEY", "secret")
    told = host.tell("environment")
    directory = host.boot(f"env > {told}.part; pwd >> {told}.part; mv {told}.part {told}")
    lines = until(lambda: told.read_text() if told.exists() else "").splitlines()
    names = dict(line.split("=", 1) for line in lines if "=" in line)
    record = directory.read()
    assert names["AWS_EC2_METADATA_SERVICE_ENDPOINT"] == f"http://127.0.0.1:{record.metadata_port}"
    assert (names["SPOTD_ROOT"], lines[-1]) == (str(directory.disk), str(directory.disk))
    assert names["SPOTD_INSTANCE"] == record.token
    assert names["HOME"].startswith(str(directory.disk))
    assert "secret" not in "".join(lines)
    assert metadata(record, "instance-id") == (200, record.provider_id)


def test_the_same_token_is_the_same_instance(host: Host) -> None:
    """A repeated launch starts nothing, whether the answer got lost or the daemon was restarted in between."""
    wanted, starts = request(), host.tell("starts")
    directory = host.boot(f"echo >> {starts}; sleep 600", wanted)
    first, machine = host.provider.launch(wanted, "other user data"), directory.machine()
    restarted = cloud(host.folder)
    assert restarted.launch(wanted, "other user data") == first == restarted.outcome(wanted)
    assert directory.machine() == machine
    assert len(restarted.instances("east")) == 1
    assert starts.read_text() == "\n"


def test_a_token_used_with_other_parameters_is_refused(host: Host) -> None:
    """As EC2's IdempotentParameterMismatch (facts/reclaim.md §1.10)."""
    wanted = request()
    host.boot("true", wanted)
    with pytest.raises(InvalidRequest) as refused:
        host.provider.launch(request(token=wanted.token, rank=1), "true")
    assert refused.value.code == "IdempotentParameterMismatch"


def test_a_launch_that_died_before_its_machine_is_finished_by_the_next_look(host: Host) -> None:
    """Killed between the directory and the machine, the daemon finds an instance that boots after all."""
    wanted = request()
    directory = InstanceDirectory(host.root / "instances" / wanted.token)
    host.boot("true")  # the market has begun
    host.provider._create(directory, wanted, "sleep 600")
    assert isinstance(host.provider.outcome(wanted), Launched)
    until(lambda: host.listed(directory).state is ObservedState.RUNNING)
    assert json.loads((directory.path / "request.json").read_text()) == request_document(wanted)


@pytest.mark.parametrize("environment", ["kept", "scrubbed"])
def test_terminate_leaves_no_descendant_alive(host: Host, environment: str) -> None:
    """Not even one that daemonised itself, ignores TERM and threw its environment away; the disk and the credential go, too."""
    pid_file = host.tell("stubborn.pid")
    stubborn = host.tell("stubborn.py")
    stubborn.write_text(STUBBORN)
    directory = host.boot(f"{sys.executable} {stubborn} {pid_file} {environment}; sleep 600")
    daemon = running(pid_file)
    assert (directory.user_data.stat().st_mode & 0o777) == 0o600
    host.provider.terminate("east", directory.read().provider_id)
    row = host.gone(directory)
    assert not daemon.is_alive()
    assert (row.ended_by, row.end_code) == (EndedBy.US, TERMINATED)
    assert not directory.disk.exists()
    assert not directory.user_data.exists()
    until(lambda: not machine_of(directory).is_alive())
    host.provider.terminate("east", row.provider_id)


def test_a_machine_killed_with_kill_9_takes_its_processes_with_it(host: Host) -> None:
    """The next look finds no machine, ends what it left running, and records an end that was nobody's decision: a failed host, not a hand."""
    pid_file = host.tell("agent.pid")
    directory = host.boot(f"echo $$ > {pid_file}.part; mv {pid_file}.part {pid_file}; sleep 600")
    agent = running(pid_file)
    os.kill(machine_of(directory).pid, signal.SIGKILL)
    until(lambda: not machine_of(directory).is_alive())
    assert agent.is_alive()
    row = host.listed(directory)
    assert not agent.is_alive()
    assert (row.state, row.ended_by, row.end_code) == (ObservedState.GONE, EndedBy.UNKNOWN, MACHINE_LOST)
    assert not directory.user_data.exists()


def test_terminate_works_on_a_machine_that_was_killed(host: Host) -> None:
    """It sweeps instead of giving an order that nobody would take."""
    pid_file = host.tell("agent.pid")
    directory = host.boot(f"echo $$ > {pid_file}.part; mv {pid_file}.part {pid_file}; sleep 600")
    agent = running(pid_file)
    os.kill(machine_of(directory).pid, signal.SIGKILL)
    until(lambda: not machine_of(directory).is_alive())
    host.provider.terminate("east", directory.read().provider_id)
    assert not agent.is_alive()
    assert directory.read().state is ObservedState.GONE


def test_sweeping_a_machine_takes_no_end_of_other_children(host: Host) -> None:
    """The daemon has children of its own, whose exit codes somebody waits for."""
    directory = host.boot("sleep 600")
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"]) as other:
        until(lambda: processes.identify(other.pid) is None)
        os.kill(machine_of(directory).pid, signal.SIGKILL)
        until(lambda: host.listed(directory).state is ObservedState.GONE)
        control.power_cut(host.root)
        assert other.wait() == 7


def test_a_machine_that_hangs_is_ended_all_the_same(host: Host) -> None:
    """It does not take its orders; a terminate that is repeated long enough kills it, and the end is still ours."""
    pid_file = host.tell("agent.pid")
    directory = host.boot(f"echo $$ > {pid_file}.part; mv {pid_file}.part {pid_file}; sleep 600")
    agent, machine = running(pid_file), machine_of(directory)
    os.kill(machine.pid, signal.SIGSTOP)
    host.provider.terminate("east", directory.read().provider_id)
    assert agent.is_alive()
    later = cloud(host.folder)
    later.now = lambda: time.time() + 11
    later.terminate("east", directory.read().provider_id)
    assert not agent.is_alive()
    row = host.listed(directory)
    assert (row.state, row.ended_by, row.end_code) == (ObservedState.GONE, EndedBy.US, TERMINATED)
    assert row.ended_at is not None
    assert row.ended_at.timestamp() <= time.time(), "it is billed until it last said that it lives"


def test_a_reclaim_is_announced_on_both_channels_and_happens_at_its_deadline(tmp_path: Path) -> None:
    """The recorded market takes the zone away: IMDS and the provider's channel tell, TERM comes at the deadline, then the end."""
    document = market_document(west_a=[[1, 3], [0, 7]])
    document["gap_seconds"] = 1
    host = Host(tmp_path, cloud(tmp_path, document=document))
    told = host.tell("term")
    try:
        directory = host.boot(f"trap 'date +%s.%N > {told}; exit 0' TERM; sleep 600 & wait", request("west-a"))
        assert metadata(directory.read(), "spot/instance-action")[0] == 404
        mark = until(lambda: directory.read().mark)
        assert mark is not None
        status, body = metadata(directory.read(), "spot/instance-action")
        assert (status, json.loads(body)["action"]) == (200, "terminate")
        [delivered] = host.provider.notices(threading.Event())
        assert delivered.notice.kind is NoticeKind.RECLAIM
        assert delivered.notice.deadline is not None
        assert delivered.notice.deadline.timestamp() == pytest.approx(mark.deadline, abs=0.001)
        assert host.listed(directory).state is ObservedState.RUNNING
        row = host.gone(directory)
        assert (row.ended_by, row.end_code) == (EndedBy.RECLAIM, RECLAIMED)
        assert row.ended_at is not None
        assert mark.deadline <= row.ended_at.timestamp() <= float(told.read_text()) < mark.deadline + 1
    finally:
        control.power_cut(host.root)


def test_on_demand_is_never_reclaimed(host: Host) -> None:
    """It launches and runs in a zone that is down, and cannot be reclaimed by order either."""
    wanted = request("west-b", Market.ON_DEMAND)
    directory = host.boot("sleep 600", wanted)
    with pytest.raises(ValueError, match="never reclaimed"):
        control.reclaim(host.root, wanted.token)
    directory.order("reclaim", unannounced=True)
    until(lambda: not list(directory.orders.iterdir()))
    record = directory.read()
    assert (record.state, record.mark) == (ObservedState.RUNNING, None)
    assert metadata(record, "instance-life-cycle") == (200, "on-demand")


def test_injected_reclaims_choose_their_channel(host: Host) -> None:
    """A notice may be lost on one way and come on the other; a rebalance hint ends nothing."""
    directory = host.boot("sleep 600")
    token = directory.read().token
    control.rebalance(host.root, token)
    control.reclaim(host.root, token, notice_s=60, channels=control.Channels.PROVIDER)
    until(lambda: directory.read().mark)
    assert metadata(directory.read(), "spot/instance-action")[0] == 404
    assert metadata(directory.read(), "events/recommendations/rebalance")[0] == 200
    assert {n.notice.kind for n in host.provider.notices(threading.Event())} == {
        NoticeKind.RECLAIM,
        NoticeKind.REBALANCE,
    }


def test_an_unannounced_reclaim_is_a_power_cut(host: Host) -> None:
    """No notice, no TERM, and the record says what it was."""
    told = host.tell("term")
    directory = host.boot(f"trap 'touch {told}' TERM; sleep 600 & wait")
    control.reclaim_unannounced(host.root, directory.read().token)
    assert host.gone(directory).end_code == RECLAIMED
    assert not told.exists()


def test_an_instance_can_power_itself_off(host: Host) -> None:
    """With the command it was given, and the end is the guest's."""
    row = host.gone(host.launch("$SPOTD_POWER_OFF; sleep 600"))
    assert (row.ended_by, row.end_code) == (EndedBy.GUEST, POWERED_OFF)


def test_somebody_elses_terminate_is_external(host: Host) -> None:
    """Through the console, so to speak: nothing that we asked for."""
    directory = host.boot("sleep 600")
    control.terminate(host.root, directory.read().token)
    row = host.gone(directory)
    assert (row.ended_by, row.end_code) == (EndedBy.EXTERNAL, TERMINATED)


def test_a_boot_script_that_fails_is_started_again_and_one_that_succeeds_is_not(host: Host) -> None:
    """As a systemd unit with Restart=on-failure; an agent that crashes comes back."""
    done, starts = host.tell("done"), host.tell("starts")
    host.launch(f"echo >> {done}; exit 0")
    until(done.exists)
    host.launch(f"echo >> {starts}; test $(wc -l < {starts}) -ge 3 && exit 0; kill -9 $$")
    until(lambda: starts.exists() and len(starts.read_text()) == 3)
    assert done.read_text() == "\n"


def test_a_machine_outlives_the_daemon_that_started_it(host: Host) -> None:
    """Its starter is killed; the instance runs on and is found by the next daemon."""
    wanted = request()
    code = (
        "import os, signal, sys; from tests.unit.local.clouds import *; from pathlib import Path\n"
        f"p = cloud(Path({str(host.folder)!r})); r = request(token={wanted.token!r})\n"
        "p.launch(r, 'sleep 600'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    here = Path(__file__).parents[2]
    killed = subprocess.run([sys.executable, "-c", code], cwd=here, env={**os.environ, "PYTHONPATH": str(here)}, check=False)
    assert killed.returncode == -signal.SIGKILL
    directory = InstanceDirectory(host.root / "instances" / wanted.token)
    until(lambda: host.listed(directory).state is ObservedState.RUNNING)


def test_a_second_machine_for_the_same_instance_steps_back(host: Host) -> None:
    """Two that ran one instance would run its script twice."""
    directory = host.boot("sleep 600")
    command: list[Any] = [sys.executable, "-m", "spotd_local.machine", directory.path]
    assert subprocess.run(command, check=False, timeout=10).returncode == 0
    assert machine_of(directory).is_alive()
