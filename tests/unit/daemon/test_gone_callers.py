"""Callers that go away in the middle of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from spotd.daemon import agent_errors, control_errors


@pytest.mark.parametrize("middleware", [agent_errors.errors_as_json, control_errors.errors_as_json], ids=["agents", "control"])
@pytest.mark.parametrize("lost", [ConnectionResetError, ConnectionAbortedError, BrokenPipeError])
def test_a_caller_that_went_away_is_no_error_of_the_daemon(middleware: Callable[..., Any], lost: type[Exception]) -> None:
    """What escapes here aiohttp logs as an error with its traceback: one for each upload that an agent breaks off."""

    async def handler(_: web.Request) -> web.StreamResponse:
        raise lost("Connection lost")

    answer = asyncio.run(middleware(make_mocked_request("PUT", "/o/key"), handler))
    assert answer.status == 400
