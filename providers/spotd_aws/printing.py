"""What the commands for AWS print. Text that comes from elsewhere cannot steer the terminal."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any


def plain(text: object) -> str:
    """Text with nothing in it that a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in str(text))


def say(text: str = "") -> None:
    """A line on standard output, at once."""
    sys.stdout.write(plain(text) + "\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """A sentence on standard error."""
    sys.stderr.write(f"spotd: {plain(text)}\n")
    sys.stderr.flush()


def say_json(value: Any) -> None:
    """One JSON document."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def say_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns; the last is wrapped to the terminal, for it holds sentences."""
    cells = [[plain(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max([len(title), *(len(row[i]) for row in cells)]) for i, title in enumerate(head[:-1])]
    indent = sum(widths) + 2 * len(widths)
    room = max(40, shutil.get_terminal_size((120, 24)).columns - indent)
    for row in [list(head), *cells]:
        front = "".join(cell.ljust(width) + "  " for cell, width in zip(row, widths, strict=False))
        lines = textwrap.wrap(row[-1], room, break_long_words=False, break_on_hyphens=False) or [""]
        sys.stdout.write((front + lines[0]).rstrip() + "\n")
        for line in lines[1:]:
            sys.stdout.write(" " * indent + line + "\n")
    sys.stdout.flush()
