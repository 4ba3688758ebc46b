"""Answers that come in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spotd.core.errors import ProviderUnavailable

if TYPE_CHECKING:
    import threading

#: More pages than any of our questions can have: whoever sends so many does not come to an end.
_MOST_PAGES = 1000


def pages(call: Callable[..., Any], stop: threading.Event, **question: Any) -> Iterator[Mapping[str, Any]]:
    """Every page. All parameters are repeated with each, and an empty token ends it (facts/cloud-api.md §1.1).

    Raises ProviderUnavailable when the pages do not end, or `stop` was set: what was read until then is not the whole.
    """
    token, seen = "", set()
    for _ in range(_MOST_PAGES):
        if stop.is_set():
            raise ProviderUnavailable("it took too long, and was given up")
        page = call(**question, **({"NextToken": token} if token else {}))
        if not isinstance(page, Mapping):
            raise ProviderUnavailable("what came back is no answer of AWS")
        yield page
        token = str(page.get("NextToken") or "")
        if not token:
            return
        if token in seen:
            break
        seen.add(token)
    raise ProviderUnavailable("AWS sends the same page again and again")


def rows(page: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The rows of a page. An answer without them is no answer, which is not the same as an empty one."""
    found = page.get(name)
    if not isinstance(found, list):
        raise ProviderUnavailable(f"AWS's answer has no {name}")
    return [row for row in found if isinstance(row, Mapping)]


def batches(values: Sequence[str], most: int) -> Iterator[list[str]]:
    """In parts of at most so many."""
    return (list(values[begin : begin + most]) for begin in range(0, len(values), most))
