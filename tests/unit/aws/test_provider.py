"""The account as a whole: what it says of itself."""

from __future__ import annotations

import pytest

from spotd_aws import build
from spotd_aws.config import ConfigError


@pytest.fixture(autouse=True)
def _no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_EC2", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("configured", "environment", "remote"),
    [
        (None, {}, True),
        ("https://aws.internal.example.com", {}, True),
        ("http://10.0.0.7:4566", {}, True),
        ("http://127.0.0.1:4566", {}, False),
        ("http://[::1]:4566", {}, False),
        ("http://localhost:4566", {}, False),
        (None, {"AWS_ENDPOINT_URL": "http://127.0.0.1:4566"}, False),
        (None, {"AWS_ENDPOINT_URL": "http://127.0.0.1:4566", "AWS_ENDPOINT_URL_EC2": "https://ec2.example.com"}, True),
    ],
)
def test_only_an_aws_of_this_host_has_its_machines_here(
    configured: str | None, environment: dict[str, str], remote: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machines elsewhere need an address of the daemon and a store; those of `spotd fake-aws` do not."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    table: dict[str, object] = {"regions": ["us-west-2"]} | ({} if configured is None else {"endpoint_url": configured})
    provider = build(table, "ours")
    assert provider.capabilities.remote is remote
    provider.close()


def test_a_profile_that_is_not_there_is_a_line_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon says which key is wrong; nothing is asked of AWS at the start."""
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    with pytest.raises(ValueError, match=r"profile: .*nobody"):
        build({"profile": "nobody"}, "ours")
    with pytest.raises(ConfigError, match="heartbeat"):
        build({"heartbeat": 5}, "ours")
