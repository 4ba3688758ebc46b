"""What the agent says on stderr: for whoever reads the machine's journal, and never a reason to fail."""

from __future__ import annotations

import contextlib
import sys
import traceback


def say(text: str) -> None:
    """Write one line. stderr may be a file on a full disk: what cannot be written is lost, and its writer goes on."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"spotd agent: {text}\n")
        sys.stderr.flush()


def say_with_traceback(text: str) -> None:
    """Write one line and where the exception that is being handled came from."""
    say(f"{text}\n{traceback.format_exc()}")
