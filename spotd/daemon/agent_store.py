"""The checkpoint store as the agents' API uses it: in threads, and with the patience that an agent's call has.

A store may be slow, refuse us or be away. What an agent must hear at once (a drain, a stop) never waits for it; what would be wrong without it (what
to resume from) is not said until it answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import datetime
from typing import Any, TypeVar

from spotd.core.errors import ProviderError
from spotd.core.events import CheckpointCommitted
from spotd.core.instance import Instance
from spotd.core.world import World
from spotd.daemon import agent_messages as m
from spotd.daemon.agent_errors import unavailable
from spotd.daemon.agent_spec import AgentAddresses, manifest_key
from spotd.daemon.unheard import unheard
from spotd.ports import Clock, ObjectStore

_log = logging.getLogger(__name__)

#: Signing is dear with some stores (a thousand jobs' heartbeats would keep a core busy), so addresses are given again for so long.
_ADDRESSES_KEPT_S = 300.0
#: A store that takes longer is asked again at the next heartbeat.
_PATIENCE_S = 8.0

_Result = TypeVar("_Result")


class AgentStore:
    """One store, its signer, and the threads that wait for it."""

    def __init__(self, store: ObjectStore, addresses: AgentAddresses, clock: Clock, threads: Executor) -> None:
        self._store = store
        self._addresses = addresses
        self._clock = clock
        self._threads = threads
        #: By instance: what was asked for, when (monotonic), and what was given.
        self._given: dict[str, tuple[tuple[int, int], float, list[dict[str, Any]]]] = {}

    async def signed(self, sign: Callable[[AgentAddresses], _Result]) -> _Result:
        """What is signed. Raises a Problem, for a later try, while the store cannot."""
        try:
            return await self._in_thread(lambda: sign(self._addresses))
        except ProviderError as error:
            _log.warning("the checkpoint store cannot sign: %s", error)
            raise unavailable("The checkpoint store cannot be used at the moment.") from error

    async def uploads(self, instance: Instance, sequence: int, objects: int, now: datetime) -> list[dict[str, Any]]:
        """Addresses for the next checkpoints; none while the store cannot sign: the agent goes on with those it has."""
        asked = (sequence, objects)
        began = self._clock.monotonic()
        given = self._given.get(instance.id)
        if given is not None and given[0] == asked and began - given[1] < _ADDRESSES_KEPT_S:
            return given[2]
        for other in [name for name, (_, since, _) in self._given.items() if began - since >= _ADDRESSES_KEPT_S]:
            del self._given[other]
        try:
            async with asyncio.timeout(_PATIENCE_S):
                uploads = await self._in_thread(lambda: self._addresses.uploads(instance, sequence, objects, now))
        except Exception as error:  # noqa: BLE001 - whatever a store raises, the rest of the answer must not wait for it
            _log.warning("no addresses for checkpoints of job %s can be signed: %s", instance.job_id, _reason(error))
            return []
        self._given[instance.id] = (asked, began, uploads)
        return uploads

    def forget(self, instance: Instance) -> None:
        """It will not put checkpoints any more."""
        self._given.pop(instance.id, None)

    async def has_manifest(self, instance: Instance, message: m.CheckpointSaid) -> bool | None:
        """Whether the store has this very manifest; None when it cannot say."""
        key = manifest_key(instance.job_id, message.checkpoint)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                info = await self._in_thread(lambda: self._store.head(key))
        except KeyError:
            return False
        except Exception as error:  # noqa: BLE001 - whatever a store raises, its meaning is: not known now
            _log.warning("the store does not say whether %s exists: %s", key, _reason(error))
            return None
        return info.sha256 is None or info.sha256 == message.manifest_sha256

    async def unheard(self, world: World, job_id: str, now: datetime) -> Sequence[CheckpointCommitted]:
        """What is committed and was never told. Raises a Problem while the store does not say."""
        try:
            return await self._in_thread(lambda: unheard(self._store, world, job_id, now))
        except Exception as error:
            _log.warning("the store does not say which checkpoints of job %s exist: %s", job_id, _reason(error))
            raise unavailable("The checkpoint store does not answer at the moment.") from error

    async def _in_thread(self, function: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)


def _reason(error: Exception) -> str:
    """For the log. A provider's error is made for it; of any other only the kind is known to hold no address and no credential."""
    return str(error) if isinstance(error, ProviderError) else type(error).__name__
