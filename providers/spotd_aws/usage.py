"""Which instance types and regions the policy files speak of: what a check is to look at. Read loosely: `spotd policy check` judges."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d{1,2}")
_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Usage:
    """What is spoken of, sorted."""

    instance_types: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()


def in_use(policies_dir: Path) -> Usage:
    """What the policies in this directory speak of on AWS. What cannot be read is passed over."""
    types: set[str] = set()
    regions: set[str] = set()
    try:
        files = sorted(one for one in policies_dir.iterdir() if one.suffix in {".yaml", ".yml"})
    except OSError:
        return Usage()
    for file in files:
        policy = _policy(file)
        handlers = policy.get("spot_handlers")
        handlers = handlers if isinstance(handlers, dict) else {}
        types |= set(_texts(handlers.get("fallback_node"), _TYPE))
        regions |= set(_texts(handlers.get("region_failover"), _REGION))
        candidates = policy.get("candidates")
        for one in candidates if isinstance(candidates, list) else ():
            if isinstance(one, dict) and one.get("provider", "aws") == "aws":
                types |= set(_texts(one.get("instance_types"), _TYPE))
                regions |= set(_texts(one.get("regions"), _REGION))
    return Usage(tuple(sorted(types)), tuple(sorted(regions)))


def _policy(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            value = yaml.safe_load(stream.read(_LARGEST))
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _texts(value: object, shape: re.Pattern[str]) -> Iterator[str]:
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, str) and shape.fullmatch(one):
            yield one
