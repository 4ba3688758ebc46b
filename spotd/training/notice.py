"""Whether this instance is about to go away."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

_NEVER_STOP = ("hint", "drill", "periodic")


@dataclasses.dataclass(frozen=True)
class Notice:
    """The newest notice. *kind* is `reclaim`, `maintenance`, `shutdown`, `move`, `cancel`, `displaced`; or `hint`, which stops nothing."""

    kind: str
    source: str
    deadline_epoch: float | None

    @property
    def stops(self) -> bool:
        """Whether the job will be stopped; if not, an early checkpoint is all that is wise."""
        return self.kind not in _NEVER_STOP

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline by this machine's clock, not below 0; None where there is no deadline."""
        return None if self.deadline_epoch is None else max(0.0, self.deadline_epoch - time.time())


def notice() -> Notice | None:
    """Return the notice in force, None while there is none and outside spotd. Cheap enough for every step: one small file."""
    path = os.environ.get("SPOTD_NOTICE_FILE")
    if not path:
        return None
    try:
        value = json.loads(Path(path).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        return None
    return Notice(value["kind"], str(value.get("source", "")), _number(value.get("deadline_epoch")))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
