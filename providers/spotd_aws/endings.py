"""Why an instance ended: the decision table of facts/reclaim.md §1.9. The reason of its state says who did it, the spot request what for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from spotd.core.errors import Misconfigured, NoCapacity, ProviderError, ProviderUnavailable, QuotaExceeded
from spotd.core.instance import EndedBy, ObservedState

if TYPE_CHECKING:
    from spotd_aws.machines import Machine

#: A spot request in one of these while its instance runs is a reclaim notice (facts/reclaim.md §1.8).
NOTICE_CODES = frozenset({
    "instance-terminated-no-capacity", "instance-terminated-by-price", "marked-for-termination", "marked-for-stop",
    "instance-terminated-launch-group-constraint", "instance-terminated-capacity-oversubscribed", "instance-terminated-by-experiment",
    "marked-for-stop-by-experiment",
})  # fmt: skip
_RECLAIMED = NOTICE_CODES | {"instance-stopped-no-capacity", "instance-stopped-by-price", "instance-stopped-by-experiment"}
#: How long after it the instance ends.
NOTICE = timedelta(seconds=120)

_STATES = {
    "pending": ObservedState.PENDING,
    "running": ObservedState.RUNNING,
    "shutting-down": ObservedState.ENDING,
    "stopping": ObservedState.ENDING,
    # A stopped one executes nothing, and is still there: it has to be ended like one that runs.
    "stopped": ObservedState.ENDING,
    "terminated": ObservedState.GONE,
}
_BY_REASON = {
    "Server.SpotInstanceTermination": EndedBy.RECLAIM,
    "Server.SpotInstanceShutdown": EndedBy.RECLAIM,
    "Server.InsufficientInstanceCapacity": EndedBy.NEVER_RAN,
    # "During launch", say the API's own words for both (botocore, StateReason).
    "Server.InternalError": EndedBy.NEVER_RAN,
    "Client.InternalError": EndedBy.NEVER_RAN,
    "Client.InvalidSnapshot.NotFound": EndedBy.NEVER_RAN,
    "Client.VolumeLimitExceeded": EndedBy.NEVER_RAN,
    # The same word for us and for somebody else: the loop knows what it asked for.
    "Client.UserInitiatedShutdown": EndedBy.EXTERNAL,
    "Client.UserInitiatedHibernate": EndedBy.EXTERNAL,
    "Client.InstanceInitiatedShutdown": EndedBy.GUEST,
    # Somebody made an image of it.
    "Client.InstanceTerminated": EndedBy.EXTERNAL,
    "Server.ScheduledStop": EndedBy.MAINTENANCE,
}
_MOMENT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


@dataclass(frozen=True, slots=True)
class Ending:
    """Who ended an instance, when as far as AWS says, and AWS's word for it."""

    by: EndedBy
    at: datetime | None
    code: str


def observed_state(machine: Machine) -> ObservedState:
    """Where it is in its life. ProviderUnavailable for a state that nobody knows: the listing is then not understood."""
    try:
        return _STATES[machine.state]
    except KeyError:
        raise ProviderUnavailable(f"{machine.instance_id} is in a state that spotd does not know: {machine.state}", "UnknownState") from None


def ending_of(machine: Machine, spot_status: str) -> Ending | None:
    """Why it ends or ended; None while it does not. `spot_status` is its spot request's code, empty where there is none or it is not known."""
    if observed_state(machine) in {ObservedState.PENDING, ObservedState.RUNNING}:
        return None
    by = _BY_REASON.get(machine.reason)
    code = machine.reason
    if by is None and spot_status in _RECLAIMED:
        by, code = EndedBy.RECLAIM, spot_status
    elif by is None and "by-user" in spot_status:
        by, code = EndedBy.EXTERNAL, spot_status
    return Ending(by or EndedBy.UNKNOWN, _moment(machine), code or spot_status)


def _moment(machine: Machine) -> datetime | None:
    """The time in the transition's text, if it can be one: not before the launch."""
    found = _MOMENT.search(machine.transition)
    if found is None:
        return None
    moment = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    if machine.launch_time is not None and moment < machine.launch_time:
        return None
    return moment


def launch_failure(machine: Machine) -> ProviderError | None:
    """What a launch that was accepted came to, if it never ran (facts/reclaim.md §1.9); None for one that ran or may yet."""
    if machine.state not in {"terminated", "shutting-down"}:
        return None
    match machine.reason:
        case "Server.InsufficientInstanceCapacity":
            return NoCapacity("there was no capacity when the instance was to start", machine.reason)
        case "Client.VolumeLimitExceeded":
            return QuotaExceeded("the limit of volumes was reached when the instance was to start", machine.reason)
        case "Client.InternalError" | "Client.InvalidSnapshot.NotFound":
            # Most often the key that encrypts its disk (facts/cloud-api.md §2.2): ops' to mend, and other regions may do.
            return Misconfigured("the instance could not start: look at its image's snapshot and at the key of its disk", machine.reason)
        case _:
            return None
