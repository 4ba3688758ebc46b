"""Tell spotd how far the job is, which checkpoints are complete, and that the work is done."""

from __future__ import annotations

import json
import math
import os
from typing import Any


def report(*, step: int | None = None, loss: float | None = None) -> None:
    """Report progress. A loss that is not finite is reported as unknown."""
    line: dict[str, Any] = {}
    if step is not None:
        line["step"] = int(step)
    if loss is not None:
        value = float(loss)
        line["loss"] = value if math.isfinite(value) else None
    if line:
        _append(line, durable=False)


def checkpoint(name: str, *, step: int | None = None) -> None:
    """Announce that the checkpoint *name*, a path inside ``$SPOTD_CHECKPOINT_DIR``, is complete and will not change any more.

    Announce it after its files were flushed and fsynced, and from one process of a distributed job only.
    """
    line: dict[str, Any] = {"checkpoint": os.fspath(name)}
    if step is not None:
        line["step"] = int(step)
    _append(line, durable=True)


def done() -> None:
    """Say that the job's work is complete: exit 0 after this is success even when a notice came in between."""
    _append({"done": True}, durable=True)


def _append(line: dict[str, Any], *, durable: bool) -> None:
    """Append one line in one write, so that the lines of several processes never mix. Reporting never ends a training: errors are dropped."""
    path = os.environ.get("SPOTD_PROGRESS_FILE")
    if not path:
        return
    data = (json.dumps(line) + "\n").encode("ascii")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, data)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        return
