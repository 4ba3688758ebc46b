"""The agents' API: docs/agent-protocol.md, the daemon's side.

A request is first attributed (credential), then understood (models), then recorded in one commit, and only then answered. So whatever is refused
has changed nothing, and whatever was acknowledged survives a power cut. Requests of one instance are handled one after the other: an agent
that lost an answer says everything again while the first saying may still be on its way to the disk.

The event loop only parses and routes. What waits for a disk, for the database or for an object store does so in threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from aiohttp import web

from spotd.core import events as e
from spotd.core.directive import Directive, directive, wire_kind
from spotd.core.instance import Instance, InstanceState
from spotd.core.policy import Policy
from spotd.daemon import agent_messages as m
from spotd.daemon.agent_builds import AgentBuilds
from spotd.daemon.agent_errors import Problem, errors_as_json, malformed, not_found, unauthorized, unavailable
from spotd.daemon.agent_events import check_checkpoint, event_of, fresh, progress_of
from spotd.daemon.agent_logs import WrongOffset, append, log_path
from spotd.daemon.agent_sessions import Sessions
from spotd.daemon.agent_spec import WORKDIRS, AgentAddresses
from spotd.daemon.agent_store import AgentStore
from spotd.daemon.agent_zip import AgentZip
from spotd.daemon.credentials import Credentials, same, sha256_hex
from spotd.daemon.directory_http import ObjectsOverHttp, etag_of
from spotd.daemon.directory_store import DirectoryStore
from spotd.daemon.http_body import read_body
from spotd.ports import Capabilities, Clock, ObjectStore, Recorder

_log = logging.getLogger(__name__)

_BODY_LIMIT = 1 << 20
_LOG_LIMIT = 256 << 10
#: Of an agent that waits for a word of ours: at the gate, in a drain, or at its end, where its machine costs money for nothing.
_IMPATIENT_S = 1.0
_PATIENT_STATES = frozenset({"booting", "running"})
#: Agents in these states may still put checkpoints.
_UPLOADING = frozenset({"booting", "ready", "running", "draining"})
#: A manifest that is not there after this long was removed by somebody: it is not worth holding back all that the agent says.
_MANIFEST_PATIENCE_S = 60.0
_THREADS = 16

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class AgentServices:
    """What the API is made of."""

    recorder: Recorder
    clock: Clock
    credentials: Credentials
    #: Where checkpoints lie. A DirectoryStore is served under /o/ as well.
    store: ObjectStore
    agent_zip: AgentZip
    #: Earlier builds, for machines that were asked for before an upgrade.
    builds: AgentBuilds
    #: The policy of this name as it is in force, if there is one.
    policy: Callable[[str], Policy | None]
    #: By provider.
    capabilities: Mapping[str, Capabilities]
    #: The jobs' output, by job (`agent_logs.log_path`).
    logs: Path
    #: Archives of working directories, by sha256.
    workdirs: DirectoryStore
    #: Largest object of the directory store in bytes.
    object_limit: int = 1 << 40


def make_agent_app(services: AgentServices) -> web.Application:
    """The API as an application; serve it with `agent_runner`."""
    app = web.Application(middlewares=[errors_as_json], client_max_size=_BODY_LIMIT)
    threads = Threads()
    api = AgentApi(services, threads)
    stores = {WORKDIRS: services.workdirs}
    if isinstance(services.store, DirectoryStore):
        stores[""] = services.store
    objects = ObjectsOverHttp(stores, services.credentials, services.clock, services.object_limit, threads.disk)
    app.router.add_get("/agent.pyz", api.program)
    app.router.add_post("/v1/agent/bootstrap", api.bootstrap)
    app.router.add_post("/v1/agent/boot-failed", api.boot_failed)
    app.router.add_post("/v1/agent/sync", api.sync)
    app.router.add_post("/v1/agent/logs", api.logs)
    app.router.add_post("/v1/agent/sign", api.sign)
    for method in ("GET", "HEAD", "PUT"):
        app.router.add_route(method, "/o/{key:.+}", objects.handle)

    async def end_threads(_: web.Application) -> None:
        threads.end()

    app.on_cleanup.append(end_threads)
    return app


def agent_runner(app: web.Application) -> web.AppRunner:
    """How the application is to be run: no access log (addresses carry signatures), no unpacking of compressed bodies."""
    return web.AppRunner(app, access_log=None, auto_decompress=False, keepalive_timeout=75.0, shutdown_timeout=5.0)


class Threads:
    """What waits, waits in these. Apart from each other: an object store that hangs must not keep a notice from the database."""

    def __init__(self) -> None:
        self.records = ThreadPoolExecutor(_THREADS, "agents-records")
        self.disk = ThreadPoolExecutor(_THREADS, "agents-disk")
        self.store = ThreadPoolExecutor(_THREADS, "agents-store")

    def end(self) -> None:
        """Take no more work. What is under way is not waited for: a store that hangs must not keep the daemon from stopping its loop."""
        for pool in (self.records, self.disk, self.store):
            pool.shutdown(wait=False, cancel_futures=True)


class AgentApi:
    """The handlers."""

    def __init__(self, services: AgentServices, threads: Threads) -> None:
        self._services = services
        self._recorder = services.recorder
        self._clock = services.clock
        self._threads = threads
        self._sessions = Sessions(services.recorder)
        addresses = AgentAddresses(services.store, services.credentials)
        self._store = AgentStore(services.store, addresses, services.clock, threads.store)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._program_etag = etag_of(services.agent_zip.content)

    async def program(self, request: web.Request) -> web.Response:
        """`GET /agent.pyz?sha256=…`: public, its sha256 is in the boot script. Without one: that of this daemon."""
        current = self._services.agent_zip
        wanted = request.query.get("sha256", current.sha256)
        if wanted == current.sha256:
            return web.Response(body=current.content, content_type="application/octet-stream", headers={"ETag": self._program_etag})
        content = await self._on_disk(lambda: self._services.builds.content(wanted))
        if content is None:
            raise not_found()
        return web.Response(body=content, content_type="application/octet-stream")

    # Bootstrap ------------------------------------------------------------------------------------------------------------

    async def bootstrap(self, request: web.Request) -> web.Response:
        """`POST /v1/agent/bootstrap`: the bootstrap credential, once, for a session and the specification."""
        body = m.parse(m.Bootstrap, await read_body(request, _BODY_LIMIT))
        known = self._services.credentials.is_bootstrap(body.instance, body.credential)
        if not known or self._recorder.world.instances.get(body.instance) is None:
            raise unauthorized()
        async with self._turn(body.instance):
            now = self._clock.now()
            instance = self._recorder.world.instances.get(body.instance)
            if instance is None:
                raise unauthorized()
            nonce = sha256_hex(body.nonce)
            if instance.nonce_sha256 is not None and not same(instance.nonce_sha256, nonce):
                raise Problem(409, "used", "This credential was exchanged already, by somebody with another nonce.")
            await self._find_unheard(instance)
            spec, promise = await self._spec(instance, now)
            session = self._services.credentials.session(instance.id, body.nonce)
            if instance.nonce_sha256 is None:
                await self._record([e.AgentBootstrapped(now, instance.id, nonce, sha256_hex(session), promise)])
        self._recorder.heard(instance.id)
        return web.json_response({"session": session, "spec": spec})

    async def boot_failed(self, request: web.Request) -> web.Response:
        """`POST /v1/agent/boot-failed`: a machine that will not come up says so, instead of being waited for."""
        body = m.parse(m.BootFailed, await read_body(request, _BODY_LIMIT))
        known = self._services.credentials.is_bootstrap(body.instance, body.credential)
        instance = self._recorder.world.instances.get(body.instance)
        if not known or instance is None or instance.nonce_sha256 is not None:
            raise unauthorized()
        async with self._turn(body.instance):
            detail = f"{body.step} (line {body.line}, exit code {body.code})"
            await self._record([e.BootFailed(self._clock.now(), body.instance, detail)])
        return web.json_response({})

    async def _spec(self, instance: Instance, now: datetime) -> tuple[dict[str, Any], timedelta | None]:
        """The specification, and by which `replace_when_unreachable` it was made."""
        world = self._recorder.world
        job = world.jobs.get(instance.job_id)
        attempt = world.attempts.get(instance.attempt_id)
        over = job is None or job.outcome is not None or attempt is None or attempt.ended
        if job is None or attempt is None or over or instance.state is InstanceState.GONE:
            raise unauthorized()
        policy = self._services.policy(job.spec.policy)
        capabilities = self._services.capabilities.get(instance.request.offer.provider)
        if policy is None or capabilities is None:
            raise unavailable("The job's policy or provider is not loaded at the moment.")
        found = (world, instance, job, attempt, policy, capabilities, now)
        return await self._store.signed(lambda addresses: addresses.spec(*found)), policy.replace_when_unreachable

    # Sync -----------------------------------------------------------------------------------------------------------------

    async def sync(self, request: web.Request) -> web.Response:
        """`POST /v1/agent/sync`: hear, record, acknowledge, direct."""
        caller = self._authenticated(request)
        body = m.parse(m.Sync, await read_body(request, _BODY_LIMIT))
        said_at = self._clock.now()
        async with self._turn(caller.id):
            # As it is now: an earlier saying of the same may just have been recorded.
            instance = self._recorder.world.instances.get(caller.id, caller)
            acknowledged = await self._hear(instance, body, said_at)
            return web.json_response({"acknowledged": acknowledged, **await self._answer(instance, body)})

    async def _hear(self, instance: Instance, body: m.Sync, now: datetime) -> int:
        """Record what is new, in order, as one commit; the number up to which everything is recorded."""
        new = fresh(body.messages, instance.last_seq)
        for message in new:
            if isinstance(message, m.CheckpointSaid):
                check_checkpoint(message, instance)
        heard, committed = await self._up_to_a_missing_manifest(instance, new)
        events: list[e.Event] = []
        for message in heard:
            if isinstance(message, m.CheckpointSaid) and message.checkpoint not in committed:
                continue
            event = event_of(message, instance, new, now)
            if event is not None:
                events.append(event)
        progress = progress_of(body.progress, self._recorder.world.attempts.get(instance.attempt_id), instance.id, now)
        if progress is not None:
            events.append(progress)
        if heard:
            events.append(e.AgentSpoke(now, instance.id, heard[-1].seq))
        if events:
            await self._record(events)
        return heard[-1].seq if heard else instance.last_seq

    async def _up_to_a_missing_manifest(self, instance: Instance, messages: Sequence[m.Message]) -> tuple[list[m.Message], set[str]]:
        """The messages to take now, and the checkpoints among them that exist (DESIGN §4 rule 6).

        A checkpoint is taken once the store has its manifest. Until then it, and what was said after it, is not acknowledged and will
        be said again; what was said before it, a notice above all, is not held up.
        """
        heard: list[m.Message] = []
        committed: set[str] = set()
        for message in messages:
            if isinstance(message, m.CheckpointSaid):
                exists = await self._store.has_manifest(instance, message)
                if exists:
                    committed.add(message.checkpoint)
                elif exists is None or message.age_s < _MANIFEST_PATIENCE_S:
                    break
                else:
                    _log.error("%s of job %s is not in the store", message.checkpoint, instance.job_id)
            heard.append(message)
        return heard, committed

    async def _answer(self, caller: Instance, body: m.Sync) -> dict[str, Any]:
        """What the agent should do, by the world as it is after its words were recorded."""
        world, now = self._recorder.world, self._clock.now()
        instance = world.instances.get(caller.id, caller)
        order = _for_a_ghost(directive(world, caller.id, now), instance)
        drain = None
        if order.drain is not None:
            drain = {"id": order.drain.id, "kind": wire_kind(order.drain.kind), "seconds": order.drain_seconds}
        answer: dict[str, Any] = {
            "gate": "open" if order.gate_open else "closed",
            "drain": drain,
            "stop": order.stop,
            "power_off": order.power_off,
            "heartbeat_s": self._heartbeat_s(instance, body.state),
            "uploads": [],
        }
        attempt = world.attempts.get(instance.attempt_id)
        if order.stop is None and attempt is not None and not attempt.ended and body.state in _UPLOADING:
            answer["uploads"] = await self._store.uploads(instance, body.next_sequence, body.objects_per_checkpoint, now)
        else:
            self._store.forget(instance)
        if order.gate_open and attempt is not None and attempt.started_at is None:
            # It may have waited while the old attempt made its last checkpoint, which the specification could not name yet.
            await self._find_unheard(instance)
            heard = self._recorder.world
            answer["resume"] = await self._store.signed(lambda addresses: addresses.resume(heard, instance.job_id, now))
        return answer

    async def _find_unheard(self, instance: Instance) -> None:
        """Record what is committed in the store and was never told: an attempt resumes from what exists, not from what we heard of."""
        world, now, job = self._recorder.world, self._clock.now(), instance.job_id
        if job not in world.jobs:
            return
        found = await self._store.unheard(world, job, now)
        if found:
            await self._record(found)

    def _heartbeat_s(self, instance: Instance, state: str) -> float:
        capabilities = self._services.capabilities.get(instance.request.offer.provider)
        usual = _IMPATIENT_S if capabilities is None else capabilities.heartbeat.total_seconds()
        return usual if state in _PATIENT_STATES else min(usual, _IMPATIENT_S)

    # Logs and addresses ---------------------------------------------------------------------------------------------------

    async def logs(self, request: web.Request) -> web.Response:
        """`POST /v1/agent/logs?offset=N`: append a piece of the job's output."""
        caller = self._authenticated(request)
        offsets = request.query.getall("offset", [])
        if len(offsets) != 1 or not offsets[0].isascii() or not offsets[0].isdecimal() or len(offsets[0]) > 15:
            raise malformed("offset: how many bytes came before")
        piece = await read_body(request, _LOG_LIMIT)
        path = log_path(self._services.logs, caller.job_id, caller.request.attempt, caller.rank)
        async with self._turn(str(path)):
            try:
                await self._on_disk(lambda: append(path, int(offsets[0]), piece))
            except WrongOffset as wrong:
                raise Problem(409, "wrong_offset", f"The daemon has {wrong.length} bytes.", offset=wrong.length) from None
            except OSError as error:
                _log.error("%s cannot be written: %s", path, error.strerror)
                raise unavailable("The log cannot be written at the moment.") from None
        return web.Response(status=204)

    async def sign(self, request: web.Request) -> web.Response:
        """`POST /v1/agent/sign`: addresses for reading a committed checkpoint of the caller's job."""
        caller = self._authenticated(request)
        body = m.parse(m.Sign, await read_body(request, _BODY_LIMIT))
        world, now = self._recorder.world, self._clock.now()
        if all(c.id != body.checkpoint for c in world.checkpoints.get(caller.job_id, ())):
            raise not_found()
        asked = (caller.job_id, body.checkpoint)
        urls = await self._store.signed(lambda addresses: addresses.reading(*asked, body.objects, now))
        manifest = await self._store.signed(lambda addresses: addresses.manifest(*asked, now))
        return web.json_response({"objects": urls, "manifest": manifest})

    # What the handlers share ----------------------------------------------------------------------------------------------

    def _authenticated(self, request: web.Request) -> Instance:
        """Who calls. Asked before the body is read: strangers cannot make the daemon hold a megabyte."""
        scheme, _, session = request.headers.get("Authorization", "").partition(" ")
        instance = self._sessions.instance(session.strip()) if scheme.lower() == "bearer" else None
        if instance is None:
            raise unauthorized()
        self._recorder.heard(instance.id)
        return instance

    def _turn(self, name: str) -> asyncio.Lock:
        """One at a time per name. Kept only as long as somebody holds or awaits it."""
        lock = self._turns.get(name)
        if lock is None:
            lock = self._turns[name] = asyncio.Lock()
        return lock

    async def _record(self, events: Sequence[e.Event]) -> None:
        """Returns once it is durable. Raises a Problem, with nothing changed, when it could not be recorded."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads.records, self._recorder.record, events)
        except Exception as error:
            _log.exception("%d events of an agent could not be recorded", len(events))
            raise unavailable("Nothing can be recorded at the moment.") from error

    async def _on_disk(self, function: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads.disk, function)


def _for_a_ghost(order: Directive, instance: Instance) -> Directive:
    """An instance that is known to be gone and speaks all the same must end: its job may run elsewhere already (DESIGN §4 rule 2)."""
    if instance.state is not InstanceState.GONE:
        return order
    return Directive(gate_open=False, drain=None, drain_seconds=None, stop=order.stop or "ended", power_off=True)
