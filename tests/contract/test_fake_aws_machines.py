"""Instances of the fake AWS account as real processes: they run their user data, know nothing of the host, and leave nothing behind."""

from __future__ import annotations

import gzip
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spotd.testing.fake_aws import FakeAws, Lags, Machines, State
from spotd.testing.fake_aws.supervisor import marked
from tests.contract.aws_clients import client_of

_LAGS = Lags(boot_s=0.1, shutdown_s=1.0)
_SERVICE = """\
#!/bin/bash
env >env.txt
pwd >pwd.txt
echo $PPID >supervisor.txt
echo "hello from $HOME"
(setsid sleep 1000 &)
trap 'echo ended properly; exit 0' TERM
while true; do sleep 0.05; done
"""


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[FakeAws]:
    """An account with machines below a directory of the test's."""
    with FakeAws(lags=_LAGS, machines=Machines(tmp_path / "machines", grace_s=0.5)) as fake:
        yield fake


def _launch(aws: FakeAws, user_data: str | bytes) -> str:
    ec2 = client_of(aws, "ec2")
    image = ec2.describe_images()["Images"][0]["ImageId"]
    [instance] = ec2.run_instances(
        ImageId=image, InstanceType="g5.xlarge", MinCount=1, MaxCount=1, UserData=user_data, InstanceInitiatedShutdownBehavior="terminate"
    )["Instances"]
    return str(instance["InstanceId"])


def _until(done: Callable[[], Any], seconds: float = 15.0) -> None:
    """These are real processes: nothing here can be stepped."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def _console(aws: FakeAws, ident: str) -> str:
    return str(client_of(aws, "ec2").get_console_output(InstanceId=ident)["Output"])


def _processes(tmp_path: Path, ident: str) -> set[int]:
    return marked(str(tmp_path / "machines" / ident))


def test_user_data_runs_with_nothing_of_the_hosts(aws: FakeAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment holds what a machine of spotd's is told, and PATH; its directory is its own; what it writes is its console."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-hosts")
    ident = _launch(aws, _SERVICE)
    directory = tmp_path / "machines" / ident
    _until(lambda: "hello" in _console(aws, ident))
    told = dict(line.split("=", 1) for line in (directory / "env.txt").read_text().splitlines())
    shell = {"PWD", "SHLVL", "OLDPWD", "_"}
    assert told.keys() - shell == {
        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        "HOME",
        "LANG",
        "PATH",
        "SPOTD_FAKE_AWS_MACHINE",
        "SPOTD_POWER_OFF",
        "SPOTD_ROOT",
        "TMPDIR",
    }
    assert told["SPOTD_ROOT"] == str(directory / "agent")
    assert told["AWS_EC2_METADATA_SERVICE_ENDPOINT"] == aws.imds(ident)
    assert (directory / "pwd.txt").read_text().strip() == str(directory)


def test_packed_user_data_is_unpacked(aws: FakeAws) -> None:
    """As cloud-init does."""
    ident = _launch(aws, gzip.compress(b"#!/bin/sh\necho unpacked\n"))
    _until(lambda: "unpacked" in _console(aws, ident))


def test_the_end_is_a_shutdown_and_leaves_nothing(aws: FakeAws, tmp_path: Path) -> None:
    """TERM first, so that the service can end properly; when the instance is terminated none of its processes is left, orphans neither."""
    ident = _launch(aws, _SERVICE)
    _until(lambda: "hello" in _console(aws, ident))
    assert len(_processes(tmp_path, ident)) >= 2
    client_of(aws, "ec2").terminate_instances(InstanceIds=[ident])
    _until(lambda: aws.instance(ident).state is State.TERMINATED)
    assert _processes(tmp_path, ident) == set()
    assert "ended properly" in _console(aws, ident)


def test_what_does_not_listen_is_killed(aws: FakeAws, tmp_path: Path) -> None:
    """A process that ignores TERM lives no longer than its instance."""
    ident = _launch(aws, "#!/bin/sh\ntrap '' TERM HUP INT\necho deaf\nwhile true; do sleep 0.1; done\n")
    _until(lambda: "deaf" in _console(aws, ident))
    aws.end_by_hand(ident)
    _until(lambda: aws.instance(ident).state is State.TERMINATED)
    assert _processes(tmp_path, ident) == set()


def test_a_machine_switches_itself_off(aws: FakeAws) -> None:
    """By $SPOTD_POWER_OFF, as the agent does when nobody answers it."""
    ident = _launch(aws, '#!/bin/sh\nsh -c "$SPOTD_POWER_OFF"\nsleep 1000\n')
    _until(lambda: not aws.instance(ident).alive)
    assert aws.instance(ident).state_reason.code == "Client.InstanceInitiatedShutdown"


def test_a_service_that_fails_is_started_again(aws: FakeAws) -> None:
    """As its unit would be; one that has ended well is not."""
    ident = _launch(aws, "#!/bin/sh\necho again\ntest $(wc -l <$HOME/../console) -ge 3\n")
    _until(lambda: _console(aws, ident).count("again") == 3)
    time.sleep(1.0)
    assert _console(aws, ident).count("again") == 3


def test_closing_the_account_leaves_no_process(tmp_path: Path) -> None:
    """Whatever runs is killed, also where its supervisor was killed before."""
    with FakeAws(lags=_LAGS, machines=Machines(tmp_path / "machines")) as aws:
        idents = [_launch(aws, _SERVICE) for _ in range(2)]
        for ident in idents:
            _until(lambda ident=ident: "hello" in _console(aws, ident))  # type: ignore[misc]
        os.kill(int((tmp_path / "machines" / idents[0] / "supervisor.txt").read_text()), signal.SIGKILL)
    for ident in idents:
        assert _processes(tmp_path, ident) == set()
