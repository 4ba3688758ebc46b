"""What an agent is given: its job's specification, and addresses for reading and writing its checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from spotd.core.attempt import Attempt
from spotd.core.instance import Instance
from spotd.core.job import Job
from spotd.core.policy import Policy
from spotd.core.world import World
from spotd.daemon.credentials import Credentials
from spotd.daemon.directory_store import signed_path
from spotd.ports import Capabilities, ObjectStore

#: Where the daemon serves archives of working directories: below this, by their sha256.
WORKDIRS = "workdirs"
#: Older checkpoints than this many are not offered: five in a row that do not verify are no accident.
_MOST_RESUMES = 5
#: Long enough for a job to go on saving while the daemon is away; no cloud refuses to sign for a day.
_VALID = timedelta(hours=24)
#: Checkpoints ahead for which an agent holds addresses (DESIGN §6).
_AHEAD = 2
#: The agent's own end, in case nobody tells it: after the daemon's planned move would have had its chance (DESIGN §4 rule 4).
_LIFETIME_MARGIN = timedelta(minutes=10)
#: What a drain keeps of a notice for ending processes: 5 s of AWS's 120, 3 s of GCP's 30 (facts/reclaim.md §0.1).
_RESERVE_SHARE = 0.1
_RESERVE_MOST_S = 5.0
#: The agent stops by itself before the daemon presumes that it has: clocks that drift and a slow stop fit in between.
_STOP_SHARE = 0.8


def checkpoint_name(attempt: int, sequence: int) -> str:
    """The name of a checkpoint; names sort by age."""
    return f"{attempt:05d}-{sequence:06d}"


def object_key(job_id: str, checkpoint: str, number: int) -> str:
    """Where one file of a checkpoint lies in the store."""
    return f"jobs/{job_id}/checkpoints/{checkpoint}/{number:04d}"


def manifest_key(job_id: str, checkpoint: str) -> str:
    """Where the manifest lies, without which the rest is no checkpoint."""
    return f"jobs/{job_id}/checkpoints/{checkpoint}/manifest.json"


class AgentAddresses:
    """Signs for agents: whatever they may read or write, and nothing else."""

    def __init__(self, store: ObjectStore, credentials: Credentials) -> None:
        self._store = store
        self._credentials = credentials

    def resume(self, world: World, job_id: str, now: datetime) -> list[dict[str, Any]]:
        """The job's committed checkpoints, newest first."""
        committed = sorted(world.checkpoints.get(job_id, ()), key=lambda c: (c.attempt, c.sequence), reverse=True)
        return [
            {
                "checkpoint": checkpoint.id,
                "manifest_url": self._store.sign("GET", manifest_key(job_id, checkpoint.id), now + _VALID),
                "manifest_sha256": checkpoint.manifest_sha256,
            }
            for checkpoint in committed[:_MOST_RESUMES]
        ]

    def uploads(self, instance: Instance, next_sequence: int, objects: int, now: datetime) -> list[dict[str, Any]]:
        """Where the next checkpoints may be put."""
        found = []
        for sequence in range(next_sequence, next_sequence + _AHEAD):
            name = checkpoint_name(instance.request.attempt, sequence)
            keys = [object_key(instance.job_id, name, number) for number in range(objects)]
            found.append(
                {
                    "checkpoint": name,
                    "sequence": sequence,
                    "objects": [self._store.sign("PUT", key, now + _VALID) for key in keys],
                    "manifest": self._store.sign("PUT", manifest_key(instance.job_id, name), now + _VALID, create_only=True),
                }
            )
        return found

    def reading(self, job_id: str, checkpoint: str, numbers: Iterable[int], now: datetime) -> dict[str, str]:
        """Where objects of a committed checkpoint can be read."""
        return {str(number): self._store.sign("GET", object_key(job_id, checkpoint, number), now + _VALID) for number in numbers}

    def manifest(self, job_id: str, checkpoint: str, now: datetime) -> str:
        """Where the manifest of a committed checkpoint can be read."""
        return self._store.sign("GET", manifest_key(job_id, checkpoint), now + _VALID)

    def insecure_store(self, now: datetime) -> str | None:
        """The one origin that agents are to reach without TLS: that of a store which ops configured so; None for every other store.

        Told by the daemon and not guessed from an address: an agent must not be led to send a checkpoint in the clear by whoever gets an
        address of plain http into its hands.
        """
        parts = urlsplit(self._store.sign("GET", object_key("none", checkpoint_name(0, 0), 0), now + _VALID))
        return f"http://{parts.netloc}" if parts.scheme == "http" else None

    def workdir(self, sha256: str, now: datetime) -> str:
        """Where the archive of a working directory can be read."""
        return signed_path(self._credentials, "GET", f"{WORKDIRS}/{sha256}", now + _VALID)

    def spec(
        self,
        world: World,
        instance: Instance,
        job: Job,
        attempt: Attempt,
        policy: Policy,
        capabilities: Capabilities,
        now: datetime,
    ) -> dict[str, Any]:
        """The specification, as docs/agent-protocol.md has it."""
        resume = self.resume(world, job.id, now)
        sha256 = job.spec.workdir_sha256
        # Said again after a lost answer, it must be what was recorded at the first saying, whatever the policy says by now.
        patience = policy.replace_when_unreachable if instance.nonce_sha256 is None else instance.stops_after_silence
        notice_s = capabilities.notice.total_seconds()
        return {
            "job": {"id": job.id, "name": job.spec.name},
            "attempt": attempt.number,
            "rank": instance.rank,
            "num_nodes": 1,
            "master_addr": None,
            "setup": job.spec.setup,
            "run": job.spec.run,
            "hook": policy.spot_handlers.pre_reclaim_hook,
            "env": dict(job.spec.env),
            "workdir": None if sha256 is None else {"url": self.workdir(sha256, now), "sha256": sha256},
            "checkpoint_dir": job.spec.checkpoint_dir,
            "resume": resume,
            "resume_required": bool(resume),
            "insecure_store": self.insecure_store(now),
            "watch": capabilities.metadata.value,
            "poll_s": capabilities.metadata_poll.total_seconds(),
            "heartbeat_s": capabilities.heartbeat.total_seconds(),
            "notice_s": notice_s,
            "drain_reserve_s": min(_RESERVE_MOST_S, notice_s * _RESERVE_SHARE),
            "idle_timeout_s": policy.idle_timeout.total_seconds(),
            "max_lifetime_s": (policy.max_run_duration + _LIFETIME_MARGIN).total_seconds(),
            "stop_when_unreachable_s": None if patience is None else patience.total_seconds() * _STOP_SHARE,
        }
