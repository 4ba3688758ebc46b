"""The bodies that agents send, as models: docs/agent-protocol.md in types.

What is not one of these is refused whole, before anything of it has an effect. Fields that the page does not name are ignored instead, so
that a job whose agent is newer than a daemon that was rolled back is still heard (DESIGN §4 rule 3).
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from spotd.daemon.agent_errors import malformed

#: No checkpoint has more objects: what the agent allows, and the quarter it asks for on top.
MOST_OBJECTS = 12_500
_MOST_MESSAGES = 1000
#: Of the six digits of a checkpoint's name.
_LAST_SEQUENCE = 999_999
#: What a database's integer holds.
_INT64 = 2**63 - 1
_YEAR_S = 366 * 86400.0

#: Control characters would reach the terminals of those who read a job's story; lone surrogates cannot be written anywhere.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\ud800-\udfff]")


def _printable(value: Any) -> Any:
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", value) if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_printable), StringConstraints(max_length=2000)]
Hex32 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Hex64 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
CheckpointName = Annotated[str, StringConstraints(pattern=r"^[0-9]{5}-[0-9]{6}$")]
Count = Annotated[int, Field(ge=0, le=_INT64)]
Whole = Annotated[int, Field(ge=-_INT64, le=_INT64)]
Number = Annotated[float, Field(allow_inf_nan=False)]
#: Of a century at most: what comes from it must stay a date.
Seconds = Annotated[float, Field(ge=0, le=100 * _YEAR_S)]
Code = Annotated[int, Field(ge=-(2**31), le=2**31)]
Sequence = Annotated[int, Field(ge=1, le=_LAST_SEQUENCE)]


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, hide_input_in_errors=True)


class Bootstrap(_Body):
    """The first call."""

    instance: Text
    credential: Text
    nonce: Hex32
    boot_id: Text
    agent: Hex64


class BootFailed(_Body):
    """A boot script that cannot go on."""

    instance: Text
    credential: Text
    step: Text
    line: int = Field(ge=0, le=100_000)
    code: int = Field(ge=0, le=255)


class Sign(_Body):
    """Asks for reading addresses of one checkpoint's objects."""

    checkpoint: CheckpointName
    objects: Annotated[list[Annotated[int, Field(ge=0, lt=MOST_OBJECTS)]], Field(max_length=MOST_OBJECTS)]


class _Said(_Body):
    seq: Annotated[int, Field(ge=1, le=_INT64)]
    age_s: Seconds


class Ready(_Said):
    """Workdir, restore and setup are done."""

    type: Literal["ready"]
    restored_checkpoint: CheckpointName | None
    restored_step: Whole | None
    boot_s: Seconds
    restore_s: Seconds | None
    setup_s: Seconds | None
    #: Newer ones that did not verify.
    skipped_checkpoints: list[Annotated[str, BeforeValidator(_printable)]] = []


class Started(_Said):
    """The job's process exists."""

    type: Literal["started"]
    restored_checkpoint: CheckpointName | None = None
    restored_step: Whole | None = None


class NoticeSaid(_Said):
    """A warning was seen."""

    type: Literal["notice"]
    notice_id: Text
    kind: Literal["reclaim", "rebalance", "maintenance", "shutdown"]
    source: Literal["imds", "signal", "agent"]
    action: Text
    seconds_left: Seconds | None


class NoticeWithdrawn(_Said):
    """A warning was withdrawn."""

    type: Literal["notice_cancelled"]
    notice_id: Text
    kind: Literal["reclaim", "rebalance", "maintenance", "shutdown"] | None = None


class CheckpointSaid(_Said):
    """A manifest was accepted by the store."""

    type: Literal["checkpoint"]
    checkpoint: CheckpointName
    sequence: Sequence
    step: Whole | None
    files: Count
    bytes: Count
    manifest_sha256: Hex64
    save_s: Seconds
    upload_s: Seconds
    trigger: Literal["announced", "quiet", "notice", "exit"]


class Drained(_Said):
    """After a warning or an order the job's processes are gone and uploads are over."""

    type: Literal["drained"]
    kind: Text
    step: Whole | None
    checkpoint: CheckpointName | None
    saved: bool
    seconds_used: Seconds
    seconds_given: Seconds | None
    hook_exit: Code | None
    hook_s: Seconds | None
    detail: Text


class Exited(_Said):
    """The job ended by itself."""

    type: Literal["exited"]
    code: Code | None
    signal: Annotated[int, Field(ge=1, le=127)] | None
    done: bool
    step: Whole | None


class Failed(_Said):
    """The job could not be started."""

    type: Literal["failed"]
    phase: Literal["workdir", "restore", "setup", "agent"]
    code: Code | None
    detail: Text


Message = Annotated[
    Ready | Started | NoticeSaid | NoticeWithdrawn | CheckpointSaid | Drained | Exited | Failed,
    Field(discriminator="type"),
]


class Progress(_Body):
    """How far the job is."""

    step: Whole | None = None
    loss: Number | None = None
    checkpoint_step: Whole | None = None
    gpu_util: Number | None = None


class Sync(_Body):
    """One heartbeat."""

    state: Literal["booting", "ready", "running", "draining", "drained", "exited", "failed"]
    acknowledged_drain: Text | None = None
    progress: Progress
    next_sequence: Sequence
    objects_per_checkpoint: Annotated[int, Field(ge=1, le=MOST_OBJECTS)]
    messages: Annotated[list[Message], Field(max_length=_MOST_MESSAGES)]


_Model = TypeVar("_Model", BootFailed, Bootstrap, Sign, Sync)


def parse(model: type[_Model], body: bytes) -> _Model:
    """The body as what it must be. Raises a Problem that says where it is wrong, and quotes nothing of it."""
    try:
        value = json.loads(body, parse_constant=_no_number)
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise malformed(f"{_printable(where)}: {first['type']}") from None
    except (ValueError, RecursionError):
        raise malformed("The body is not JSON.") from None


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")
