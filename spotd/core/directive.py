"""What an agent is told at its next call: derived from the world, stored nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spotd.core.attempt import AttemptState, DrainKind, DrainOrder
from spotd.core.notice import NoticeKind
from spotd.core.tries import is_current

if TYPE_CHECKING:
    from datetime import datetime

    from spotd.core.attempt import Attempt
    from spotd.core.instance import Instance
    from spotd.core.world import World


@dataclass(frozen=True, slots=True)
class Directive:
    """Gate, drain order, stop and power-off, as the agents' API sends them (docs/agent-protocol.md)."""

    gate_open: bool
    drain: DrainOrder | None
    #: Seconds left of the drain order.
    drain_seconds: float | None
    #: End the job's processes now, without a report: `ended` or `superseded`.
    stop: str | None
    power_off: bool


#: A shutdown is the machine's own word: there is nobody to pass it on to.
_NOTICES = {NoticeKind.RECLAIM: DrainKind.RECLAIM, NoticeKind.MAINTENANCE: DrainKind.MAINTENANCE}
_NOTHING_LEFT = Directive(gate_open=False, drain=None, drain_seconds=None, stop="ended", power_off=True)


def directive(world: World, instance_id: str, now: datetime) -> Directive:
    """What the agent of this instance should do now. An instance nobody knows any more should end."""
    instance = world.instances.get(instance_id)
    attempt = None if instance is None else world.attempts.get(instance.attempt_id)
    if instance is None or attempt is None:
        return _NOTHING_LEFT
    if not is_current(attempt, instance):
        # Another try took its place: the attempt's gate and its orders are not for this machine.
        power_off = instance.terminate_requested_at is not None
        return Directive(gate_open=False, drain=None, drain_seconds=None, stop="superseded", power_off=power_off)
    job = world.jobs.get(attempt.job_id)
    over = attempt.ended or job is None or job.outcome is not None
    stop = None
    if over and attempt.stopped_at is None:
        stop = "ended" if job is None or job.outcome is not None else "superseded"
    drain = _drain(attempt, instance) if attempt.state is AttemptState.DRAINING else None
    return Directive(
        gate_open=attempt.state in {AttemptState.RUNNING, AttemptState.DRAINING} and attempt.may_have_run,
        drain=drain,
        drain_seconds=None if drain is None else max((drain.deadline - now).total_seconds(), 0.0),
        stop=stop,
        power_off=over and instance.terminate_requested_at is not None,
    )


def _drain(attempt: Attempt, instance: Instance) -> DrainOrder | None:
    """Our order, or what the provider told us about this machine: the earlier deadline counts.

    Its agent may be blind for what its metadata server says (facts/reclaim.md §0.2: channels fail one by one), so a warning that reached us by
    another channel is passed on. One that the agent has seen itself changes nothing there: a second cause only brings a deadline forward.
    """
    kind = None if instance.notice is None else _NOTICES.get(instance.notice.kind)
    if instance.notice is None or kind is None or instance.notice.deadline is None:
        return attempt.drain
    if attempt.drain is not None and attempt.drain.deadline <= instance.notice.deadline:
        return attempt.drain
    return DrainOrder(f"{attempt.id}/{kind.value}", kind, instance.notice.seen_at, instance.notice.deadline)


def wire_kind(kind: DrainKind) -> str:
    """The word the agent knows: to it a return is a move."""
    return DrainKind.MOVE.value if kind is DrainKind.RETURN else kind.value
