"""`python -m spotd.config.reference > docs/reference.md`: every key of every file, from the models that parse them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from spotd.config.daemon import DaemonFile, shown_default
from spotd.config.fields import Duration, Size, UsdPerHour
from spotd.config.job import JobFile
from spotd.config.policy import PolicyFile
from spotd.config.validation import inner_model

_HEAD = """\
# Reference: what stands in the files

Generated from the models that parse them (`python -m spotd.config.reference > docs/reference.md`); a test keeps it true.

Unknown keys, wrong types and wrong units are errors that name the file, the line, the key and the nearest right one. A key without a value is an
error, too: leave it out for its default.

| written | means |
|---|---|
| duration | a number with its unit, larger units first: `30s`, `15m`, `2h`, `7d`, `1h30m`; `500ms` where so little makes sense |
| price | US dollars per instance-hour, a number: `40.00` |
| size | `500MB`, `2GB` (powers of ten) or `512MiB` (powers of two) |
| name | letters, digits, dots, dashes and underscores, at most 63, beginning with a letter or digit |
"""

_JOB = """\
## Job file

YAML, one job per file, at most 128 KiB: `spotd submit job.yaml`.

```yaml
name: llama-ft
policy: h100-two-clouds
run: python train.py
setup: pip install -r requirements.txt
workdir: .
env: {WANDB_MODE: offline}
checkpoint: {dir: ckpt}
retries: {on_error: 2, retry_on_exit_codes: [33]}
estimated_runtime: 40h
labels: {project: legal}
```

Not sent with the workdir: `.git`, `.venv`, `__pycache__`, and what the patterns in `.spotdignore` name (one a line; `data/` fits directories only).
"""

_POLICY = """\
## Policy file

YAML, one policy per file in `policies_dir`, at most 128 KiB; the file's name without `.yaml` is the policy's name. Changes are taken up while the
daemon runs. A file that is wrong changes nothing: the last good version stays in force, and `spotd policy list`, the log and `spotd events` say
so, with line and key. `spotd policy check FILE` needs no daemon.

A file with nothing but `spot_handlers` is a complete policy if that names `fallback_node` and `region_failover`: the instance type comes from the
one, the provider from the other's region names (`us-west-2` is AWS, `us-central1` is GCP).

```yaml
spot_handlers:
  pre_reclaim_hook: "python save_checkpoint.py --output $SPOTD_CHECKPOINT_DIR"
  max_preemptions: 3
  fallback_node: p5.48xlarge
  region_failover: [us-west-2, eu-west-1, ap-southeast-1]
```
"""

_DAEMON = """\
## spotd.toml

TOML, at most 32 KiB: `spotd daemon --config FILE`, by default `/etc/spotd/spotd.toml`, which need not exist. Every key can be overridden by a
variable of the environment: `SPOTD_LOG_LEVEL=debug`, `SPOTD_AGENT_API__LISTEN=0.0.0.0:7443`, `SPOTD_PROVIDERS__LOCAL__SPEED=600`.

```toml
state_dir = "/var/lib/spotd"
log_level = "info"

[agent_api]
listen = "0.0.0.0:7443"
advertise = "spotd.example.com:7443"

[checkpoints]
store = "s3://acme-checkpoints/spotd"

[providers.local]
root = "/var/lib/spotd/cloud"
```
"""

#: What the JSON schema of a type would not say in a user's words.
_SHOWN: dict[str, str] = {
    "name": "name",
    "policy": "name",
    "owner": "user name",
    "labels": "texts by name",
    "env": "texts by name",
    "run": "shell command",
    "setup": "shell command",
    "pre_reclaim_hook": "shell command",
    "workdir": "path",
    "dir": "path",
    "provider": "name",
    "instance_types": "list of names",
    "regions": "list of names",
    "region_failover": "list of names",
    "fallback_node": "name",
    "instance_profile": "name or ARN",
    "disk": "size",
    "retry_on_exit_codes": "list of numbers",
    "return_to_spot": "`{after: duration}` or `never`",
    "replace_when_unreachable": "`{after: duration}` or `never`",
    "state_dir": "absolute path",
    "socket": "absolute path",
    "policies_dir": "absolute path",
    "socket_group": "group name",
    "admin_group": "group name",
    "deployment": "name",
    "listen": "`host:port`",
    "advertise": "`host:port`",
    "log_level": "`debug`, `info`, `warning` or `error`",
    "log_format": "`text` or `json`",
    "store": "`s3://bucket/prefix`",
    "region": "region name",
    "endpoint_url": "`https://host:port`",
    "profile": "profile name",
    "providers": "tables by provider",
}
_QUANTITIES: tuple[tuple[Any, str], ...] = ((Duration, "duration"), (UsdPerHour, "price"), (Size, "size"))


def reference() -> str:
    """The whole page."""
    parts = [_HEAD, _JOB, _table(JobFile), _POLICY, _table(PolicyFile), _DAEMON, _table(DaemonFile)]
    return "\n".join(parts)


def _table(model: type[BaseModel]) -> str:
    rows = ["| key | what to write | default | meaning |", "|---|---|---|---|"]
    rows += [f"| `{key}` | {_written(key, info)} | {_default(info)} | {_cell(info.description or '')} |" for key, info in _keys(model, "")]
    return "\n".join(rows) + "\n"


def _keys(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    """Every key that holds a value; a block stands for its keys."""
    for name, info in model.model_fields.items():
        inner = inner_model(info.annotation)
        if inner is None or name in _SHOWN:
            yield prefix + name, info
            continue
        listed = "[]" if "tuple" in str(info.annotation) else ""
        if listed:
            yield prefix + name, info
        yield from _keys(inner, f"{prefix}{name}{listed}.")


def _written(key: str, info: FieldInfo) -> str:
    name = key.rpartition(".")[2]
    if name in _SHOWN:
        return _cell(_SHOWN[name])
    for kind, word in _QUANTITIES:
        if any(mark in info.metadata for mark in kind.__metadata__) or str(kind.__metadata__[0]) in str(info.annotation):
            return word
    if "tuple" in str(info.annotation):
        return "list of blocks"
    if info.annotation is int:
        bounds = {type(mark).__name__: mark for mark in info.metadata}
        return f"whole number, {bounds['Ge'].ge} to {bounds['Le'].le}"
    raise TypeError(f"{key}: say in _SHOWN what is written for {info.annotation}")


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value: Any = info.get_default(call_default_factory=True)
    if value is None or value in ((), {}):
        return "–"
    after = getattr(value, "after", None)
    return f"`{{after: {shown_default(after)}}}`" if after is not None else f"`{shown_default(value)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
