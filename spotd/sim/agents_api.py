"""The daemon's side of docs/agent-protocol.md without HTTP: what is said becomes events, and what is answered comes from `core.directive`.

Translation, specification and directives are the daemon's own functions; only the bytes are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from spotd.core import events as e
from spotd.core.directive import Directive, directive
from spotd.core.instance import InstanceState
from spotd.daemon.agent_events import event_of, fresh
from spotd.daemon.agent_spec import AgentAddresses, manifest_key
from spotd.daemon.credentials import Credentials, sha256_hex
from spotd.daemon.unheard import unheard
from spotd.ports import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from spotd.core.instance import Instance
    from spotd.core.world import World
    from spotd.daemon import agent_messages as m
    from spotd.ports import ObjectStore
    from spotd.sim.host import Host
    from spotd.sim.shelf import Shelf


class NoAnswer(Exception):
    """401, 5xx or nothing at all: try again later."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an agent is told."""

    acknowledged: int
    order: Directive
    #: Checkpoint ids, newest first; None when the answer names none.
    resume: tuple[str, ...] | None


class _Store:
    """The shelf as the daemon sees its object store. It asks for no signature."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def list(self, prefix: str) -> list[str]:
        """The manifests of a job."""
        job = prefix.split("/")[1]
        return sorted(manifest_key(job, manifest.checkpoint) for manifest in self._shelf.of(job))

    def head(self, key: str) -> ObjectInfo:
        """How large a manifest is."""
        return ObjectInfo(key, len(self.get(key)))

    def get(self, key: str) -> bytes:
        """A manifest."""
        _, job, _, checkpoint, _ = key.split("/")
        manifest = self._shelf.get(job, checkpoint)
        if manifest is None:
            raise KeyError(key)
        return manifest.content

    def sign(self, method: str, key: str, expires_at: datetime, *, create_only: bool = False) -> str:
        """The key itself."""
        del method, expires_at, create_only
        return key


class AgentsApi:
    """Bootstrap and sync."""

    def __init__(self, host: Host) -> None:
        self._host = host
        # The reading half of one, which is all that is asked of it here.
        self._store = cast("ObjectStore", _Store(host.shelf))
        self._addresses = AgentAddresses(self._store, Credentials(bytes(32)))

    def bootstrap(self, instance_id: str) -> dict[str, Any]:
        """The specification; the same nonce again gets it again."""
        host = self._host
        world, now = host.engine.world, host.clock.now()
        instance = world.instances.get(instance_id)
        job = None if instance is None else world.jobs.get(instance.job_id)
        attempt = None if instance is None else world.attempts.get(instance.attempt_id)
        if instance is None or job is None or attempt is None or job.outcome is not None or attempt.ended or not instance.live:
            raise NoAnswer("401")
        policy = host.policies.get(job.spec.policy)
        if policy is None:
            raise NoAnswer("503")
        self._find_unheard(instance)
        world = host.engine.world
        spec = self._addresses.spec(world, instance, job, attempt, policy, host.provider.capabilities, now)
        if instance.nonce_sha256 is None:
            host.record([e.AgentBootstrapped(now, instance.id, sha256_hex("nonce"), sha256_hex(instance.id), policy.replace_when_unreachable)])
        host.engine.heard(instance.id, host.clock.now())
        return spec

    def sync(self, instance_id: str, state: str, messages: Sequence[m.Message], step: int | None) -> Answer:
        """Hear, record in one commit, acknowledge, direct."""
        host = self._host
        now = host.clock.now()
        instance = host.engine.world.instances.get(instance_id)
        if instance is None or instance.session_sha256 is None:
            raise NoAnswer("401")
        host.engine.heard(instance_id, now)
        new = fresh(messages, instance.last_seq)
        events = [event for message in new if (event := event_of(message, instance, new, now)) is not None]
        if step is not None and new:
            events.append(e.ProgressReported(now, instance_id, step, None))
        if new:
            events.append(e.AgentSpoke(now, instance_id, new[-1].seq))
            host.record(events)
        world = host.engine.world
        order = self.order(world, world.instances.get(instance_id, instance))
        attempt = world.attempts.get(instance.attempt_id)
        resume = None
        if order.gate_open and attempt is not None and attempt.started_at is None and state in {"ready", "booting"}:
            self._find_unheard(instance)
            listed = self._addresses.resume(host.engine.world, instance.job_id, now)
            resume = tuple(str(entry["checkpoint"]) for entry in listed)
        return Answer(new[-1].seq if new else instance.last_seq, order, resume)

    def _find_unheard(self, instance: Instance) -> None:
        """As `agent_api` does before it names checkpoints to resume from."""
        found = unheard(self._store, self._host.engine.world, instance.job_id, self._host.clock.now())
        if found:
            self._host.record(found)

    def order(self, world: World, instance: Instance) -> Directive:
        """What this instance's agent would be told now."""
        order = directive(world, instance.id, self._host.clock.now())
        if instance.state is InstanceState.GONE:
            # As `agent_api` answers one that is known to be gone and speaks all the same.
            return Directive(gate_open=False, drain=None, drain_seconds=None, stop=order.stop or "ended", power_off=True)
        return order
