"""What to do next between a notice and its deadline. Pure: everything known goes in, one step comes out."""

from __future__ import annotations

import dataclasses
import enum

_UPLOAD_MARGIN = 1.2
_MOST_UPLOAD_SHARE = 0.5  # of the notice; beyond that a save would never be waited for
_HOOK_GRACE_S = 5.0
_FEWEST_SAMPLES = 3


class Step(enum.Enum):
    """One thing to do."""

    WAIT = "wait"
    START_HOOK = "start hook"
    END_HOOK = "end hook"
    END_JOB = "end job"
    FINISH = "finish"  # the job is gone: upload what is new and report


class Hook(enum.Enum):
    """Where the hook stands."""

    NONE = "none"
    PENDING = "pending"
    RUNNING = "running"
    SAVED = "saved"  # exit 0
    FAILED = "failed"


@dataclasses.dataclass(frozen=True)
class View:
    """All that the decision rests on. Times are seconds on one monotonic clock."""

    now: float
    noticed_at: float
    deadline_at: float
    reserve_s: float
    job_running: bool
    hook: Hook
    announced_since: bool  # the job announced a checkpoint after the notice
    ever_announced: bool
    quiet: bool  # for jobs that never announce: the tree is at rest
    committed_since: bool  # a checkpoint was committed after the notice
    upload_s: float | None = None  # how long the last upload took
    save_s: float | None = None  # how long saves take, p95
    saving_since: float | None = None  # when the save that is under way began

    @property
    def save_by(self) -> float:
        """When saving must be over so that what was saved can still be uploaded."""
        given = max(0.0, self.deadline_at - self.noticed_at)
        upload = min((self.upload_s or 0.0) * _UPLOAD_MARGIN, given * _MOST_UPLOAD_SHARE)
        return self.deadline_at - self.reserve_s - upload

    @property
    def save_fits(self) -> bool:
        """Whether a save can be over in time, as far as one knows. One that was under way at the notice needs only its rest."""
        begun = self.noticed_at if self.saving_since is None else min(self.noticed_at, self.saving_since)
        return self.save_s is None or begun + self.save_s <= self.save_by

    @property
    def hook_grace_s(self) -> float:
        """How long the hook has between TERM and KILL."""
        return min(_HOOK_GRACE_S, 0.1 * max(0.0, self.deadline_at - self.noticed_at))


@dataclasses.dataclass(frozen=True)
class Decision:
    """A step and the reason for it, in words fit for `drained.detail`."""

    step: Step
    why: str


def decide(view: View) -> Decision:
    """Return what to do now."""
    if view.hook is Hook.RUNNING:
        if view.now >= view.save_by - view.hook_grace_s:
            return Decision(Step.END_HOOK, "the hook ran out of time")
        return Decision(Step.WAIT, "the hook is running")
    if not view.job_running:
        return Decision(Step.FINISH, "the job has ended")
    # Starting a save that cannot end in time costs the uploads that could (facts/reclaim.md §4.3, 4).
    if not view.announced_since and not view.save_fits:
        return Decision(Step.END_JOB, f"a save takes {view.save_s or 0.0:.1f} s, which does not fit")
    if view.now >= view.save_by:
        return Decision(Step.END_JOB, "no complete checkpoint came before the time was up")
    if view.hook is Hook.PENDING:
        return Decision(Step.START_HOOK, "")
    return _wait_or_end(view)


def _wait_or_end(view: View) -> Decision:
    """Return whether what the job or its hook saved is complete; there is time."""
    if view.announced_since:
        return Decision(Step.END_JOB, "the job announced a checkpoint")
    if view.ever_announced:
        return Decision(Step.WAIT, "the job may still announce a checkpoint")
    if view.hook is Hook.SAVED and view.quiet:
        return Decision(Step.END_JOB, "the hook saved and the checkpoint directory is at rest")
    if view.committed_since and view.quiet:
        return Decision(Step.END_JOB, "the job saved and its checkpoint is committed")
    return Decision(Step.WAIT, "the job may still save")


def p95(samples: list[float]) -> float | None:
    """Return the 95th percentile of *samples*, None while they are too few to say."""
    if len(samples) < _FEWEST_SAMPLES:
        return None
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
