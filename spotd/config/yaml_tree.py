"""YAML text to plain values plus the line of every key, with limits on everything a hostile or broken file could overdo.

Only the plain part of YAML is taken: mappings, lists and scalars. Anchors, aliases, tags and merge keys are refused, because none is needed and
each is a known way to make a small file large or a harmless one execute something. Scalars are read by the rules of YAML 1.2 (only `true` and
`false` are booleans, so `no` stays text), numbers with a point become Decimal, and under the keys named in `as_text` every scalar stays the
text that was written, so that `EPOCHS: 010` reaches the job as `010`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import yaml

from spotd.config.errors import ConfigError, Problem, dotted, printable

if TYPE_CHECKING:
    from pathlib import Path

Path_ = tuple[str | int, ...]

#: A job or policy file is a page of text; what is larger is not one.
MAX_BYTES = 128 * 1024
_MAX_DEPTH = 12
_MAX_NODES = 5_000

_INT = re.compile(r"[-+]?\d{1,30}", re.ASCII)
_DECIMAL = re.compile(r"[-+]?(\d{1,30}\.\d{0,30}|\.\d{1,30})", re.ASCII)
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})


@dataclass(slots=True)
class Tree:
    """A file's content: plain values, where each key stands, and what was wrong already while reading."""

    value: Any
    lines: dict[Path_, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    #: Keys without a value: left out of `value`, reported already.
    blank: set[Path_] = field(default_factory=set)

    def line(self, path: Path_) -> int | None:
        """The line of a key, or of the nearest one around it."""
        for length in range(len(path), -1, -1):
            found = self.lines.get(path[:length])
            if found is not None:
                return found
        return None


def read_limited(path: Path, file: str, limit: int = MAX_BYTES) -> bytes:
    """The bytes of a file. ConfigError when it cannot be read or is too large."""
    try:
        if not path.is_file():
            what = "is a directory, not a file" if path.is_dir() else "is not a file" if path.exists() else "does not exist"
            raise ConfigError.single(file, None, "", what)
        with path.open("rb") as stream:
            content = stream.read(limit + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError.single(file, None, "", f"cannot be read: {why}") from None
    if len(content) > limit:
        raise ConfigError.single(file, None, "", f"is larger than {limit // 1024} KiB, which no such file needs")
    return content


def decode(content: bytes | str, file: str) -> str:
    """The text of a file. ConfigError when it is too large or not text."""
    if isinstance(content, str):
        if len(content) > MAX_BYTES:
            raise ConfigError.single(file, None, "", f"is larger than {MAX_BYTES // 1024} KiB, which no such file needs")
        return content.removeprefix("\ufeff")
    if len(content) > MAX_BYTES:
        raise ConfigError.single(file, None, "", f"is larger than {MAX_BYTES // 1024} KiB, which no such file needs")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError.single(file, line, "", "is not UTF-8 text", "is it a binary file?") from None


def load(content: bytes | str, file: str, as_text: frozenset[str] = frozenset()) -> Tree:
    """Parse a YAML file whose top is a block of keys. ConfigError when there is nothing to go on with; lesser problems stand in the tree."""
    text = decode(content, file)
    try:
        loader = _Loader(text, file)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError((_syntax_problem(error, file, text),)) from None
    except RecursionError:
        raise ConfigError.single(file, None, "", "is nested too deeply") from None
    except (ValueError, OverflowError, IndexError) as error:
        # PyYAML lets some of its own slips through, such as chr() of an impossible \U escape.
        raise ConfigError.single(file, None, "", f"is not valid YAML: {error}") from None
    if root is None or (isinstance(root, yaml.ScalarNode) and root.style is None and root.value in _NULLS):
        raise ConfigError.single(file, 1, "", "is empty")
    if not isinstance(root, yaml.MappingNode):
        what = "a list" if isinstance(root, yaml.SequenceNode) else "text"
        raise ConfigError.single(file, root.start_mark.line + 1, "", f"holds {what}; it should hold lines of the form `key: value`")
    reading = _Reading(file, as_text)
    reading.lines[()] = root.start_mark.line + 1
    value = reading.convert(root, ())
    return Tree(value, reading.lines, reading.problems, reading.blank)


class _Refused(yaml.YAMLError):
    """Something of YAML that is not taken here."""

    def __init__(self, line: int, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.message = message
        self.hint = hint


class _Loader(yaml.SafeLoader):
    """Composes nodes (no objects) and stops at what is refused, before it could cost anything."""

    def __init__(self, text: str, file: str) -> None:
        self._depth = 0
        self._nodes = 0
        super().__init__(text)
        self.name = file

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise _Refused(line, f"uses the alias *{event.anchor}", "aliases are not taken here: write the value out")
        if getattr(event, "anchor", None):
            raise _Refused(line, f"uses the anchor &{event.anchor}", "anchors are not taken here: write the value out where it is used")
        if getattr(event, "tag", None) not in {None, "!"}:
            raise _Refused(line, f"uses the tag {printable(str(event.tag))}", "tags are not taken here: write the plain value")
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise _Refused(line, f"holds more than {_MAX_NODES} values")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _Refused(line, "is nested too deeply", f"at most {_MAX_DEPTH} levels")
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _syntax_problem(error: yaml.YAMLError, file: str, text: str) -> Problem:
    if isinstance(error, _Refused):
        return Problem(file, error.line, "", error.message, error.hint)
    if isinstance(error, yaml.reader.ReaderError):
        position = error.position if isinstance(error.position, int) else 0
        line = text.count("\n", 0, position) + 1
        return Problem(file, line, "", "holds a control character", "is it a binary file?")
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        problem = error.problem or "is not valid YAML"
        if "expected a single document" in str(error.context or "") + problem:
            return Problem(file, line, "", "holds a second document", "one file, one job or policy: remove the `---`")
        source = text.split("\n")[line - 1] if line <= text.count("\n") + 1 else ""
        if "\\t" in problem or "\t" in source[: len(source) - len(source.lstrip())]:
            return Problem(file, line, "", "is indented with a tab", "YAML wants spaces")
        context = f" {error.context}" if error.context else ""
        return Problem(file, line, "", f"is not valid YAML: {problem}{context}", _syntax_hint(problem, source))
    return Problem(file, 1, "", f"is not valid YAML: {error}")


def _syntax_hint(problem: str, source: str) -> str:
    if "mapping values are not allowed" in problem:
        return "a value that holds `: ` must stand in quotes, and every key of a block must be indented alike"
    if "expected <block end>" in problem:
        return "check the indentation of this line and of those around it"
    if "could not find expected ':'" in problem:
        return "write `key: value`, with a space after the colon"
    if "while scanning a quoted scalar" in problem or source.count('"') % 2:
        return "is a quotation mark missing?"
    return ""


class _Reading:
    """The walk from nodes to plain values."""

    def __init__(self, file: str, as_text: frozenset[str]) -> None:
        self._file = file
        self._as_text = as_text
        self.lines: dict[Path_, int] = {}
        self.problems: list[Problem] = []
        self.blank: set[Path_] = set()

    def convert(self, node: yaml.Node, path: Path_) -> Any:
        """The plain value of a node. Depth is limited by the loader."""
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for position, child in enumerate(node.value):
                here = (*path, position)
                self.lines[here] = child.start_mark.line + 1
                item = self.convert(child, here)
                if here not in self.blank:
                    items.append(item)
            return items
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path_) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(line, path, "has a key that is not a word")
                continue
            key = str(key_node.value)
            here = (*path, key)
            if key == "<<" and key_node.style is None:
                self._problem(line, here, "merge keys are not taken here", "write the keys out")
                continue
            if not _clean(key):
                self._problem(line, path, "has a key with a control character")
                continue
            if here in self.lines:
                self._problem(line, here, f"is given twice, first in line {self.lines[here]}", "remove one of the two")
                continue
            self.lines[here] = line
            value = self.convert(value_node, here)
            if here not in self.blank:
                found[key] = value
        return found

    def _scalar(self, node: yaml.Node, path: Path_) -> Any:
        text = str(node.value)
        plain = getattr(node, "style", None) is None
        line = node.start_mark.line + 1
        if not _clean(text):
            self._problem(line, path, "holds a control character")
            self.blank.add(path)
            return None
        if plain and text in _NULLS:
            self._problem(line, path, "has no value", 'leave the key out for its default; an empty text is written ""')
            self.blank.add(path)
            return None
        if not plain or (path and path[0] in self._as_text):
            return text
        return typed(text)

    def _problem(self, line: int, path: Path_, message: str, hint: str = "") -> None:
        self.problems.append(Problem(self._file, line, dotted(path), message, hint))


def typed(text: str) -> Any:
    """What an unquoted scalar means."""
    if _INT.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return Decimal(text)
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    return text


def _clean(text: str) -> bool:
    r"""Whether the text can be stored, sent and shown: escapes such as \0 or \ud800 can smuggle in what the reader would refuse."""
    return all(c in "\n\t" or (c >= " " and c != "\x7f" and not "\ud800" <= c <= "\udfff") for c in text)
