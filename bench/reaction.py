"""How fast a reclaim is answered, on the local provider with real agents and real HTTP.

Two figures of each reclaim: from the mark becoming visible in the metadata to the hook's process, and from the daemon hearing of it to the
replacement's launch call. Both are times of files on one machine, so no clocks are compared.
"""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from bench.figures import Figure
from bench.stage import Stage, stage
from spotd_local import control
from spotd_local.record import Record

_Found = TypeVar("_Found")

RECLAIMS = 50
#: A reclaim alone, and a zone that is taken back at once: then everything that answers shares the machine's cores with all replacements' boots.
TOGETHER = (1, 5)
_PATIENCE_S = 60.0
#: The hook touches a file of its own; the job runs until it is ended.
_POLICY = """
spot_handlers:
  pre_reclaim_hook: "date +%s.%N > {marks}/$SPOTD_JOB_ID.$SPOTD_ATTEMPT"
  max_preemptions: 1000
"""


def _submit(found: Stage, number: int) -> str:
    spec = {"name": f"bench-{number}", "policy": "bench", "run": "while true; do sleep 1; done", "checkpoint": {"dir": "ckpt"}}
    return str(found.client.post("/v1/jobs", {"spec": spec}, {"Idempotency-Key": uuid.uuid4().hex})["job"]["id"])


def _running(found: Stage, job: str) -> tuple[int, str] | None:
    """Attempt and instance of a job whose workload runs."""
    shown = found.client.get(f"/v1/jobs/{job}")
    for attempt in reversed(shown["attempts"]):
        if attempt["state"] == "running" and attempt["started_at"]:
            live = [i for i in shown["instances"] if i["attempt"] == attempt["number"] and i["state"] == "running"]
            return (attempt["number"], live[-1]["id"]) if live else None
    return None


def _wait(what: str, ready: Callable[[], _Found | None]) -> _Found:
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        found = ready()
        if found:
            return found
        time.sleep(0.05)
    raise RuntimeError(f"waited {_PATIENCE_S} s for {what}")


def _hook_at(mark: Path) -> float:
    """When the hook's process wrote its mark."""
    return float(_wait(f"the hook that writes {mark.name}", lambda: mark.read_text() if mark.exists() else None))


def _marked_at(found: Stage, token: str) -> float:
    """When the machine put the mark where its metadata server shows it."""
    record = _record(found, token)
    if record is None or record.mark is None:
        raise RuntimeError(f"{token} was not marked")
    return record.mark.marked_at


def _record(found: Stage, token: str) -> Record | None:
    return next((r for r in control.records(found.cloud) if r.token == token), None)


def measure() -> list[Figure]:
    """Fifty reclaims one at a time, and fifty in groups, agents asking their metadata once a second."""
    return [figure for at_once in TOGETHER for figure in _measure(at_once)]


def _measure(at_once: int) -> list[Figure]:
    hooks: list[float] = []
    launches: list[float] = []
    with stage() as found:
        marks = found.root / "marks"
        marks.mkdir()
        policy = found.root / "policies" / "bench.yaml"
        policy.write_text(policy.read_text() + _POLICY.format(marks=marks))
        found.start()
        jobs = [_submit(found, number) for number in range(at_once)]
        for _ in range(RECLAIMS // at_once):
            runs = {job: _wait(f"job {job} to run", partial(_running, found, job)) for job in jobs}
            for _, token in runs.values():
                control.reclaim(found.cloud, token, channels=control.Channels.IMDS)
            for job, (attempt, token) in runs.items():
                hooks.append(_hook_at(marks / f"{job}.{attempt}") - _marked_at(found, token))
                launches.append(_launch_s(found, job, attempt))
    alone = at_once == 1
    note = f"{len(hooks)} reclaims, {'one at a time' if alone else f'{at_once} at once'}"
    return [
        _figure("notice visible → hook's process, p50", hooks, 50, f"{note}, 1 s poll"),
        _figure("notice visible → hook's process, p99", hooks, 99, f"{note}, 1 s poll", aim="< 1.2" if alone else ""),
        _figure("notice heard → replacement's launch call, p50", launches, 50, note),
        _figure("notice heard → replacement's launch call, p99", launches, 99, note, aim="< 1"),
    ]


def _launch_s(found: Stage, job: str, attempt: int) -> float:
    """From the notice's time in the journal to the local cloud's own record of the replacement's launch."""
    replacement = _wait(f"attempt {attempt + 1} of job {job}", lambda: _try_of(found, job, attempt + 1))
    launched = _wait("the launch call", lambda: _record(found, replacement))
    seen = [e for e in found.client.get("/v1/events", {"job": job, "limit": 200})["events"] if e["kind"] == "notice_seen"]
    heard = max(datetime.fromisoformat(e["at"]).timestamp() for e in seen)
    return max(launched.launched_at - heard, 0.0)


def _try_of(found: Stage, job: str, number: int) -> str | None:
    shown = found.client.get(f"/v1/jobs/{job}")
    return next((i["id"] for i in shown["instances"] if i["attempt"] == number), None)


def _figure(what: str, values: list[float], percent: int, note: str, aim: str = "") -> Figure:
    cut = statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
    return Figure("reaction", what, cut, "s", aim, note)
