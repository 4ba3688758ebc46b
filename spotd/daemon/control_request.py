"""Reading requests of the control API: bodies, query values, and which job is meant."""

from __future__ import annotations

import asyncio
import json
import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from spotd.config.errors import printable
from spotd.config.quantities import NotQuantity, duration
from spotd.core.job import Job
from spotd.daemon.control_errors import Denied, malformed, not_found
from spotd.daemon.http_body import read_body
from spotd.daemon.reader import AmbiguousJob, UnknownJob

if TYPE_CHECKING:
    from aiohttp import web

    from spotd.daemon.control import Control

#: Of a JSON body.
BODY_LIMIT = 1 << 20


async def json_body(request: web.Request) -> dict[str, Any]:
    """The JSON object of a request. Refused: too large, no JSON, no object."""
    raw = await read_body(request, BODY_LIMIT)
    try:
        value = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        raise malformed("the body is not JSON") from None
    if not isinstance(value, dict):
        raise malformed("the body must be a JSON object")
    return value


def text_field(body: dict[str, Any], name: str, limit: int) -> str | None:
    """A text of the body, or None where it is absent or null."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > limit:
        raise malformed(f"{name} must be a text of at most {limit} characters")
    return value


def text_query(request: web.Request, name: str, limit: int = 200) -> str | None:
    """A query value, or None where it is absent or empty."""
    value = request.query.get(name)
    if value is not None and len(value) > limit:
        raise malformed(f"{name} is longer than {limit} characters")
    return value or None


def whole_query(request: web.Request, name: str, default: int, most: int) -> int:
    """A whole number of the query, from 0 to `most`."""
    value = request.query.get(name)
    if value is None or value == "":
        return default
    if not re.fullmatch(r"[0-9]{1,18}", value, re.ASCII) or int(value) > most:
        raise malformed(f"{name} must be a whole number from 0 to {most}")
    return int(value)


def seconds_query(request: web.Request, name: str, most: float) -> float:
    """Seconds of the query, at most so many; 0 where absent."""
    value = request.query.get(name)
    if not value:
        return 0.0
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number <= most:
        raise malformed(f"{name} must be a number of seconds from 0 to {most:g}")
    return number


def flag_query(request: web.Request, name: str) -> bool:
    """Whether a switch of the query is on."""
    value = request.query.get(name, "").lower()
    if value in {"", "0", "false", "no"}:
        return False
    if value in {"1", "true", "yes"}:
        return True
    raise malformed(f"{name} must be 1 or 0")


def time_query(request: web.Request, name: str, now: datetime) -> datetime | None:
    """An instant of the query: `30d` means so long ago, otherwise a date or a time in ISO 8601."""
    value = text_query(request, name, 40)
    if value is None:
        return None
    try:
        return now - duration(value)
    except (NotQuantity, OverflowError):
        pass
    try:
        parsed = datetime.fromisoformat(value)
        parsed = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
        return parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        hint = "write 30d or 12h for so long ago, or a date such as 2026-11-30 or 2026-11-30T08:00Z"
        raise malformed(f"{name}: {printable(value)} is not a time", hint) from None


def label_query(request: web.Request) -> dict[str, str]:
    """`label=key=value`, any number of times."""
    found = {}
    for item in request.query.getall("label", [])[:20]:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise malformed(f"label: {printable(item)} is not a filter", "write label=project=legal")
        found[key] = value
    return found


async def the_job(control: Control, ref: str) -> Job:
    """The job that a user means: by id, by the beginning of an id, or by name (the newest of that name)."""
    world = control.recorder.world
    if ref in world.jobs:
        return world.jobs[ref]
    hint = "spotd jobs --all shows every job"
    if not ref or len(ref) > 100 or "\0" in ref:
        raise not_found("there is no such job", hint)
    try:
        found = await asyncio.to_thread(control.reader.job, ref)
    except UnknownJob:
        raise not_found(f"there is no job {printable(ref)}", hint) from None
    except AmbiguousJob as error:
        listed = ", ".join(identity[:13] for identity in error.ids[:8])
        raise Denied(409, "ambiguous", f"{printable(ref)} could be any of {listed}", "give more of the id") from None
    # The world's value is the newest one.
    return world.jobs.get(found.id, found)
