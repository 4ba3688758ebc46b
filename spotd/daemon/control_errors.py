"""How the control API says no: one shape for every refusal, a sentence for a person, and never a traceback."""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiohttp import web

from spotd.config.errors import printable
from spotd.daemon.agent_errors import Problem
from spotd.daemon.database import StoreUnavailable

if TYPE_CHECKING:
    from spotd.config.errors import ConfigError
    from spotd.config.errors import Problem as FileProblem

_log = logging.getLogger(__name__)

#: What the system says of a disk that is full, over its quota, or read-only.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Denied(Exception):
    """A request that is refused; nothing was changed."""

    def __init__(self, status: int, code: str, message: str, hint: str = "", **more: object) -> None:
        """`more` stands beside the message in the answer."""
        super().__init__(message)
        self.status = status
        self.error: dict[str, object] = {"code": code, "message": message, "hint": hint, **more}


def malformed(message: str, hint: str = "") -> Denied:
    """A request that is not what the API takes."""
    return Denied(400, "malformed", message, hint)


def not_found(message: str, hint: str = "") -> Denied:
    """No such job, policy or path."""
    return Denied(404, "not_found", message, hint)


def forbidden(message: str, hint: str = "") -> Denied:
    """Somebody else's."""
    return Denied(403, "forbidden", message, hint)


def invalid(error: ConfigError) -> Denied:
    """A file with problems: the first one's parts stand in the error itself, all of them in a list."""
    first = error.problems[0]
    return Denied(
        422,
        "invalid",
        first.message,
        first.hint,
        file=first.file,
        line=first.line,
        key=first.key,
        problems=[problem_view(p) for p in error.problems],
        more=error.more,
    )


def refused(message: str, hint: str, file: str, key: str) -> Denied:
    """A file that is right in itself but cannot be taken now."""
    return Denied(422, "refused", message, hint, file=file, line=None, key=key)


def problem_view(problem: FileProblem) -> dict[str, object]:
    """One problem or warning of a file."""
    return {"file": problem.file, "line": problem.line, "key": problem.key, "message": problem.message, "hint": problem.hint}


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every refusal and every failure into the one shape."""
    try:
        return await handler(request)
    except Denied as denied:
        return _answer(denied)
    except Problem as problem:
        # Bodies are read by the same code for both APIs; it speaks the agents' language.
        return _answer(Denied(problem.status, problem.code, str(problem)))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _answer(_http(request, error))
    except ConnectionError:
        # The caller has gone, as with Ctrl-C: nobody reads this answer, and the log has nothing to tell.
        return web.Response(status=400)
    except Exception as error:  # noqa: BLE001 - logged; a bug in one answer must not cost the caller its sentence
        return _answer(_failed(request, error))


def _http(request: web.Request, error: web.HTTPException) -> Denied:
    if error.status == 413:
        return Denied(413, "too_large", "the request is larger than the daemon takes")
    return Denied(error.status, error.reason.lower().replace(" ", "_"), f"{error.reason}: {request.method} {printable(request.path)}")


def _failed(request: web.Request, error: Exception) -> Denied:
    """A full disk is said as it is. What else went wrong is for the log; whoever asked gets a sentence and the next step."""
    message = ""
    if isinstance(error, StoreUnavailable):
        message = str(error)
    elif isinstance(error, OSError) and error.errno in _NO_ROOM:
        message = f"spotd's state directory takes nothing more ({error.strerror}); nothing was changed"
    if message:
        _log.warning("control API: %s %s: %s", request.method, printable(request.path), message)
        return Denied(503, "unavailable", message)
    _log.error("control API: %s %s failed", request.method, printable(request.path), exc_info=error)
    return Denied(500, "internal", "the daemon failed to answer", "its log says why: journalctl -u spotd")


def _answer(denied: Denied) -> web.Response:
    return web.json_response({"error": denied.error}, status=denied.status)
