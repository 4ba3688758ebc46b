"""From pydantic's errors to problems with a file, a line, a key and the nearest right key."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from spotd.config.errors import ConfigError, Problem, dotted, printable
from spotd.config.quantities import kind_of
from spotd.config.yaml_tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pydantic_core import ErrorDetails

_M = TypeVar("_M", bound=BaseModel)
_Location = tuple[str | int, ...]

_MISSING = "is missing"
#: What pydantic calls wrong types, as a user would.
_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a block of keys",
    "model_type": "a block of keys",
    "model_attributes_type": "a block of keys",
    "path_type": "a path",
}


def validate(model: type[_M], tree: Tree, file: str) -> tuple[_M | None, list[Problem]]:
    """Check a tree against a model: the model if it is right, and every problem of the file, those found while reading included."""
    problems = list(tree.problems)
    try:
        result = model.model_validate(tree.value)
    except ValidationError as error:
        problems += problems_of(model, tree, file, error.errors(include_url=False))
        return None, in_order(problems)
    return result, in_order(problems)


def problems_of(model: type[BaseModel], tree: Tree, file: str, details: Iterable[ErrorDetails]) -> list[Problem]:
    """What pydantic found, in words, each once."""
    found = (_problem(model, tree, file, detail) for detail in details)
    return _without_echoes([problem for problem in found if problem is not None])


def required(model: type[_M], tree: Tree, file: str) -> _M:
    """As `validate`, but any problem is raised."""
    result, problems = validate(model, tree, file)
    if result is None or problems:
        raise ConfigError(problems)
    return result


def _without_echoes(problems: list[Problem]) -> list[Problem]:
    """A misspelt key is told once: not also as the absence of the right one."""
    meant = set()
    for problem in problems:
        word = problem.hint.removeprefix("did you mean ").removesuffix("?")
        if word != problem.hint:
            block, dot, _ = problem.key.rpartition(".")
            meant.add(block + dot + word)
    return [p for p in problems if not (p.message == _MISSING and p.key in meant)]


def in_order(problems: list[Problem]) -> list[Problem]:
    """The problems as a reader meets them in the file."""
    return sorted(problems, key=lambda p: (p.line is None, p.line or 0))


def _problem(model: type[BaseModel], tree: Tree, file: str, detail: ErrorDetails) -> Problem | None:
    location: _Location = detail["loc"]
    kind = detail["type"]
    context: Mapping[str, Any] = detail.get("ctx", {})
    line = tree.line(location)
    key = dotted(location)
    if kind == "missing":
        if location in tree.blank:
            return None
        return Problem(file, line, key, _MISSING, _purpose(model, location))
    if kind == "extra_forbidden":
        return Problem(file, line, key, "is not a key that spotd knows", nearest(model, location))
    if kind == "spotd":
        return Problem(file, line, key, str(context["message"]), str(context["hint"]))
    message, hint = _words(kind, context, detail)
    return Problem(file, line, key, message, hint)


def _words(kind: str, context: Mapping[str, Any], detail: ErrorDetails) -> tuple[str, str]:
    value = detail["input"]
    if kind in _WANTED:
        return f"is {kind_of(value)}; {_WANTED[kind]} is wanted", ""
    shown = printable(str(value)) if isinstance(value, (str, int)) else f"{kind_of(value)}"
    match kind:
        case "literal_error" | "enum":
            return f"{shown} is not one of the choices", f"choose {context.get('expected', '')}".replace("'", "")
        case "greater_than_equal":
            return f"{shown} is too small", f"at least {context['ge']}"
        case "greater_than":
            return f"{shown} is too small", f"more than {context['gt']}"
        case "less_than_equal":
            return f"{shown} is too large", f"at most {context['le']}"
        case "too_long":
            return f"holds {context['actual_length']} entries", f"at most {context['max_length']}"
        case "too_short":
            return "is empty", f"at least {context['min_length']} is wanted"
        case _:
            return detail["msg"].removeprefix("Value error, "), ""


def nearest(model: type[BaseModel], location: _Location) -> str:
    """The hint for an unknown key: the nearest right one, preferably of this block, else what there is."""
    key = str(location[-1])
    level = _model_at(model, location[:-1])
    here = sorted(level.model_fields) if level else []
    scored = [(_likeness(key, name) + 0.05, name, "") for name in here]
    others = (path for path in _paths(model, ()) if path[-1] not in here)
    scored += [(_likeness(key, path[-1]), path[-1], dotted(path[:-1])) for path in others]
    score, name, block = max(scored, default=(0.0, "", ""), key=lambda s: s[0])
    if score >= 0.6 and name in here:
        return f"did you mean {name}?"
    if name == key:
        return f"it belongs under {block}" if block else "it belongs at the top of the file"
    if score >= 0.75:
        return f"did you mean {name}, under {block}?" if block else f"did you mean {name}, at the top of the file?"
    return "known here: " + ", ".join(here) if here else ""


def _likeness(one: str, other: str) -> float:
    if len(one) > 80:
        return 0.0
    return difflib.SequenceMatcher(None, one.lower(), other).ratio()


def _model_at(model: type[BaseModel], location: _Location) -> type[BaseModel] | None:
    current: type[BaseModel] | None = model
    for part in location:
        if current is None:
            return None
        if isinstance(part, int):
            continue
        info = current.model_fields.get(part)
        current = inner_model(info.annotation) if info else None
    return current


def inner_model(annotation: Any) -> type[BaseModel] | None:
    """The model inside an annotation such as `tuple[CandidateFile, ...]` or `After | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in get_args(annotation):
        found = inner_model(inner)
        if found is not None:
            return found
    return None


def _paths(model: type[BaseModel], prefix: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, info in model.model_fields.items():
        yield (*prefix, name)
        inner = inner_model(info.annotation)
        if inner is not None:
            yield from _paths(inner, (*prefix, name))


def _purpose(model: type[BaseModel], location: _Location) -> str:
    level = _model_at(model, location[:-1])
    info = level.model_fields.get(str(location[-1])) if level else None
    return info.description or "" if info else ""
