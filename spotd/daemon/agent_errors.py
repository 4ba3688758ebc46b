"""How the agents' API says no: one shape for every refusal, and nothing of a request in any log but its method and path."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Problem(Exception):
    """A request that is refused; nothing was changed."""

    def __init__(self, status: int, code: str, message: str, **more: Any) -> None:
        """`more` stands beside the error in the answer's body."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.more = more


def unauthorized() -> Problem:
    """One answer for unknown, wrong and ended credentials: it does not tell which."""
    return Problem(401, "unauthorized", "This credential is not known here, or has ended.")


def not_found() -> Problem:
    """No such path or object."""
    return Problem(404, "not_found", "There is nothing under this address.")


def too_large(limit: int) -> Problem:
    """A body over its limit."""
    return Problem(413, "too_large", f"The body is larger than the {limit} bytes allowed here.")


def malformed(message: str) -> Problem:
    """A request that is not what docs/agent-protocol.md says. `message` must not quote it: bodies carry credentials."""
    return Problem(422, "malformed", message)


def unavailable(message: str) -> Problem:
    """Try again later."""
    return Problem(503, "unavailable", message)


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every refusal and every failure into the one shape."""
    try:
        return await handler(request)
    except Problem as problem:
        return _answer(request, problem)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        code = error.reason.lower().replace(" ", "_")
        return _answer(request, Problem(error.status, code, f"{error.reason}."))
    except ConnectionError:
        # The caller has gone, as agents do whose file changed under them: nobody reads this answer, and the log has nothing to tell.
        return web.Response(status=400)
    except Exception as error:  # noqa: BLE001 - the last resort: an agent must hear "later", whatever failed
        # The traceback names lines of ours and no values; the error's own text might quote a body.
        where = "".join(traceback.format_tb(error.__traceback__))
        _log.error("agents' API: %s %s: %s\n%s", request.method, _path(request), type(error).__name__, where)
        return _answer(request, Problem(500, "internal", "The daemon failed to answer; try again later."))


def _answer(request: web.Request, problem: Problem) -> web.Response:
    # An agent that is not understood says the same for ever, and its job's end is never heard: that is for ops to see. A stranger is not.
    misunderstood = problem.status == 422 and "Authorization" in request.headers
    level = logging.WARNING if problem.status >= 500 or misunderstood else logging.INFO
    _log.log(level, "agents' API: %s %s: %d %s", request.method, _path(request), problem.status, problem)
    body = {"error": {"code": problem.code, "message": str(problem)}, **problem.more}
    return web.json_response(body, status=problem.status)


def _path(request: web.Request) -> str:
    """For the log: as it was sent, for decoded it may hold line breaks, and without the query, which may hold a signature."""
    return request.rel_url.raw_path[:200]
