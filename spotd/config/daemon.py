"""`spotd.toml`, overridden by `SPOTD_…` variables of the environment, parsed into `DaemonConfig`."""

from __future__ import annotations

import os
import re
import socket
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, PlainValidator, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError

from spotd.config import validation
from spotd.config.errors import ConfigError, Problem, printable
from spotd.config.fields import NAME_PATTERN, Duration, Model, Name, Size, refusal, word
from spotd.config.quantities import kind_of, show_duration, show_size
from spotd.config.yaml_tree import Path_, Tree, decode, read_limited, typed

DEFAULT_FILE = Path("/etc/spotd/spotd.toml")
_PREFIX = "SPOTD_"
#: tomllib takes time with the square of a dotted key's length.
_MAX_CHARACTERS = 32 * 1024
#: A segment of a prefix does not begin with a dot, as in keys (`core.object_key`).
_STORE_URL = r"([a-z][a-z0-9]{0,15})://([A-Za-z0-9][A-Za-z0-9._-]{1,254})((?:/[A-Za-z0-9_=+,-][A-Za-z0-9._=+,-]{0,254})*)/?"


def _absolute(value: object) -> Path:
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str):
        raise refusal(f"is {kind_of(value)}; a path is wanted")
    if not value.startswith("/") or "\0" in value or len(value) > 1024:
        raise refusal(f"{printable(value)} is not an absolute path", "begin it with /")
    return Path(value)


def _host_port(value: object) -> str:
    if not isinstance(value, str):
        raise refusal(f"is {kind_of(value)}; an address is wanted", 'such as "127.0.0.1:7443"')
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]{1,253}):(\d{1,5})", value, re.ASCII)
    if match is None or int(match[2]) > 65535:
        raise refusal(f"{printable(value)} is not an address with a port", 'such as "127.0.0.1:7443"; port 0 takes a free one')
    return value


def _store_url(value: object) -> str:
    """Scheme, bucket and prefix. Which schemes there are, is for the installed stores to say; more than an address is never wanted."""
    if not isinstance(value, str):
        raise refusal(f"is {kind_of(value)}; the address of a store is wanted", 'such as "s3://bucket/prefix"')
    if "@" in value or "?" in value:
        raise refusal("is more than an address of a store", "credentials do not belong into this file: the store's library finds its own")
    match = re.fullmatch(_STORE_URL, value, re.ASCII)
    if match is None or len(value) > 600:
        raise refusal(f"{printable(value)} is not the address of a store", 'such as "s3://bucket/prefix"')
    return f"{match[1]}://{match[2]}{match[3]}"


def _endpoint(value: object) -> str:
    if not isinstance(value, str):
        raise refusal(f"is {kind_of(value)}; an address is wanted", 'such as "https://minio.example.com:9000"')
    if "@" in value:
        raise refusal("holds more than an address", "credentials do not belong into this file: the store's library finds its own")
    if len(value) > 600 or not re.fullmatch(r"https?://(?:[A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])(?::\d{1,5})?(?:/[A-Za-z0-9._~/-]*)?", value, re.ASCII):
        raise refusal(f"{printable(value)} is not an http(s) address", 'such as "https://minio.example.com:9000"')
    return value.rstrip("/")


def _socket_path(value: Path) -> Path:
    if len(os.fsencode(value)) > 100:
        raise refusal(f"{printable(str(value))} is too long for a socket", "at most 100 bytes: Linux takes no longer ones")
    return value


_AbsolutePath = Annotated[Path, PlainValidator(_absolute)]
_Address = Annotated[str, PlainValidator(_host_port)]
_StoreUrl = Annotated[str, PlainValidator(_store_url)]
_Endpoint = Annotated[str, PlainValidator(_endpoint)]
_Region = Annotated[str, word(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}", 63, "a region's name, such as us-west-2")]
_Profile = Annotated[str, word(r"[A-Za-z0-9_][A-Za-z0-9_.@:/ -]{0,127}", 128, "the name of a profile in the cloud's own configuration files")]
_Group = Annotated[str, word(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}", 32, "a group's name on this host")]


class AgentApiFile(Model):
    """Where the agents on the instances reach the daemon."""

    listen: _Address = Field(default="127.0.0.1:0", description="Address and port to listen on; port 0 takes a free one.")
    advertise: _Address | None = Field(default=None, description="Address and port that agents are told. Default: what it listens on.")


class CheckpointsFile(Model):
    """Where checkpoints lie. Credentials never stand here: the store's library finds them as it always does."""

    store: _StoreUrl | None = Field(
        default=None,
        description="Bucket and prefix, for the checkpoints of all jobs. Default: a directory of the daemon, which instances of clouds do not reach.",
    )
    region: _Region | None = Field(default=None, description="The bucket's region. Default: the store is asked for it.")
    endpoint_url: _Endpoint | None = Field(
        default=None,
        description="Address of an S3-compatible store in place of AWS's. With `http://` checkpoints travel unencrypted, and agents are told so.",
    )
    profile: _Profile | None = Field(
        default=None, description="Profile of the AWS configuration files whose credentials sign. Default: as the AWS tools find them."
    )

    @model_validator(mode="after")
    def _belong_to_a_store(self) -> Self:
        for key in ("region", "endpoint_url", "profile"):
            if getattr(self, key) is not None and self.store is None:
                raise refusal(f"has {key} and no store", 'add store = "s3://bucket/prefix"')
        return self


class DaemonFile(BaseSettings):
    """The daemon's own settings. Variables such as `SPOTD_LOG_LEVEL` and `SPOTD_AGENT_API__LISTEN` override them."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, case_sensitive=False, strict=True, validate_default=False
    )

    state_dir: _AbsolutePath = Field(
        default=Path("/var/lib/spotd"), description="Directory of the database, logs, workdirs and keys; one daemon at a time."
    )
    socket: Annotated[_AbsolutePath, AfterValidator(_socket_path)] = Field(
        default=Path("/run/spotd/spotd.sock"), description="Unix socket of the command line, mode 0660."
    )
    socket_group: _Group = Field(
        default="spotd", description="Group that may use the socket. Where it does not exist, the daemon's own group is kept."
    )
    admin_group: _Group = Field(default="spotd-admin", description="Group whose members may act on other people's jobs.")
    deployment: Name | None = Field(
        default=None,
        description="Name by which this daemon knows its own instances. Default: made from the host's name once, and kept in `state_dir`.",
    )
    policies_dir: _AbsolutePath = Field(
        default=Path("/etc/spotd/policies"), description="Directory of the policy files; changes are taken up while running."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="How much is logged.")
    log_format: Literal["text", "json"] = Field(default="text", description="One line per record, for people or for machines.")
    tick_interval: Duration = Field(default=timedelta(seconds=5), description="The loop looks at least this often, also when nothing wakes it.")
    price_poll: Duration = Field(default=timedelta(minutes=5), description="How often prices are asked for.")
    observe_poll: Duration = Field(default=timedelta(seconds=30), description="How often instances are listed.")
    workdir_limit: Size = Field(default=500_000_000, description="Largest archive of a workdir that is taken.")
    agent_api: AgentApiFile = Field(default_factory=AgentApiFile, description="Where agents reach the daemon.")
    checkpoints: CheckpointsFile = Field(default_factory=CheckpointsFile, description="Where checkpoints lie.")
    providers: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="One table `[providers.NAME]` for each provider in use; its keys are the provider's own."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment before the file, and nothing else."""
        del settings_cls, dotenv_settings, file_secret_settings
        return env_settings, init_settings


@dataclass(frozen=True, slots=True)
class AgentApi:
    """Where agents reach the daemon."""

    listen_host: str
    listen_port: int
    #: None: what it listens on.
    advertise: str | None = None


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Where checkpoints lie."""

    #: `scheme://bucket/prefix`; None: a directory of the daemon.
    store: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """The daemon's settings as values."""

    state_dir: Path
    socket: Path
    socket_group: str
    admin_group: str
    #: None: see `settled_deployment`.
    deployment: str | None
    policies_dir: Path
    log_level: str
    log_format: str
    tick_interval: timedelta
    price_poll: timedelta
    observe_poll: timedelta
    workdir_limit: int
    agent_api: AgentApi
    checkpoints: Checkpoints = Checkpoints()
    providers: Mapping[str, Mapping[str, object]] = field(default_factory=lambda: MappingProxyType({}))


def load_daemon_config(path: Path | None = None) -> DaemonConfig:
    """The daemon's settings. A file that is named must exist; the default one (`/etc/spotd/spotd.toml`) need not. ConfigError otherwise."""
    chosen = path if path is not None else DEFAULT_FILE
    file = str(chosen)
    if path is None and not chosen.exists():
        return _parse(Tree({}), file)
    text = decode(read_limited(chosen, file), file)
    return _parse(_toml(text, file), file)


def parse_daemon_config(text: str, file: str = "spotd.toml") -> DaemonConfig:
    """The same from the text of a file."""
    return _parse(_toml(decode(text, file), file), file)


def _toml(text: str, file: str) -> Tree:
    if len(text) > _MAX_CHARACTERS:
        raise ConfigError.single(file, None, "", f"is larger than {_MAX_CHARACTERS // 1024} KiB, which no such file needs")
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        where = re.search(r"\(at line (\d+), column \d+\)", message)
        line = int(where[1]) if where else text.count("\n") + 1
        plain = re.sub(r"\s*\(at [^)]*\)", "", message)
        raise ConfigError.single(file, line, "", f"is not valid TOML: {plain}", _toml_hint(text, line)) from None
    except (RecursionError, ValueError) as error:
        raise ConfigError.single(file, None, "", f"is not valid TOML: {str(error) or 'nested too deeply'}") from None
    return Tree(value, _toml_lines(text))


def _toml_hint(text: str, line: int) -> str:
    source = text.split("\n")[line - 1].strip()[:400] if line <= text.count("\n") + 1 else ""
    if re.match(r"[\w.-]+\s*=\s*[A-Za-z0-9/][^\"'\[{]*$", source):
        return 'text and durations stand in quotes: key = "value"'
    return 'write key = "value"' if re.match(r"[\w.-]+\s*:", source) else ""


def _toml_lines(text: str) -> dict[Path_, int]:
    """Where each key stands. tomllib does not say; what this misses (keys inside multi-line values) only costs an exact line number."""
    lines: dict[Path_, int] = {(): 1}
    table: Path_ = ()
    for number, whole in enumerate(text.split("\n"), start=1):
        # A key is short and stands in front. Cut to that, no line can make these patterns try for long.
        line = whole.strip()[:400]
        header = re.match(r"\[{1,2}([^\[\]]{1,200})\]", line)
        if header:
            table = _key_parts(header[1])
            lines.setdefault(table, number)
            continue
        key = re.match(r"([A-Za-z0-9_.\"' -]{1,200})=", line)
        if key:
            lines.setdefault((*table, *_key_parts(key[1])), number)
    return lines


def _key_parts(text: str) -> Path_:
    return tuple(part.strip().strip("\"'") for part in text.split("."))


def _parse(tree: Tree, file: str) -> DaemonConfig:
    tree.problems += _unknown_keys(tree, file)
    try:
        settings = DaemonFile(**tree.value)
    except ValidationError as error:
        details = [d for d in error.errors(include_url=False) if d["type"] != "extra_forbidden" or len(d["loc"]) > 1]
        problems = [_placed(p) for p in validation.problems_of(DaemonFile, tree, file, details)]
        raise ConfigError(validation.in_order([*tree.problems, *problems])) from None
    except SettingsError as error:
        # The environment holds what is no JSON although a block is wanted, such as SPOTD_AGENT_API=x.
        name = re.search(r'"(\w+)"', str(error))
        variable = _PREFIX + (name[1].upper() if name else "…")
        raise ConfigError.single("environment", None, variable, "cannot be read", f"name the keys one by one: {variable}__KEY") from None
    if tree.problems:
        raise ConfigError(validation.in_order(tree.problems))
    return _config(settings)


def _unknown_keys(tree: Tree, file: str) -> list[Problem]:
    """Found here, not by pydantic: it cannot tell an unknown key of the file from an unknown variable, which is nobody's business."""
    known = set(DaemonFile.model_fields)
    return [
        Problem(file, tree.line((key,)), key, "is not a key that spotd knows", validation.nearest(DaemonFile, (key,)))
        for key in tree.value
        if key not in known
    ]


def _placed(problem: Problem) -> Problem:
    """A problem of a variable names the variable, not the file that it overrides."""
    variable = _PREFIX + problem.key.replace(".", "__").upper()
    names = {name.upper() for name in os.environ}
    if variable in names:
        return Problem("environment", None, variable, problem.message, problem.hint)
    return problem


def _config(settings: DaemonFile) -> DaemonConfig:
    host, _, port = settings.agent_api.listen.rpartition(":")
    return DaemonConfig(
        state_dir=settings.state_dir,
        socket=settings.socket,
        socket_group=settings.socket_group,
        admin_group=settings.admin_group,
        deployment=settings.deployment,
        policies_dir=settings.policies_dir,
        log_level=settings.log_level,
        log_format=settings.log_format,
        tick_interval=settings.tick_interval,
        price_poll=settings.price_poll,
        observe_poll=settings.observe_poll,
        workdir_limit=settings.workdir_limit,
        agent_api=AgentApi(host.strip("[]"), int(port), settings.agent_api.advertise),
        checkpoints=Checkpoints(**settings.checkpoints.model_dump()),
        providers=MappingProxyType({name: _provider_table(name, table) for name, table in settings.providers.items()}),
    )


def _provider_table(name: str, table: Mapping[str, object]) -> Mapping[str, object]:
    """A provider's own keys. What comes from the environment is text: a number or a truth value among it is meant as one."""
    names = {variable.upper() for variable in os.environ}
    from_environment = {key for key in table if f"{_PREFIX}PROVIDERS__{name}__{key}".upper() in names}
    return MappingProxyType({key: typed(value) if key in from_environment and isinstance(value, str) else value for key, value in table.items()})


def settled_deployment(config: DaemonConfig) -> str:
    """The deployment's name, decided once and kept in `state_dir`, which must exist.

    Instances are recognised by it: a daemon that suddenly went by another name would abandon every machine it pays for. So a configured name
    that differs from the kept one is a ConfigError, not a change.
    """
    keep = config.state_dir / "deployment"
    try:
        kept = keep.read_text("utf-8").strip()
    except FileNotFoundError:
        kept = ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError.single(str(keep), None, "", f"cannot be read: {error}") from None
    if kept:
        if not re.fullmatch(NAME_PATTERN, kept, re.ASCII):
            raise ConfigError.single(str(keep), 1, "", f"{printable(kept)} is not a deployment's name")
        if config.deployment not in {None, kept}:
            raise ConfigError.single(
                str(keep),
                1,
                "deployment",
                f"this state belongs to deployment {kept}, the configuration says {config.deployment}",
                f"set deployment = {kept!r}, or use another state_dir".replace("'", '"'),
            )
        return kept
    name = config.deployment or _from_host()
    partial = keep.with_suffix(".new")
    with partial.open("w", encoding="utf-8") as stream:
        stream.write(name + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(keep)
    return name


def _from_host() -> str:
    host = re.sub(r"[^A-Za-z0-9-]+", "-", socket.gethostname().split(".")[0]).strip("-")
    return f"spotd-{host}"[:63] if host else "spotd"


def shown_default(value: object) -> str:
    """A default as it is written in the file, for the reference."""
    match value:
        case timedelta():
            return show_duration(value)
        case int() if value >= 10**6:
            return show_size(value)
        case _:
            return str(value)
