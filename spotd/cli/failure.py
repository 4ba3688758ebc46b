"""How a verb says no: one sentence with the next step, and an exit code."""

from __future__ import annotations

from typing import Any

#: The job failed, or the daemon refused.
FAILED = 1
#: The command line, a file or the daemon's absence: for the caller to put right.
WRONG = 2
#: Ctrl-C.
INTERRUPTED = 130


class Failure(Exception):
    """Ends the verb. `details` is what `--json` prints instead of the text."""

    def __init__(self, message: str, code: int = WRONG, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.details = details if details is not None else {"code": "failed", "message": message}
