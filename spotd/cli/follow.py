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
                answer = self._client.get(job_path(self._job_id))
                finished = self._look(answer)
            except Away as failure:
                # The job runs on whatever becomes of the daemon (DESIGN §4 rule 3): so do we.
                if not self._away:
                    note(f"{failure.message}; going on as soon as it is back")
                self._away = True
                time.sleep(_AGAIN_S)
                continue
            self._away = False
            if finished:
                return answer
            time.sleep(_LOOK_S)

    def attempt(self, number: int) -> None:
        """Write one attempt's output to its end."""
        self._begin(number)
        self._stream()

    def _begin(self, number: int) -> None:
        self._number, self._offset = number, 0

    def _look(self, answer: dict[str, Any]) -> bool:
        attempts = {attempt["number"]: attempt for attempt in answer["attempts"]}
        over = answer["job"]["outcome"] is not None
        current = attempts.get(self._number)
        if current is None:
            if not over:
                self._say(answer)
            return over
        if current["state"] in {"placed", "booting", "ready"} and not over:
            self._say(answer)
        if current["ready_at"] or current["started_at"] or current["state"] in {"booting", "ready", "running", "draining"}:
            self._stream()
        answer = self._client.get(job_path(self._job_id))
        ended = next((a["state"] == "ended" for a in answer["attempts"] if a["number"] == self._number), True)
        if not ended and answer["job"]["outcome"] is None:
            return False
        return self._next(answer)

    def _next(self, answer: dict[str, Any]) -> bool:
        """Go on to the following attempt; whether there will be none."""
        numbers = [attempt["number"] for attempt in answer["attempts"]]
        current = next((a for a in answer["attempts"] if a["number"] == self._number), None)
        if current is not None and current["state"] == "ended" and self._number < max(numbers, default=0) + 1:
            reason = current["reason"] or "ended"
            step = f", saved at step {current['checkpoint_step']}" if current["checkpoint_step"] is not None else ""
            note(f"spotd: attempt {self._number} ended: {reason}{step}")
            self._begin(self._number + 1)
        return answer["job"]["outcome"] is not None and self._number > max(numbers, default=0)

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
