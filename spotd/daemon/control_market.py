"""Offers, prices, savings, events, policies and the daemon's own state over the control API."""

from __future__ import annotations

import asyncio
import os
from collections import Counter, deque
from typing import TYPE_CHECKING

from aiohttp import web

from spotd.config.errors import ConfigError, printable
from spotd.config.policy import parse_policy, policy_name
from spotd.core.offer import Market
from spotd.daemon.codec import KINDS
from spotd.daemon.control import CONTROL, pause
from spotd.daemon.control_errors import malformed, problem_view
from spotd.daemon.control_request import json_body, seconds_query, text_field, text_query, the_job, time_query, whole_query
from spotd.daemon.control_views import View, offer_view, policy_view, priced_view, speeds, status_of, time_view, usd_view

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from spotd.config.policy_book import PolicyEntry
    from spotd.core.attempt import Attempt
    from spotd.core.offer import Offer
    from spotd.daemon.control import Control
    from spotd.daemon.reader import JournalRow

#: How often a followed journal is looked at, and for how long one request may wait.
_LOOK_S = 0.5
_LONGEST_WAIT_S = 30.0
_MOST_ROWS = 5_000
_DEEPEST = 200_000


def _market_query(request: web.Request) -> Market | None:
    word = text_query(request, "market")
    if word is None:
        return None
    try:
        return Market(word)
    except ValueError:
        raise malformed(f"market: {printable(word)} is not one", "choose spot or on-demand") from None


async def offers(request: web.Request) -> web.Response:
    """`GET /v1/offers`: what could be bought now, cheapest first. Filters: provider, region, type, market."""
    control = request.app[CONTROL]
    market = _market_query(request)
    provider, region, kind = text_query(request, "provider"), text_query(request, "region"), text_query(request, "type")
    snapshot = control.recorder.snapshot()
    found = [
        offer
        for key, offer in snapshot.offers.items()
        if (market is None or key.market is market)
        and (provider is None or key.provider == provider)
        and (region is None or key.region == region)
        and (kind is None or key.instance_type == kind)
    ]
    found.sort(key=lambda offer: (offer.price_usd_per_hour, offer.key))
    rows = [priced_view(offer, snapshot.now) for offer in found[:_MOST_ROWS]]
    return web.json_response({"offers": rows, "more": max(len(found) - _MOST_ROWS, 0), "speeds": speeds(snapshot.providers)})


async def prices(request: web.Request) -> web.Response:
    """`GET /v1/prices`: changes of price, oldest first. Filters: since, provider, region, zone, type, market, limit."""
    control = request.app[CONTROL]
    market = _market_query(request)
    since = time_query(request, "since", control.clock.now())
    limit = whole_query(request, "limit", 1000, 100_000)
    names = {"provider": "provider", "region": "region", "zone": "zone", "type": "instance_type"}
    wanted = {field: text_query(request, name) for name, field in names.items()}

    def ask() -> Sequence[Offer]:
        return control.reader.prices(
            provider=wanted["provider"],
            region=wanted["region"],
            zone=wanted["zone"],
            instance_type=wanted["instance_type"],
            market=market,
            since=since,
            limit=limit,
        )

    rows = [
        {**offer_view(offer.key), "seen_at": time_view(offer.seen_at), "price_usd_per_hour": usd_view(offer.price_usd_per_hour)}
        for offer in await asyncio.to_thread(ask)
    ]
    return web.json_response({"prices": rows, "speeds": speeds(control.recorder.snapshot().providers)})


async def savings(request: web.Request) -> web.Response:
    """`GET /v1/savings?since=&until=&by=`: the report of `core.savings`, as the wiring gives it."""
    control = request.app[CONTROL]
    now = control.clock.now()
    since, until = time_query(request, "since", now), time_query(request, "until", now)
    by = text_query(request, "by") or "job"
    if since is not None and until is not None and since >= until:
        raise malformed("since must be before until")
    try:
        report = await asyncio.to_thread(control.savings, since, until, by)
    except ValueError as error:
        raise malformed(f"by: {error}") from None
    view = {"since": time_view(since), "until": time_view(until), "by": by, **report}
    return web.json_response({**view, "speeds": speeds(control.recorder.snapshot().providers)})


async def events(request: web.Request) -> web.Response:
    """`GET /v1/events?after=SEQ&limit=&job=&kind=&wait=S`: the journal. Without `after`, the newest rows; with `wait`, up to so long for new ones."""
    control = request.app[CONTROL]
    limit = max(whole_query(request, "limit", 200, _MOST_ROWS), 1)
    wait = seconds_query(request, "wait", _LONGEST_WAIT_S)
    kinds = request.query.getall("kind", [])[:50]
    for kind in kinds:
        if kind not in KINDS:
            raise malformed(f"kind: {printable(kind)} is not one", f"known: {', '.join(sorted(KINDS))}")
    ref = text_query(request, "job")
    job_id = (await the_job(control, ref)).id if ref else None
    if text_query(request, "after") is None:
        rows, last = await asyncio.to_thread(_newest, control, limit, job_id, kinds or None)
    else:
        after = whole_query(request, "after", 0, 10**17)
        rows, last = await _after(request, control, after, limit, job_id, kinds or None, wait)
    return web.json_response({"events": [event_view(row) for row in rows], "last": last})


def _newest(control: Control, limit: int, job_id: str | None, kinds: Collection[str] | None) -> tuple[Sequence[JournalRow], int]:
    """The newest rows that fit, looked for in ever wider stretches from the journal's end, and up to where was looked."""
    last = control.reader.last_seq()
    stretch = max(limit * 4, 1000)
    while True:
        start = max(last - stretch, 0)
        rows: deque[JournalRow] = deque(maxlen=limit)
        after = start
        while page := control.reader.journal(after, _MOST_ROWS, job_id, kinds):
            rows.extend(page)
            after = page[-1].seq
            if len(page) < _MOST_ROWS:
                break
        if len(rows) == limit or start == 0 or stretch >= _DEEPEST:
            return list(rows), max(last, after if rows else 0)
        stretch *= 8


async def _after(
    request: web.Request,
    control: Control,
    after: int,
    limit: int,
    job_id: str | None,
    kinds: Collection[str] | None,
    wait: float,
) -> tuple[Sequence[JournalRow], int]:
    waited = 0.0
    while True:
        # Asked first: with a filter, what is not found up to here need not be looked for again.
        last = await asyncio.to_thread(control.reader.last_seq)
        rows = await asyncio.to_thread(control.reader.journal, after, limit, job_id, kinds)
        if rows:
            return rows, rows[-1].seq
        after = max(after, last) if last >= after else after
        if waited >= wait or request.transport is None or request.transport.is_closing() or await pause(control, _LOOK_S):
            return rows, after
        waited += _LOOK_S


def event_view(row: JournalRow) -> View:
    """One line of the journal. Hashes of credentials are left out."""
    fields = {k: v for k, v in row.fields().items() if not k.endswith(("_sha256",)) or k in {"workdir_sha256", "manifest_sha256"}}
    return {
        "seq": row.seq,
        "at": time_view(row.at),
        "kind": row.kind,
        "job_id": row.job_id,
        "attempt_id": row.attempt_id,
        "instance_id": row.instance_id,
        "fields": fields,
    }


async def policies(request: web.Request) -> web.Response:
    """`GET /v1/policies`: every policy as it stands, and what is wrong with its file."""
    control = request.app[CONTROL]
    used: dict[str, int] = {}
    for job in control.recorder.world.jobs.values():
        if job.outcome is None:
            used[job.spec.policy] = used.get(job.spec.policy, 0) + 1
    rows = [_entry_view(entry, used.get(entry.name, 0)) for entry in control.policies.entries()]
    return web.json_response({"policies": rows, "directory": str(control.policies.directory), "problem": control.policies.problem})


def _entry_view(entry: PolicyEntry, jobs: int) -> View:
    return {
        "name": entry.name,
        "file": str(entry.file),
        "state": entry.state.value,
        "unfinished_jobs": jobs,
        "problems": [problem_view(p) for p in entry.problems],
        "warnings": [problem_view(w) for w in entry.warnings],
        "policy": policy_view(entry.policy) if entry.policy is not None else None,
    }


async def check_policy(request: web.Request) -> web.Response:
    """`POST /v1/policies/check` with `{"yaml": …, "file": …}`: whether it is right, without putting it in force."""
    body = await json_body(request)
    file = text_field(body, "file", 1024) or "policy.yaml"
    yaml = body.get("yaml")
    if not isinstance(yaml, str):
        raise malformed("the body needs yaml: the text of a policy file")
    try:
        parsed = await asyncio.to_thread(lambda: parse_policy(yaml, file, policy_name(file)))
    except ConfigError as error:
        view = {"ok": False, "problems": [problem_view(p) for p in error.problems], "warnings": [], "policy": None}
        return web.json_response(view)
    doubts = [problem_view(w) for w in parsed.warnings]
    return web.json_response({"ok": True, "problems": [], "warnings": doubts, "policy": policy_view(parsed.policy)})


async def status(request: web.Request) -> web.Response:
    """`GET /v1/status`: who answers, for how long, and how the providers are."""
    control = request.app[CONTROL]
    world, snapshot = control.recorder.world, control.recorder.snapshot()
    attempts: dict[str, list[Attempt]] = {}
    for attempt in world.attempts.values():
        attempts.setdefault(attempt.job_id, []).append(attempt)
    counts = Counter(status_of(job, attempts.get(job.id, ())) for job in world.jobs.values() if job.outcome is None)
    broken = [entry.name for entry in control.policies.entries() if entry.problems]
    view = {
        "version": control.version,
        "pid": os.getpid(),
        "deployment": world.deployment,
        "started_at": time_view(control.started_at),
        "uptime_s": round((snapshot.now - control.started_at).total_seconds(), 3),
        "you": control.identify(request).name,
        "jobs": dict(counts),
        "live_instances": sum(1 for i in world.instances.values() if i.live),
        "strays": len(world.strays),
        "providers": dict(await asyncio.to_thread(control.health)),
        "suspended": {name: time_view(until) for name, until in world.suspended.items() if until > snapshot.now},
        "policies": {"directory": str(control.policies.directory), "problem": control.policies.problem, "with_problems": broken},
        "speeds": speeds(snapshot.providers),
    }
    return web.json_response(view)
