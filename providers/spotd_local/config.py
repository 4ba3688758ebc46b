"""The `[providers.local]` table of `spotd.toml`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


class ConfigError(ValueError):
    """What is wrong with the table, one line per key."""


def seconds(value: object) -> object:
    """A duration such as "6s", "1.5m" or "77h", in seconds. Anything else is left for pydantic to refuse."""
    if not isinstance(value, str):
        raise ValueError('a duration with a unit is wanted, such as "6s" or "77h"')  # noqa: TRY004 - pydantic reports it
    parts = _DURATION.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value.strip():
        raise ValueError(f'{value!r} is not a duration: write "500ms", "6s", "1.5m", "77h" or "2d"')
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


Seconds = Annotated[float, BeforeValidator(seconds), Field(ge=0)]


class LocalConfig(BaseModel):
    """A local cloud: a directory, a recorded market, and how fast it is replayed."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    #: The directory that is the cloud: instances and their records live there, and outlive the daemon.
    root: Annotated[Path, Field(description="Directory of the local cloud.")]
    market: Annotated[str, Field(description="A shipped market's name, or the path of a market file.")] = "v100-2023-02"
    speed: Annotated[int, Field(ge=1, strict=True, description="Seconds of the recording per real second.")] = 600
    start: Annotated[Seconds, Field(description="Where in the recording the replay begins.")] = "0h"  # type: ignore[assignment]
    notice: Annotated[Seconds, Field(description="Real time between a notice and the end.")] = "6s"  # type: ignore[assignment]
    boot_delay: Annotated[Seconds, Field(description="Real time from launch to running.")] = "500ms"  # type: ignore[assignment]
    metadata_poll: Annotated[Seconds, Field(gt=0, description="How often agents ask the metadata server.")] = "500ms"  # type: ignore[assignment]
    heartbeat: Annotated[Seconds, Field(gt=0, description="How often agents call the daemon.")] = "1s"  # type: ignore[assignment]
    boot_timeout: Annotated[Seconds, Field(gt=0, description="An agent that has not called by then is given up.")] = "60s"  # type: ignore[assignment]


def read(table: Mapping[str, object]) -> LocalConfig:
    """The checked table. ConfigError with a line for every wrong key."""
    try:
        return LocalConfig.model_validate(dict(table))
    except ValidationError as error:
        lines = [f"[providers.local] {_key(e['loc'])}: {e['msg'].removeprefix('Value error, ')}" for e in error.errors()]
        raise ConfigError("\n".join(lines)) from error


def _key(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) or "(table)"
