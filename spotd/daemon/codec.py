"""Between the frozen values of `core` and the JSON that the database holds.

A row's body is the whole value, so that a field added to `core` needs no migration: what an older spotd wrote lacks it and gets its default, a
field that is gone is ignored. Amounts are strings (never floats), times are ISO 8601 in UTC. Codecs are built once, when this module is imported.
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

from spotd.core.attempt import Attempt, Checkpoint
from spotd.core.events import CheckpointCommitted, Event, JobSubmitted, LaunchRequested
from spotd.core.instance import Instance
from spotd.core.job import Job
from spotd.core.survival import Lifetime
from spotd.core.world import Cooldown

# pydantic resolves the names in core's annotations also among those of the module that builds the codec: `Mapping`, which core imports for
# type checkers only, must therefore stand above.
_JOB: Final = TypeAdapter(Job)
_ATTEMPT: Final = TypeAdapter(Attempt)
_INSTANCE: Final = TypeAdapter(Instance)
_CHECKPOINT: Final = TypeAdapter(Checkpoint)
_COOLDOWN: Final = TypeAdapter(Cooldown)
_LIFETIME: Final = TypeAdapter(Lifetime)


def _word(kind: type) -> str:
    """JobSubmitted → job_submitted."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


_EVENTS: Final[dict[str, TypeAdapter[Event]]] = {_word(kind): TypeAdapter(kind) for kind in typing.get_args(Event)}
_KINDS: Final[dict[type, str]] = {kind: _word(kind) for kind in typing.get_args(Event)}

#: Every kind of event, as the journal spells it.
KINDS: Final = frozenset(_EVENTS)


def encode(value: object) -> str:
    """The JSON of one frozen value. Text that is no text (a lone surrogate from a program's output) is kept with `?` in its place."""
    try:
        return to_json(value, inf_nan_mode="strings", fallback=_plain).decode()
    except PydanticSerializationError:
        # One odd character in an error message of a cloud must not keep the loop from committing.
        plain = to_jsonable_python(value, inf_nan_mode="strings", fallback=_plain)
        return json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace").decode()


def _plain(value: Any) -> Any:
    """What pydantic has no JSON for: of core's fields only the read-only mappings."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no place in a stored value")


def job(body: str) -> Job:
    """The job that was stored."""
    return _JOB.validate_json(body)


def attempt(body: str) -> Attempt:
    """The attempt that was stored."""
    return _ATTEMPT.validate_json(body)


def instance(body: str) -> Instance:
    """The instance that was stored."""
    return _INSTANCE.validate_json(body)


def checkpoint(body: str) -> Checkpoint:
    """The checkpoint that was stored."""
    return _CHECKPOINT.validate_json(body)


def cooldown(body: str) -> Cooldown:
    """The cooldown that was stored."""
    return _COOLDOWN.validate_json(body)


def lifetime(body: str) -> Lifetime:
    """The offer's history that was stored."""
    return _LIFETIME.validate_json(body)


def kind_of(event: Event) -> str:
    """The journal's word for an event."""
    return _KINDS[type(event)]


def event(kind: str, body: str) -> Event:
    """The event that was stored. KeyError for a kind that this spotd does not know."""
    return _EVENTS[kind].validate_json(body)


def fields(body: str) -> dict[str, Any]:
    """A stored body as plain JSON values: readable whatever version of spotd wrote it."""
    value: dict[str, Any] = from_json(body)
    return value


def subjects(event: Event) -> tuple[str | None, str | None, str | None]:
    """The ids of the job, the attempt and the instance that an event itself names."""
    match event:
        case JobSubmitted(job=submitted):
            return submitted.id, None, None
        case LaunchRequested(instance=requested):
            return requested.job_id, requested.attempt_id, requested.id
        case CheckpointCommitted(instance_id=writer, checkpoint=committed):
            return committed.job_id, None, writer
        case _:
            names = (getattr(event, name, None) for name in ("job_id", "attempt_id", "instance_id"))
            job_id, attempt_id, instance_id = names
            return job_id, attempt_id, instance_id
