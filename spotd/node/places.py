"""Where everything lies on the instance, and what the job is told about it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

from spotd.node import files
from spotd.node.spec import Spec

#: Of the service manager and of the agent's own options: nothing a job should see.
_NOT_FOR_JOBS = (
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_FDS",
    "LISTEN_PID",
    "INVOCATION_ID",
    "CREDENTIALS_DIRECTORY",
    "JOURNAL_STREAM",
)


class Places:
    """Paths below the agent's root. ``agent/`` and the tasks' directories are private, ``work/`` and ``job/`` are the job's."""

    def __init__(self, root: str, user: str | None) -> None:
        """Make the directories. Raises KeyError for an unknown *user*, OSError."""
        self.root = os.path.abspath(root)
        self.user = user
        account = pwd.getpwnam(user) if user is not None else None
        self.owner = None if account is None else (account.pw_uid, account.pw_gid)
        self._home = None if account is None else account.pw_dir
        # The job's user passes through the root to its own directories but cannot list it.
        files.private_directory(self.root, 0o700 if account is None else 0o711)
        self.agent = files.private_directory(os.path.join(self.root, "agent"))
        self.job = files.private_directory(os.path.join(self.root, "job"))
        if self.owner is not None:
            os.chown(self.job, *self.owner)
        self.work = os.path.join(self.root, "work")
        self.log = os.path.join(self.agent, "log")
        self.archive = os.path.join(self.agent, "workdir.tar")
        self.journal = os.path.join(self.agent, "state.json")
        self.contact = os.path.join(self.agent, "contact.json")
        self.notice = os.path.join(self.job, "notice.json")
        self.progress = os.path.join(self.job, "progress.jsonl")

    def sweep(self) -> None:
        """Remove what killed agents left half-written. Only for the one agent that holds the lock."""
        for name in os.listdir(self.agent):
            if name.endswith(".new"):
                os.unlink(os.path.join(self.agent, name))

    def task(self, name: str) -> str:
        """Return the directory of the shim called *name*."""
        return os.path.join(self.root, name)

    def checkpoints(self, spec: Spec) -> str | None:
        """Return the checkpoint directory, None for a job without one."""
        return None if spec.checkpoint_dir is None else os.path.normpath(os.path.join(self.work, spec.checkpoint_dir))

    def write_notice(self, kind: str, deadline_epoch: float | None, seconds_left: float | None, source: str, notice_id: str) -> None:
        """Replace the notice file. Raises OSError."""
        value = {
            "kind": kind,
            "deadline_epoch": deadline_epoch,
            "seconds_left": seconds_left,
            "source": source,
            "id": notice_id,
        }
        files.write_json(self.notice, value, mode=0o600, durable=False, owner=self.owner)

    def environment(self, spec: Spec, inherited: Mapping[str, str], resume_from: str) -> dict[str, str]:
        """Return what ``setup``, ``run`` and the hook see. The job's own variables win over inherited ones, spotd's over both."""
        env = {name: value for name, value in inherited.items() if name not in _NOT_FOR_JOBS}
        if self.user is not None:
            env.update(USER=self.user, LOGNAME=self.user, HOME=self._home or "/")
        env.update(spec.env)
        env.update(
            SPOTD_JOB_ID=spec.job_id,
            SPOTD_ATTEMPT=str(spec.attempt),
            SPOTD_CHECKPOINT_DIR=self.checkpoints(spec) or "",
            SPOTD_RESUME_FROM=resume_from,
            SPOTD_NOTICE_FILE=self.notice,
            SPOTD_PROGRESS_FILE=self.progress,
            SPOTD_NODE_RANK=str(spec.rank),
            SPOTD_NUM_NODES=str(spec.num_nodes),
        )
        if spec.num_nodes > 1:
            address = spec.master_addr or ("127.0.0.1" if spec.rank == 0 else "")
            for prefix in ("", "PET_"):
                env.update(
                    {
                        f"{prefix}NODE_RANK": str(spec.rank),
                        f"{prefix}MASTER_ADDR": address,
                        f"{prefix}MASTER_PORT": str(spec.master_port),
                    }
                )
            env["PET_NNODES"] = str(spec.num_nodes)
        return env
