"""What the daemon wants done on this instance, and how the agent reaches it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


class BadSpec(ValueError):
    """A configuration or specification this agent cannot carry out; the text says which key."""


@dataclasses.dataclass(frozen=True)
class Config:
    """``agent.json``: where the daemon is, who we are, and the two secrets that begin it all."""

    address: str
    certificate: str
    instance: str
    bootstrap_credential: str = dataclasses.field(repr=False)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Config:
        """Raise BadSpec where a key is missing or not a text."""
        return cls(**{field.name: _text(raw, field.name) for field in dataclasses.fields(cls)})


@dataclasses.dataclass(frozen=True)
class Resume:
    """One committed checkpoint of the job."""

    checkpoint: str
    manifest_url: str
    manifest_sha256: str


@dataclasses.dataclass(frozen=True)
class Spec:
    """The answer to bootstrap, checked. Times are seconds."""

    job_id: str
    job_name: str
    attempt: int
    rank: int
    num_nodes: int
    setup: str | None
    run: str
    hook: str | None
    env: Mapping[str, str]
    workdir_url: str | None
    workdir_sha256: str
    checkpoint_dir: str | None
    resume: tuple[Resume, ...]
    resume_required: bool
    insecure_store: str | None
    watch: str
    poll_s: float
    heartbeat_s: float
    notice_s: float
    drain_reserve_s: float
    idle_timeout_s: float
    max_lifetime_s: float
    stop_when_unreachable_s: float | None
    master_addr: str | None
    master_port: int

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Spec:
        """Raise BadSpec where the specification is not what docs/agent-protocol.md says."""
        job = _mapping(raw, "job")
        workdir = None if raw.get("workdir") is None else _mapping(raw, "workdir")
        return cls(
            job_id=_text(job, "id"),
            job_name=_text(job, "name"),
            attempt=int(_number(raw, "attempt")),
            rank=int(_number(raw, "rank", 0)),
            num_nodes=int(_number(raw, "num_nodes", 1)),
            setup=_optional_text(raw, "setup"),
            run=_text(raw, "run"),
            hook=_optional_text(raw, "hook"),
            env=_environment(raw.get("env") or {}),
            workdir_url=None if workdir is None else _text(workdir, "url"),
            workdir_sha256="" if workdir is None else _text(workdir, "sha256"),
            checkpoint_dir=_optional_text(raw, "checkpoint_dir"),
            resume=resume_entries(raw.get("resume") or ()),
            resume_required=bool(raw.get("resume_required")),
            insecure_store=_optional_text(raw, "insecure_store"),
            watch=_text(raw, "watch") if raw.get("watch") is not None else "none",
            poll_s=max(0.05, _number(raw, "poll_s", 2.0)),
            heartbeat_s=max(0.05, _number(raw, "heartbeat_s", 10.0)),
            notice_s=_number(raw, "notice_s", 120.0),
            drain_reserve_s=_number(raw, "drain_reserve_s", 5.0),
            idle_timeout_s=_number(raw, "idle_timeout_s", 900.0),
            max_lifetime_s=_number(raw, "max_lifetime_s", 604800.0),
            stop_when_unreachable_s=None if raw.get("stop_when_unreachable_s") is None else _number(raw, "stop_when_unreachable_s"),
            master_addr=_optional_text(raw, "master_addr"),
            master_port=int(_number(raw, "master_port", 29500)),
        )


def _mapping(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key)
    if not isinstance(value, dict):
        raise BadSpec(f"{key}: must be an object")
    return value


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str) or not value or "\0" in value:
        raise BadSpec(f"{key}: must be a text")
    return value


def _optional_text(raw: Mapping[str, Any], key: str) -> str | None:
    return None if raw.get(key) in (None, "") else _text(raw, key)


def _number(raw: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = raw.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise BadSpec(f"{key}: must be a number, zero or more")
    return float(value)


def _environment(raw: Any) -> dict[str, str]:
    if not isinstance(raw, dict):
        raise BadSpec("env: must be an object")
    for name, value in raw.items():
        if not name or "=" in name or "\0" in name:
            raise BadSpec(f"env: {name!r} is not a variable's name")
        if not isinstance(value, str) or "\0" in value:
            raise BadSpec(f"env.{name}: must be a text without NUL")
    return dict(raw)


def resume_entries(raw: Any) -> tuple[Resume, ...]:
    """Return the committed checkpoints that *raw* lists. Raises BadSpec."""
    if not isinstance(raw, (list, tuple)) or not all(isinstance(entry, dict) for entry in raw):
        raise BadSpec("resume: must be a list of objects")
    return tuple(Resume(_text(entry, "checkpoint"), _text(entry, "manifest_url"), _text(entry, "manifest_sha256")) for entry in raw)
