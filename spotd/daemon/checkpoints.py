"""Where this deployment's checkpoints lie: chosen by ops, remembered, and tried before a job relies on it.

A daemon that looked for checkpoints in another place than the one they were put into would tell a job's next attempt that there are none, or
none that it could find. So what is in use is kept in `state_dir`, and another store is taken up only when no unfinished job needs the old one.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import uuid
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spotd.core.errors import InvalidRequest, ProviderError, ProviderUnavailable, Throttled
from spotd.daemon.plugins import StoreProblem, open_store
from spotd.daemon.private_file import sync_directory
from spotd.ports import AlreadyExists

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from spotd.config.daemon import Checkpoints, DaemonConfig
    from spotd.core.world import World
    from spotd.ports import ObjectStore

_log = logging.getLogger(__name__)

#: What a state directory without the file used: that was before there was a choice.
_DIRECTORY = "the daemon's own directory"
_KEPT_IN = "checkpoint-store"
_SHOWN = 3


def open_checkpoints(config: DaemonConfig, world: World, directory: Callable[[], ObjectStore]) -> ObjectStore:
    """The store for the checkpoints of all jobs: the configured one, or else `directory()`. `state_dir` must exist.

    StoreProblem, with the next step, when another store is in use by unfinished jobs, and when the store refuses us: unless it was in use
    already and jobs run, for which a daemon with a store that refuses is better than none. One that does not answer is waited for.
    """
    kept = config.state_dir / _KEPT_IN
    before, after = _read(kept), _identity(config.checkpoints)
    tied = _tied(world)
    if before != after and tied:
        raise StoreProblem(_still_needed(kept, before, after, tied))
    if config.checkpoints.store is None:
        store = directory()
    else:
        store = _open(config.checkpoints)
        _check(store, after, fatal=not tied)
    if before != after:
        _log.info("checkpoints lie in %s from now on; before it was %s", after, before)
        _write(kept, after)
    return store


def _identity(checkpoints: Checkpoints) -> str:
    """What makes it the same store: the same objects are found. Region and credentials are not part of that."""
    if checkpoints.store is None:
        return _DIRECTORY
    return checkpoints.store if checkpoints.endpoint_url is None else f"{checkpoints.store} at {checkpoints.endpoint_url}"


def _open(checkpoints: Checkpoints) -> ObjectStore:
    settings = {"region": checkpoints.region, "endpoint_url": checkpoints.endpoint_url, "profile": checkpoints.profile}
    endpoint = urlsplit(checkpoints.endpoint_url or "")
    if endpoint.scheme == "http" and not _is_here(endpoint.hostname or ""):
        _log.warning("checkpoints travel unencrypted: [checkpoints] endpoint_url is %s", checkpoints.endpoint_url)
    return open_store(checkpoints.store or "", {key: value for key, value in settings.items() if value is not None})


def _is_here(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _tied(world: World) -> list[str]:
    """Names of unfinished jobs that need the store in use: what they resume from is there, or an agent holds addresses to put it there."""
    jobs = {job.id: job for job in world.jobs.values() if job.outcome is None}
    writing = {instance.job_id for instance in world.instances.values() if instance.live}
    return sorted(job.spec.name for job in jobs.values() if world.checkpoints.get(job.id) or job.id in writing)


def _still_needed(kept: Path, before: str, after: str, tied: list[str]) -> str:
    names = ", ".join(tied[:_SHOWN]) + (f" and {len(tied) - _SHOWN} more" if len(tied) > _SHOWN else "")
    back = "take [checkpoints] store out of spotd.toml" if before == _DIRECTORY else f"set [checkpoints] to {before} again"
    return (
        f"[checkpoints]: the checkpoints of unfinished jobs ({names}) lie in {before}, and spotd.toml says {after}: "
        f"{back} until these jobs are done, or cancel them (and if both are the same store, write its new address into {kept})"
    )


# Trying it -------------------------------------------------------------------------------------------------------------------


def _check(store: ObjectStore, name: str, *, fatal: bool) -> None:
    """Say what is wrong with the store; die of it where it is certain and nobody's job depends on us."""
    try:
        try_store(store)
    except (ProviderUnavailable, Throttled) as error:
        _log.warning("the checkpoint store %s does not answer; spotd goes on, and asks again when it is needed: %s", name, error)
    except (ProviderError, ValueError) as error:
        if fatal:
            raise StoreProblem(f"[checkpoints] {name} cannot be used: {error}") from error
        _log.error("the checkpoint store %s cannot be used, and jobs need it: %s", name, error)


def try_store(store: ObjectStore) -> None:
    """Do with a small object all that will be done with checkpoints. Raises what the store raises; InvalidRequest where it does not keep its word."""
    key = f"trials/{uuid.uuid4().hex}"
    store.put(key, b"spotd", create_only=True)
    try:
        _exercise(store, key)
    except BaseException:
        with contextlib.suppress(ProviderError):
            store.delete(key)
        raise
    store.delete(key)


def _exercise(store: ObjectStore, key: str) -> None:
    with contextlib.suppress(AlreadyExists):
        store.put(key, b"another", create_only=True)
    try:
        content, size, keys = store.get(key), store.head(key).size, list(store.list(key))
    except KeyError:
        content, size, keys = b"", 0, []
    if content == b"another":
        raise InvalidRequest("it replaces objects although If-None-Match: * forbids it, so that checkpoints could be lost: use another store")
    if (content, size, keys) != (b"spotd", len(b"spotd"), [key]):
        raise InvalidRequest("what was just written is not found again: use a store that is consistent")


# What is remembered ----------------------------------------------------------------------------------------------------------


def _read(kept: Path) -> str:
    try:
        return kept.read_text("utf-8").strip() or _DIRECTORY
    except FileNotFoundError:
        return _DIRECTORY
    except (OSError, UnicodeDecodeError) as error:
        raise StoreProblem(f"{kept} cannot be read: {error}") from None


def _write(kept: Path, identity: str) -> None:
    partial = kept.with_suffix(".new")
    with partial.open("w", encoding="utf-8") as stream:
        stream.write(identity + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(kept)
    sync_directory(kept.parent)
