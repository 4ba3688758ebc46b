"""One log line for each journaled event: a constant lower-case sentence and its keys. Logging is an output, so it is tested."""

from __future__ import annotations

import logging
import re
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING

from spotd.core import events as e

if TYPE_CHECKING:
    from collections.abc import Iterable

_log = logging.getLogger("spotd.journal")
_WORD = re.compile(r"(?<!^)(?=[A-Z])")
#: Values that are whole rows: their ids say enough. Hashes of credentials are nobody's business.
_QUIET = {"at", "job", "instance", "checkpoint", "instances", "notice", "order", "nonce_sha256", "session_sha256"}
_WARNINGS = (e.AlarmRaised, e.LaunchUnknown, e.TerminateFailed, e.StartFailed, e.BootFailed, e.NoticeSeen)


def sentence(event: e.Event) -> str:
    """The event as a log line."""
    words = _WORD.sub(" ", type(event).__name__).lower()
    return " ".join([words, *(f"{key}={_shown(value)}" for key, value in keys(event).items())])


def keys(event: e.Event) -> dict[str, object]:
    """What the line says besides its sentence."""
    found: dict[str, object] = {}
    match event:
        case e.JobSubmitted(job=job):
            found |= {"job": job.id, "name": job.spec.name, "policy": job.spec.policy, "owner": job.owner}
        case e.LaunchRequested(instance=instance):
            found |= {"job": instance.job_id, "instance": instance.id, "offer": str(instance.request.offer), "because": instance.because}
        case e.NoticeSeen(notice=notice):
            found |= {"kind": notice.kind.value, "source": notice.source.value, "deadline": notice.deadline}
        case e.CheckpointCommitted(checkpoint=checkpoint):
            found |= {"job": checkpoint.job_id, "checkpoint": checkpoint.id, "step": checkpoint.step, "bytes": checkpoint.size_bytes}
        case e.DrainOrdered(order=order):
            found |= {"kind": order.kind.value, "deadline": order.deadline}
        case _:
            pass
    found |= {f.name: value for f in fields(event) if f.name not in _QUIET and (value := getattr(event, f.name)) not in (None, "")}
    return found


def _shown(value: object) -> str:
    text = value.isoformat(timespec="seconds") if isinstance(value, datetime) else str(value)
    # One event is one line: text from agents and clouds must not be able to forge another.
    text = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    return f'"{text}"' if " " in text or not text else text


def log_events(events: Iterable[e.Event]) -> None:
    """Write the journaled events to the log."""
    for event in events:
        if event.journaled:
            _log.log(logging.WARNING if isinstance(event, _WARNINGS) else logging.INFO, "%s", sentence(event))
