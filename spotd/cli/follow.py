"""A job's output as it comes, across attempts and across restarts of the daemon."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from spotd.cli.output import note, offer
from spotd.cli.refusal import Away, job_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotd.cli.client import Client

#: How often a job that has nothing to read is looked at, and a daemon that is away is asked for.
_LOOK_S = 0.5
_AGAIN_S = 2.0
#: An attempt in one of these has nothing to say yet: what it waits for is said instead.
_NOT_YET = frozenset({"placed", "booting", "ready"})


class Following:
    """Where we are in a job's output."""

    def __init__(self, client: Client, job_id: str, write: Callable[[bytes], None]) -> None:
        self._client = client
        self._job_id = job_id
        self._write = write
        self._number = 0
        self._offset = 0
        self._said = ""
        self._away = False

    def to_the_end(self, first: int = 1) -> dict[str, Any]:
        """Write everything from an attempt on until the job is over; the job as `show` has it then."""
        self._begin(first)
        while True:
            try:
                final = self._look(self._client.get(job_path(self._job_id)))
            except Away as failure:
                # The job runs on whatever becomes of the daemon (DESIGN §4 rule 3): so do we.
                if not self._away:
                    note(f"{failure.message}; going on as soon as it is back")
                self._away = True
                time.sleep(_AGAIN_S)
                continue
            self._away = False
            if final is not None:
                return final
            time.sleep(_LOOK_S)

    def attempt(self, number: int) -> None:
        """Write one attempt's output to its end."""
        self._begin(number)
        self._stream()

    def _begin(self, number: int) -> None:
        self._number, self._offset = number, 0

    def _look(self, answer: dict[str, Any]) -> dict[str, Any] | None:
        """Write what there is of the attempt under way; the job's final state once there is nothing more to come."""
        current = _attempt(answer, self._number)
        over = answer["job"]["outcome"] is not None
        if not over and (current is None or current["state"] in _NOT_YET):
            self._say(answer)
        if current is None:
            return answer if over else None
        if current["ready_at"] or current["started_at"] or current["state"] in {"booting", "ready", "running", "draining"}:
            self._stream()
            answer = self._client.get(job_path(self._job_id))
            current = _attempt(answer, self._number) or current
        if current["state"] != "ended":
            return None
        return self._next(answer, current)

    def _next(self, answer: dict[str, Any], ended: dict[str, Any]) -> dict[str, Any] | None:
        """Go on to the attempt that follows, if one does."""
        following = max(attempt["number"] for attempt in answer["attempts"]) > self._number
        over = answer["job"]["outcome"] is not None
        if not over or following:
            step = f", saved at step {ended['checkpoint_step']}" if ended["checkpoint_step"] is not None else ""
            note(f"spotd: attempt {self._number} ended: {ended['reason'] or 'ended'}{step}")
        self._begin(self._number + 1)
        return answer if over and not following else None

    def _stream(self) -> None:
        query = {"attempt": self._number, "offset": self._offset, "follow": True}
        _, pieces = self._client.stream(job_path(self._job_id, "/logs"), query)
        for piece in pieces:
            self._offset += len(piece)
            self._write(piece)

    def _say(self, answer: dict[str, Any]) -> None:
        """What the job waits for, once as long as it does not change."""
        job = answer["job"]
        hold = job["hold"]
        if job["where"]:
            text = f"{job['status']} on {offer(job['where'])}"
        elif hold:
            text = f"waiting: {hold['why']}: {hold['detail']}"
        else:
            text = str(job["status"])
        if text != self._said:
            self._said = text
            note(f"spotd: {text}")


def _attempt(answer: dict[str, Any], number: int) -> dict[str, Any] | None:
    return next((attempt for attempt in answer["attempts"] if attempt["number"] == number), None)
