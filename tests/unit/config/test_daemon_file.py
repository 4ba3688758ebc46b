"""`spotd.toml` and the environment over it."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from spotd.config import daemon
from spotd.config.daemon import AgentApi, Checkpoints, load_daemon_config, parse_daemon_config, settled_deployment
from spotd.config.errors import ConfigError


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.upper().startswith("SPOTD_")]:
        monkeypatch.delenv(name)


def test_an_empty_file_means_the_defaults() -> None:
    """Nothing need be configured."""
    config = parse_daemon_config("")

    assert (Path("/var/lib/spotd"), Path("/run/spotd/spotd.sock")) == (config.state_dir, config.socket)
    assert (Path("/etc/spotd/policies"), "spotd", "spotd-admin") == (config.policies_dir, config.socket_group, config.admin_group)
    assert (AgentApi("127.0.0.1", 0, None), {}, None) == (config.agent_api, dict(config.providers), config.deployment)
    assert (config.log_level, config.log_format, config.workdir_limit) == ("info", "text", 500_000_000)


def test_every_kind_of_value_arrives() -> None:
    """Paths, durations, sizes, addresses and the providers' free tables."""
    config = parse_daemon_config(
        'state_dir = "/s"\ntick_interval = "200ms"\nworkdir_limit = "1GB"\n[agent_api]\nlisten = "[::1]:7443"\nadvertise = "a.example:1"\n'
        '[providers.local]\nroot = "/c"\nspeed = 600\n'
    )

    assert (Path("/s"), timedelta(milliseconds=200), 10**9) == (config.state_dir, config.tick_interval, config.workdir_limit)
    assert AgentApi("::1", 7443, "a.example:1") == config.agent_api
    assert dict(config.providers["local"]) == {"root": "/c", "speed": 600}


def test_the_environment_overrides_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """`SPOTD_…` with `__` between block and key wins; what is not a key of ours is nobody's business."""
    monkeypatch.setenv("SPOTD_LOG_LEVEL", "debug")
    monkeypatch.setenv("SPOTD_AGENT_API__LISTEN", "0.0.0.0:99")
    monkeypatch.setenv("SPOTD_PROVIDERS__LOCAL__SPEED", "60")
    monkeypatch.setenv("SPOTD_JOB_ID", "x")
    config = parse_daemon_config('log_level = "error"\n[agent_api]\nadvertise = "a:1"\n[providers.local]\nroot = "/c"\nspeed = 600\n')

    assert config.log_level == "debug"
    assert AgentApi("0.0.0.0", 99, "a:1") == config.agent_api
    assert dict(config.providers["local"]) == {"root": "/c", "speed": 60}


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ('\nlog_levl = "info"\n', 2, "log_levl", "did you mean log_level?"),
        ('[agent_api]\nlistn = "x"\n', 2, "agent_api.listn", "did you mean listen?"),
        ('[agent_api]\nlisten = "127.0.0.1"\n', 2, "agent_api.listen", "port"),
        ('[agent_api]\nlisten = "127.0.0.1:70000"\n', 2, "agent_api.listen", "port"),
        ("tick_interval = 3\n", 1, "tick_interval", "3s or 3m"),
        ('tick_interval = "15 min"\n', 1, "tick_interval", "did you mean 15m?"),
        ('log_level = "loud"\n', 1, "log_level", "debug, info, warning"),
        ('state_dir = "x"\n', 1, "state_dir", "begin it with /"),
        ("state_dir = 3\n", 1, "state_dir", "a path is wanted"),
        (f'socket = "/{"x" * 120}"\n', 1, "socket", "too long for a socket"),
        ("workdir_limit = 500\n", 1, "workdir_limit", "500MB"),
        ("[providers]\nlocal = 3\n", 2, "providers.local", "a block of keys is wanted"),
        ("tick_interval = 5s\n", 1, "", "stand in quotes"),
        ("a = [[[", 1, "", "is not valid TOML"),
        ('deployment = "a b"\n', 1, "deployment", "letters, digits"),
        ('[checkpoints]\nstore = "s3:/bucket"\n', 2, "checkpoints.store", "s3://bucket/prefix"),
        ('[checkpoints]\nstore = "s3://bucket/../other"\n', 2, "checkpoints.store", "s3://bucket/prefix"),
        ('[checkpoints]\nstore = "s3://AKIA:secret@bucket"\n', 2, "checkpoints.store", "credentials do not belong into this file"),
        ('[checkpoints]\nstore = "s3://bucket?x=1"\n', 2, "checkpoints.store", "more than an address"),
        ("[checkpoints]\nstore = 3\n", 2, "checkpoints.store", "is a number"),
        ('[checkpoints]\nstor = "s3://bucket"\n', 2, "checkpoints.stor", "did you mean store?"),
        ('[checkpoints]\nregion = "us-west-2"\n', 1, "checkpoints", "has region and no store"),
        ('[checkpoints]\nstore = "s3://bucket"\nendpoint_url = "minio:9000"\n', 3, "checkpoints.endpoint_url", "https://minio.example.com:9000"),
        ('[checkpoints]\nstore = "s3://bucket"\nendpoint_url = "https://me:pw@minio"\n', 3, "checkpoints.endpoint_url", "credentials"),
        ('[checkpoints]\nstore = "s3://bucket"\nregion = "us west"\n', 3, "checkpoints.region", "us-west-2"),
    ],
)
def test_what_is_wrong_is_told_with_line_and_key(text: str, line: int, key: str, says: str) -> None:
    """Each mistake names its line, its key and what is accepted."""
    with pytest.raises(ConfigError) as caught:
        parse_daemon_config(text, "spotd.toml")

    assert [("spotd.toml", line, key)] == [(p.file, p.line, p.key) for p in caught.value.problems]
    assert says in str(caught.value)


def test_where_checkpoints_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default in the daemon's directory; else in a store, which the environment may name as well."""
    text = '[checkpoints]\nstore = "s3://bucket/a/b/"\nregion = "eu-west-1"\nendpoint_url = "http://[::1]:9000/"\nprofile = "minio"\n'

    assert parse_daemon_config("").checkpoints == Checkpoints()
    assert parse_daemon_config(text).checkpoints == Checkpoints("s3://bucket/a/b", "eu-west-1", "http://[::1]:9000", "minio")
    monkeypatch.setenv("SPOTD_CHECKPOINTS__STORE", "s3://other")
    assert parse_daemon_config(text).checkpoints.store == "s3://other"
    monkeypatch.setenv("SPOTD_CHECKPOINTS__STORE", "other")
    with pytest.raises(ConfigError, match="environment: SPOTD_CHECKPOINTS__STORE"):
        parse_daemon_config(text)


def test_a_wrong_variable_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """A problem that comes from the environment names the variable, not a line of the file that it overrides."""
    monkeypatch.setenv("SPOTD_AGENT_API__LISTEN", "nowhere")
    with pytest.raises(ConfigError) as caught:
        parse_daemon_config('[agent_api]\nlisten = "127.0.0.1:1"\n')

    assert (caught.value.file, caught.value.line, caught.value.key) == ("environment", None, "SPOTD_AGENT_API__LISTEN")


def test_a_block_in_one_variable_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable for a whole block is an error that shows how to name its keys."""
    monkeypatch.setenv("SPOTD_AGENT_API", "x")
    with pytest.raises(ConfigError, match="SPOTD_AGENT_API__KEY"):
        parse_daemon_config("")


def test_only_a_file_that_was_named_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default file may be missing; one that somebody named may not."""
    monkeypatch.setattr(daemon, "DEFAULT_FILE", tmp_path / "none.toml")

    assert Path("/var/lib/spotd") == load_daemon_config().state_dir
    with pytest.raises(ConfigError, match="does not exist"):
        load_daemon_config(tmp_path / "none.toml")


def test_the_deployments_name_is_decided_once(tmp_path: Path) -> None:
    """The name is made from the host's, kept in the state, and the same ever after."""
    config = replace(parse_daemon_config(""), state_dir=tmp_path)
    first = settled_deployment(config)

    assert first == settled_deployment(config)
    assert f"{first}\n" == (tmp_path / "deployment").read_text()
    assert first == settled_deployment(replace(config, deployment=first))


def test_another_name_for_old_state_is_refused(tmp_path: Path) -> None:
    """A daemon that went by a new name would abandon its machines, so that is an error with the way out."""
    config = replace(parse_daemon_config('deployment = "one"'), state_dir=tmp_path)
    assert settled_deployment(config) == "one"

    with pytest.raises(ConfigError, match='deployment = "one"'):
        settled_deployment(replace(config, deployment="two"))
