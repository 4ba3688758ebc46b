"""The boot script, run by bash with a daemon that answers over TLS and a scratch directory for a machine."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from spotd.daemon.boot import user_data
from spotd.daemon.tls import load_tls

CREDENTIAL = hashlib.sha256(b"secret").hexdigest()

#: Stands in for the agent: writes down how it was called, and everything of that which others could see.
STAND_IN = b"""\
import json, os, sys
record = {"argv": sys.argv[1:], "environ": dict(os.environ), "cwd": os.getcwd(), "version": sys.version_info[:2]}
with open(os.path.join(os.environ["SPOTD_ROOT"], "called.json"), "w") as stream:
    json.dump(record, stream)
"""
SHA256 = hashlib.sha256(STAND_IN).hexdigest()


class FakeDaemon:
    """Serves `/agent.pyz`; `refusals` answers come first."""

    def __init__(self, directory: Path) -> None:
        tls = load_tls(directory / "agents.pem")
        self.certificate = tls.certificate_pem
        self.program = STAND_IN
        self.wanted = SHA256
        self.reports: list[dict[str, object]] = []
        self.refusals = 0
        self.asked = 0
        daemon = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                daemon.asked += 1
                refused = daemon.asked <= daemon.refusals
                self.send_response(503 if refused else 200 if self.path == f"/agent.pyz?sha256={daemon.wanted}" else 404)
                self.end_headers()
                self.wfile.write(b"" if refused else daemon.program)

            def do_POST(self) -> None:
                daemon.reports.append({"path": self.path, **json.loads(self.rfile.read(int(self.headers["Content-Length"])))})
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = tls.context.wrap_socket(self._server.socket, server_side=True)
        self.address = f"https://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self) -> None:
        """Be away from now on."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


class Machine:
    """A bare machine: a scratch directory, and bash."""

    def __init__(self, directory: Path, daemon: FakeDaemon) -> None:
        self.root = directory / "disk"
        self.script = directory / "user-data"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory / "home"),
            "TMPDIR": str(directory / "tmp"),
            "SPOTD_ROOT": str(self.root),
            "SPOTD_POWER_OFF": "touch 'power off'",
        }
        (directory / "tmp").mkdir()
        self.daemon = daemon

    def write(self, sha256: str, certificate: str) -> list[str]:
        """The command that runs user data with these."""
        self.script.write_text(user_data("i-1", self.daemon.address, certificate, CREDENTIAL, sha256))
        return ["bash", str(self.script)]

    def boot(self) -> subprocess.CompletedProcess[str]:
        """Run the user data as the machine's first act."""
        command = self.write(SHA256, self.daemon.certificate)
        return subprocess.run(
            command,
            env=self.environment,
            cwd=self.script.parent,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            umask=0o022,
        )

    def boot_in_vain(self, certificate: str | None = None) -> str:
        """Run user data that cannot succeed until it says why."""
        command = self.write(SHA256, certificate or self.daemon.certificate)
        with subprocess.Popen(command, env=self.environment, stderr=subprocess.PIPE, text=True, process_group=0) as process:
            assert process.stderr is not None
            said = process.stderr.readline()
            os.killpg(process.pid, signal.SIGKILL)
        return said

    @property
    def called(self) -> dict[str, object]:
        """How the agent was called."""
        record: dict[str, object] = json.loads((self.root / "called.json").read_text())
        return record


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    """A daemon that is there."""
    (tmp_path / "daemon").mkdir()
    daemon = FakeDaemon(tmp_path / "daemon")
    yield daemon
    daemon.stop()


@pytest.fixture
def machine(tmp_path: Path, daemon: FakeDaemon) -> Machine:
    """A machine that has not booted yet."""
    (tmp_path / "machine").mkdir()
    return Machine(tmp_path / "machine", daemon)


def test_a_bare_machine_becomes_an_agent(machine: Machine) -> None:
    """The script fetches the agent, checks it and becomes it, with the configuration where the agent looks for it."""
    booted = machine.boot()
    assert (booted.returncode, booted.stderr) == (0, "")
    root = str(machine.root)
    assert machine.called["argv"] == ["agent", "--config", f"{root}/agent.json", "--root", root, "--power-off", "touch 'power off'"]
    assert json.loads((machine.root / "agent.json").read_text()) == {
        "address": machine.daemon.address,
        "certificate": machine.daemon.certificate,
        "instance": "i-1",
        "bootstrap_credential": CREDENTIAL,
    }


def test_nothing_outside_the_root_is_touched(machine: Machine, tmp_path: Path) -> None:
    """All that booting leaves is below the machine's root, readable by its owner alone."""
    machine.boot()
    left = {path.relative_to(tmp_path / "machine") for path in (tmp_path / "machine").rglob("*")}
    assert {str(path) for path in left} == {"user-data", "tmp", "disk", "disk/agent.json", "disk/agent.pyz", "disk/boot.py", "disk/called.json"}
    for path in (machine.root, *machine.root.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_the_credential_is_in_no_argument_and_no_variable(machine: Machine, tmp_path: Path) -> None:
    """Whoever lists the machine's processes while it boots does not see the credential."""
    spy = tmp_path / "machine" / "bin"
    spy.mkdir()
    seen = tmp_path / "machine" / "seen"
    for program in ("cat", "mkdir", "chmod", "mv", "python3"):
        real = sys.executable if program == "python3" else shutil.which(program)
        (spy / program).write_text(f'#!/bin/bash\n{{ tr "\\0" "\\n" </proc/$$/cmdline; env; }} >>{seen}\nexec {real} "$@"\n')
        (spy / program).chmod(0o755)
    machine.environment["PATH"] = f"{spy}:{machine.environment['PATH']}"
    assert machine.boot().returncode == 0
    assert "agent.json" in seen.read_text()
    assert CREDENTIAL not in seen.read_text()
    assert CREDENTIAL not in json.dumps(machine.called)


def test_a_restart_needs_no_daemon(machine: Machine) -> None:
    """Once fetched, the agent is started again while the daemon is away."""
    assert machine.boot().returncode == 0
    machine.daemon.stop()
    (machine.root / "called.json").unlink()
    assert machine.boot().returncode == 0
    assert machine.called["argv"]


def test_a_damaged_agent_is_fetched_again(machine: Machine) -> None:
    """What is on disk is used only if its sha256 is the announced one."""
    machine.root.mkdir()
    (machine.root / "agent.pyz").write_bytes(STAND_IN[:-10])
    assert machine.boot().returncode == 0
    assert (machine.root / "agent.pyz").read_bytes() == STAND_IN


def test_a_daemon_that_is_away_is_waited_for(machine: Machine) -> None:
    """Refusals are retried; each new problem is said once."""
    machine.daemon.refusals = 1
    booted = machine.boot()
    assert booted.returncode == 0
    assert booted.stderr.splitlines() == ["spotd boot: the agent cannot be fetched yet: OSError: HTTP 503"]
    assert machine.called["argv"]


def test_another_program_is_never_run(machine: Machine) -> None:
    """An agent with another sha256 is not kept, let alone started."""
    machine.daemon.program = b"print('evil')"
    assert "not the agent" in machine.boot_in_vain()
    assert not (machine.root / "agent.pyz").exists()


def test_another_certificate_is_never_talked_to(machine: Machine, tmp_path: Path) -> None:
    """Whoever answers with another certificate is not even asked."""
    other = load_tls(tmp_path / "other.pem").certificate_pem
    assert "another certificate" in machine.boot_in_vain(other)
    assert machine.daemon.asked == 0


def test_a_machine_without_python_says_so(machine: Machine, tmp_path: Path) -> None:
    """Where no python3 of 3.9 or newer is found the script fails, and its last words name the step."""
    bare = tmp_path / "machine" / "bin"
    bare.mkdir()
    for program in ("bash", "cat", "mkdir", "chmod", "mv"):
        (bare / program).symlink_to(str(shutil.which(program)))
    old = bare / "python3"
    old.write_text("#!/bin/bash\nexit 1\n")
    old.chmod(0o755)
    machine.environment["PATH"] = str(bare)
    script = user_data("i-1", machine.daemon.address, machine.daemon.certificate, CREDENTIAL, "0" * 64)
    for path in ("/usr/bin/python3", "/usr/local/bin/python3", "/opt/conda/bin/python3"):
        script = script.replace(path, f"{bare}/absent")  # this machine may have them
    booted = subprocess.run([str(bare / "bash"), "-c", script], env=machine.environment, capture_output=True, text=True, timeout=30, check=False)
    assert booted.returncode == 1
    assert booted.stderr == "spotd boot: failed while looking for python3, 3.9 or newer, with TLS: there is none on this machine\n"


def test_a_failing_step_is_named(machine: Machine) -> None:
    """A machine that cannot make its directory says that this is what failed."""
    machine.root.write_text("a file")
    booted = machine.boot()
    assert booted.returncode != 0
    assert "spotd boot: failed while making the directory" in booted.stderr


def test_the_script_is_the_same_for_the_same_instance(machine: Machine) -> None:
    """A launch that is repeated repeats its user data byte for byte; and a cloud takes it."""
    first, second = (user_data("i-1", "https://10.0.0.5:7443", machine.daemon.certificate, CREDENTIAL, "0" * 64) for _ in range(2))
    assert first == second
    assert len(first.encode()) < 16 * 1024
    assert first.startswith("#!/bin/bash\n")


@pytest.mark.parametrize(
    ("address", "sha256"),
    [("http://h:1", "0" * 64), ("https://h:1 x", "0" * 64), ("https://h:1", "0; rm -rf /"), ("https://h\n:1", "0" * 64)],
)
def test_arguments_that_could_be_commands_are_refused(address: str, sha256: str) -> None:
    """Nothing that is not an address or a sum gets into the script."""
    with pytest.raises(ValueError, match="is not"):
        user_data("i", address, "c", "x", sha256)


def test_text_in_the_configuration_stays_text(machine: Machine) -> None:
    """Shell syntax in a value is data: it is written to the file as it is."""
    script = user_data("$(touch oops) `id` 'x' \\ END_OF_CONFIGURATION", machine.daemon.address, machine.daemon.certificate, CREDENTIAL, "0" * 64)
    upto = script.index('step="fetching')
    subprocess.run(["bash", "-c", script[:upto]], env=machine.environment, cwd=machine.script.parent, check=True)
    assert json.loads((machine.root / "agent.json").read_text())["instance"] == "$(touch oops) `id` 'x' \\ END_OF_CONFIGURATION"
    assert not (machine.script.parent / "oops").exists()


def test_tls_is_modern(machine: Machine) -> None:
    """The daemon's side speaks TLS 1.2 or newer only."""
    host, port = machine.daemon.address.removeprefix("https://").split(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection((host, int(port))) as raw, context.wrap_socket(raw) as wrapped:
        assert wrapped.version() in {"TLSv1.2", "TLSv1.3"}


def test_a_line_that_fails_is_told_to_the_daemon(machine: Machine) -> None:
    """A machine that will not come up says which step failed, so that nobody waits for its boot to time out."""
    (machine.root / "agent.pyz.new").mkdir(parents=True)
    booted = machine.boot()
    assert booted.returncode == 1
    assert "spotd boot: failed while fetching the agent (line " in booted.stderr
    (report,) = machine.daemon.reports
    assert (report["path"], report["instance"], report["credential"]) == ("/v1/agent/boot-failed", "i-1", CREDENTIAL)
    assert (report["step"], report["code"]) == ("fetching the agent", 1)
    assert CREDENTIAL not in booted.stderr


def test_where_systemd_runs_the_machine_the_agent_is_a_unit(machine: Machine, tmp_path: Path) -> None:
    """It is started as a unit that outlives the script, and the job will run as a user of its own. Booting again changes nothing."""
    units, tools, done = tmp_path / "units", tmp_path / "tools", tmp_path / "done"
    units.mkdir()
    tools.mkdir()
    for program in ("systemctl", "useradd", "id"):
        (tools / program).write_text(f'#!/bin/bash\necho {program} "$@" >>{done}\n[ {program} != id ]\n')
        (tools / program).chmod(0o755)
    machine.environment |= {"SPOTD_UNITS": str(units), "PATH": f"{tools}:{machine.environment['PATH']}"}
    for _ in range(2):
        assert machine.boot().returncode == 0
    unit = (units / "spotd-agent.service").read_text()
    root = machine.root
    command = f'{root}/agent.pyz agent --config {root}/agent.json --root {root} --power-off "systemctl poweroff" --user spotd-job'
    assert f"{command}\n" in unit
    assert "KillMode=process\n" in unit
    said = done.read_text().splitlines()
    assert said[:5] == [
        "id -u spotd-job",
        "useradd --system --create-home --shell /bin/bash spotd-job",
        "systemctl daemon-reload",
        "systemctl enable --quiet spotd-agent.service",
        "systemctl start --no-block spotd-agent.service",
    ]
    assert said[5:] == said[:5]
    assert CREDENTIAL not in unit + done.read_text()
