"""What a machine's boot script asks of the daemon before there is an agent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotd.core import events as e
from spotd.core.attempt import EndReason
from spotd.daemon.agent_zip import AgentZip
from tests.contract.agent_world import ATTEMPT, INSTANCE, Answer, Daemon


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon with one job on one instance that has not called yet."""
    with Daemon(tmp_path) as daemon:
        yield daemon


def _boot_failed(daemon: Daemon, **changes: object) -> Answer:
    body = {"instance": INSTANCE, "credential": daemon.credentials.bootstrap(INSTANCE), "step": "fetching the agent", "line": 40, "code": 1}
    return daemon.request("POST", "/v1/agent/boot-failed", json={**body, **changes})


def test_a_machine_that_will_not_come_up_is_not_waited_for(daemon: Daemon) -> None:
    """The attempt ends at once, with the step that failed, and its offer cools down like one where boots time out."""
    assert _boot_failed(daemon).status == 200
    attempt = daemon.recorder.world.attempts[ATTEMPT]
    assert (attempt.reason, attempt.detail) == (EndReason.BOOT_FAILED, "fetching the agent (line 40, exit code 1)")
    assert len(daemon.recorder.world.cooldowns) == 1
    assert _boot_failed(daemon).status in {200, 401}, "said again, it does no harm"


def test_only_the_machine_itself_can_say_so(daemon: Daemon) -> None:
    """Another's credential is worth nothing, and once an agent has called, no boot script speaks for the machine any more."""
    assert _boot_failed(daemon, credential="0" * 64).status == 401
    assert _boot_failed(daemon, line=-1).status == 422
    assert daemon.recorder.events == []
    assert daemon.bootstrap().status == 200
    assert _boot_failed(daemon).status == 401
    assert not [event for event in daemon.recorder.events if isinstance(event, e.BootFailed)]


def test_a_machine_of_before_an_upgrade_gets_its_agent(daemon: Daemon) -> None:
    """Its script names the build that the daemon had when it was asked for."""
    old = b"the agent of last week"
    sha256 = hashlib.sha256(old).hexdigest()
    assert daemon.request("GET", f"/agent.pyz?sha256={sha256}").status == 404
    daemon.builds.keep(AgentZip(old, sha256), ())
    assert daemon.request("GET", f"/agent.pyz?sha256={sha256}").content == old
    assert daemon.request("GET", "/agent.pyz?sha256=../../tls").status == 404
