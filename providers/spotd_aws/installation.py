"""The daemon's configuration file, as far as the commands for AWS need it. Read for itself: a provider does not import the daemon's settings."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spotd_aws.config import AwsConfig, ConfigError, read

#: As the daemon has them.
DEFAULT_FILE = Path("/etc/spotd/spotd.toml")
_STATE_DIR, _POLICIES_DIR, _LISTEN = "/var/lib/spotd", "/etc/spotd/policies", "127.0.0.1:0"
_LARGEST = 1 << 20


class Unusable(Exception):
    """The command cannot run; the message is a sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class Installation:
    """A daemon's settings."""

    file: Path
    aws: AwsConfig
    state_dir: Path
    policies_dir: Path
    #: Where the daemon listens for agents, and the address that agents are told.
    listen: str
    advertise: str | None
    #: Where checkpoints lie (`s3://bucket/prefix`; empty: a directory of the daemon), and whose credentials sign their addresses.
    store: str = ""
    store_profile: str | None = None
    #: As the file says; None: see `deployment`.
    named: str | None = None
    #: The store's region, endpoint and profile, as far as they are said.
    store_settings: Mapping[str, str] = field(default_factory=dict)
    #: `[providers.aws]` as the file has it.
    aws_table: Mapping[str, object] = field(default_factory=dict)

    @property
    def deployment(self) -> str:
        """The deployment's name. Unusable, with what to do, where it is not known yet."""
        if self.named:
            return self.named
        keep = self.state_dir / "deployment"
        try:
            name = keep.read_text("utf-8").strip()
        except FileNotFoundError:
            name = ""
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise Unusable(f'{keep} cannot be read ({reason}): run this as the daemon\'s user, or write deployment = "…" into {self.file}') from None
        if not name:
            raise Unusable(f'the deployment has no name yet: write deployment = "…" into {self.file}, or start the daemon once, which makes one')
        return name

    @property
    def bucket(self) -> str:
        """The bucket that checkpoints lie in; empty where it is none of S3."""
        scheme, _, rest = self.store.partition("://")
        return rest.partition("/")[0] if scheme == "s3" else ""

    @property
    def listen_port(self) -> int | None:
        """The port that agents call; None where the daemon takes any that is free."""
        port = self.listen.rpartition(":")[2]
        return int(port) if port.isascii() and port.isdecimal() and int(port) else None


def read_installation(path: Path | None) -> Installation:
    """The settings in this file (default: the daemon's own, which need not exist), overridden by the daemon's variables. Unusable otherwise."""
    file = path or DEFAULT_FILE
    table = _table(file, must_exist=path is not None)
    agent_api = _sub(table, "agent_api", file)
    providers = _sub(table, "providers", file)
    checkpoints = _sub(table, "checkpoints", file)
    try:
        config = read(_sub(providers, "aws", file))
    except ConfigError as error:
        raise Unusable(f"{file}: {error}") from None
    return Installation(
        file=file,
        aws=config,
        state_dir=Path(_text(table, "state_dir", "SPOTD_STATE_DIR", file) or _STATE_DIR),
        policies_dir=Path(_text(table, "policies_dir", "SPOTD_POLICIES_DIR", file) or _POLICIES_DIR),
        listen=_text(agent_api, "listen", "SPOTD_AGENT_API__LISTEN", file) or _LISTEN,
        advertise=_text(agent_api, "advertise", "SPOTD_AGENT_API__ADVERTISE", file),
        store=_text(checkpoints, "store", "SPOTD_CHECKPOINTS__STORE", file) or "",
        store_profile=_text(checkpoints, "profile", "SPOTD_CHECKPOINTS__PROFILE", file),
        named=_text(table, "deployment", "SPOTD_DEPLOYMENT", file),
        store_settings={
            key: said
            for key in ("region", "endpoint_url", "profile")
            if (said := _text(checkpoints, key, f"SPOTD_CHECKPOINTS__{key.upper()}", file)) is not None
        },
        aws_table=_sub(providers, "aws", file),
    )


def _table(file: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            text = stream.read(_LARGEST + 1)
    except FileNotFoundError:
        if must_exist:
            raise Unusable(f"there is no file {file}") from None
        return {}
    except OSError as error:
        raise Unusable(f"{file} cannot be read: {error.strerror}") from None
    if len(text) > _LARGEST:
        raise Unusable(f"{file} is larger than 1 MiB, which no such file needs")
    try:
        return tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{file} is not valid TOML: {error}") from None


def _sub(table: Mapping[str, Any], key: str, file: Path) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise Unusable(f"{file}: {key} is to be a table")
    return value


def _text(table: Mapping[str, Any], key: str, variable: str, file: Path) -> str | None:
    value = os.environ.get(variable) or table.get(key)
    if value is not None and not isinstance(value, str):
        raise Unusable(f"{file}: {key} is to be text in quotes")
    return value or None
