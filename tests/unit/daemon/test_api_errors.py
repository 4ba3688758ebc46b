"""Requests that come to nothing through no fault of theirs: callers that go away, disks that are full."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from spotd.daemon import agent_errors, control_errors
from spotd.daemon.database import StoreUnavailable


@pytest.mark.parametrize("middleware", [agent_errors.errors_as_json, control_errors.errors_as_json], ids=["agents", "control"])
@pytest.mark.parametrize("lost", [ConnectionResetError, ConnectionAbortedError, BrokenPipeError])
def test_a_caller_that_went_away_is_no_error_of_the_daemon(middleware: Callable[..., Any], lost: type[Exception]) -> None:
    """What escapes here aiohttp logs as an error with its traceback: one for each upload that an agent breaks off."""

    async def handler(_: web.Request) -> web.StreamResponse:
        raise lost("Connection lost")

    answer = asyncio.run(middleware(make_mocked_request("PUT", "/o/key"), handler))
    assert answer.status == 400


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (StoreUnavailable("The disk of spotd.db is full; nothing was written."), 503, "disk of spotd.db is full"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 503, "No space left"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS)), 503, "Read-only"),
        (OSError(errno.EACCES, "token=SECRET"), 500, "its log says why"),
    ],
)
def test_a_disk_that_takes_nothing_is_named(error: Exception, status: int, sentence: str) -> None:
    """Whoever hands in a job while it is full reads that, and that nothing was changed; other surprises stay in the log."""

    async def handler(_: web.Request) -> web.StreamResponse:
        raise error

    answer = asyncio.run(control_errors.errors_as_json(make_mocked_request("POST", "/v1/jobs"), handler))
    assert isinstance(answer, web.Response)
    assert answer.status == status
    assert sentence in str(json.loads(answer.text or "")["error"])
    assert "SECRET" not in str(answer.text)
