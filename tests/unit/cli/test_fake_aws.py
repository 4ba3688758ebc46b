"""`spotd fake-aws`: it says how to point something at it, and serves until it is told to stop."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from spotd.cli.main import main


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_stopped(number: signal.Signals) -> None:
    """With --json the environment is one line of JSON; Ctrl-C is how it is meant to end, so that is success."""
    command = [sys.executable, "-m", "spotd.cli.main", "fake-aws", "--json", "--regions", "us-west-2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        environment = json.loads(process.stdout.readline())
        with urllib.request.urlopen(f"{environment['AWS_ENDPOINT_URL']}/fake/instances") as answer:
            assert json.load(answer) == []
        process.send_signal(number)
        assert process.wait(20) == 0
    assert environment["AWS_DEFAULT_REGION"] == "us-west-2"


def test_a_port_that_is_taken_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """In a sentence that says what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["fake-aws", "--port", str(taken.getsockname()[1])]) == 2
    assert "Name another with --port" in capsys.readouterr().err
    assert main(["fake-aws", "--port", "70000"]) == 2
    assert main(["fake-aws", "--regions", ","]) == 2
