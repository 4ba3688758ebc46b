"""What is wrong with a file that a person wrote: where, what, and what to write instead. Standard library only, so that the CLI starts fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Of one file no more than these are told; the rest is a number.
MAX_PROBLEMS = 50


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong (or, among warnings, doubtful) in one file."""

    #: The file as the user named it; for the environment its variable's name stands in `key`.
    file: str
    #: From 1; None where no line can be named (a missing file, a JSON body, an environment variable).
    line: int | None
    #: Dotted path such as `candidates[0].regions`; empty for the file as a whole.
    key: str
    message: str
    #: What to write instead, or the next step; empty when the message says it all.
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line is not None else self.file
        key = f"{self.key}: " if self.key else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}: {key}{self.message}{hint}"


class ConfigError(Exception):
    """Everything that is wrong with one file. The first problem's parts can be asked of the error itself."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        found = tuple(problems)
        if not found:
            raise ValueError("a ConfigError needs a problem")
        self.problems = found[:MAX_PROBLEMS]
        self.more = len(found) - len(self.problems)
        super().__init__(str(self))

    @classmethod
    def single(cls, file: str, line: int | None, key: str, message: str, hint: str = "") -> ConfigError:
        """The error of a file with one problem."""
        return cls((Problem(file, line, key, message, hint),))

    @property
    def file(self) -> str:
        """The file of the first problem."""
        return self.problems[0].file

    @property
    def line(self) -> int | None:
        """The line of the first problem."""
        return self.problems[0].line

    @property
    def key(self) -> str:
        """The key of the first problem."""
        return self.problems[0].key

    @property
    def message(self) -> str:
        """The first problem in words."""
        return self.problems[0].message

    @property
    def hint(self) -> str:
        """What to do about the first problem."""
        return self.problems[0].hint

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems]
        if self.more:
            lines.append(f"{self.file}: … and {self.more} more")
        return "\n".join(lines)


def printable(text: str, limit: int = 60) -> str:
    """A user's own text as it is shown in a message: quoted, one line, nothing that a terminal would obey, cut to length."""
    shown = text if len(text) <= limit else text[: limit - 1] + "…"
    return '"' + "".join(c if c.isprintable() and c != '"' else "?" for c in shown) + '"'


def dotted(path: Iterable[str | int]) -> str:
    """A path of keys and positions as it is written in messages: `candidates[0].regions`."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            word = part if part.isprintable() and len(part) <= 60 else printable(part)
            out += f".{word}" if out else word
    return out
