"""The first exchange with the daemon: our bootstrap credential, once, for a session and a specification."""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from typing import Any

from spotd.node import files
from spotd.node.backoff import Backoff
from spotd.node.clock import Clock
from spotd.node.spec import BadSpec, Config, Spec
from spotd.node.voice import say
from spotd.node.web import Refused, Web, WebError

_FINAL = (401, 409)


class BootstrapRefused(Exception):
    """The daemon does not know this credential, or somebody used it before us. Asking again cannot help."""


def program_file() -> str | None:
    """Return the zip this agent runs from, or None when it runs from a directory."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return root if os.path.isfile(root) else None


def program_sha256() -> str:
    """Return the sha256 of the zip this agent runs from, zeros when there is none or it cannot be read."""
    path = program_file()
    if path is None:
        return "0" * 64
    try:
        with open(path, "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()
    except OSError:
        return "0" * 64


def nonce(directory: str) -> str:
    """Return the 32 hex digits drawn once for this instance and kept in *directory*."""
    path = os.path.join(directory, "nonce.json")
    kept = (files.read_json(path) or {}).get("nonce")
    if isinstance(kept, str) and len(kept) == 32:
        return kept
    drawn = secrets.token_hex(16)
    files.write_json(path, {"nonce": drawn})
    return drawn


def bootstrap(
    web: Web,
    config: Config,
    directory: str,
    boot_id: str,
    clock: Clock,
    cancel: threading.Event,
    backoff: Backoff | None = None,
) -> tuple[str, Spec] | None:
    """Return session credential and specification, from disk or from the daemon, trying for ever; None when *cancel* is set before.

    Raises BootstrapRefused on 401 and 409, BadSpec where the specification makes no sense.
    """
    path = os.path.join(directory, "session.json")
    kept = files.read_json(path)
    if kept is not None and kept.get("instance") == config.instance:
        return str(kept["session"]), Spec.parse(kept["spec"])
    request = {
        "instance": config.instance,
        "credential": config.bootstrap_credential,
        "nonce": nonce(directory),
        "boot_id": boot_id,
        "agent": program_sha256(),
    }
    answer = _ask(web, request, clock, cancel, backoff or Backoff())
    if answer is None:
        return None
    spec = Spec.parse(answer["spec"] if isinstance(answer.get("spec"), dict) else {})
    if not isinstance(answer.get("session"), str):
        raise BadSpec("session: must be a text")
    # The session is on disk before it is used; the same nonce would get it again, but only from a daemon that answers.
    files.write_json(path, {"instance": config.instance, "session": answer["session"], "spec": answer["spec"]})
    return answer["session"], spec


def _ask(web: Web, request: dict[str, Any], clock: Clock, cancel: threading.Event, backoff: Backoff) -> dict[str, Any] | None:
    last = ""
    while not cancel.is_set():
        try:
            return web.call("/v1/agent/bootstrap", request)
        except Refused as error:
            if error.status in _FINAL:
                raise BootstrapRefused(str(error)) from error
            problem = str(error)
        except (WebError, OSError) as error:
            problem = str(error)
        if problem != last:
            say(f"bootstrap: {problem}; trying again")
            last = problem
        clock.wait(cancel, backoff.failed())
    return None
