"""Our instances in one region, and the reclaims that their spot requests tell of: the third channel beside metadata and queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from spotd.core.errors import ProviderError
from spotd.core.instance import EndedBy, ObservedInstance, ObservedState
from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd_aws.endings import NOTICE, NOTICE_CODES, Ending, ending_of, observed_state
from spotd_aws.errors import reads
from spotd_aws.machines import Machine, machines, pages
from spotd_aws.tags import DEPLOYMENT, TOKEN

if TYPE_CHECKING:
    from spotd_aws.clients import Clients

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class SpotStatus:
    """What the request behind a spot instance says."""

    code: str
    since: datetime | None


class Listing:
    """Lists, and passes on the reclaims it sees."""

    def __init__(self, clients: Clients, deployment: str, saw: Callable[[str, Notice], None], now: Callable[[], datetime]) -> None:
        self._clients = clients
        self._deployment = deployment
        self._saw = saw
        self._now = now

    def instances(self, region: str) -> Sequence[ObservedInstance]:
        """Every instance with our tag, complete, or a ProviderError."""
        ec2 = self._clients.get("ec2", region)
        with reads("listing instances", region):
            found = machines(ec2, {f"tag:{DEPLOYMENT}": self._deployment})
            statuses = self._statuses(ec2, region) if any(machine.is_spot for machine in found) else {}
            rows = [_observed(machine, region, statuses.get(machine.instance_id), self._now()) for machine in found]
        for row in rows:
            status = statuses.get(row.provider_id)
            if status is not None and status.code in NOTICE_CODES and row.state in {ObservedState.PENDING, ObservedState.RUNNING}:
                self._saw(row.provider_id, self._notice(status))
        return rows

    def _statuses(self, ec2: Any, region: str) -> Mapping[str, SpotStatus]:
        """By instance. Where they cannot be had, the listing is as good as without them: the reason of the state says most."""
        asked = {"Filters": [{"Name": f"tag:{DEPLOYMENT}", "Values": [self._deployment]}], "MaxResults": _PAGE}
        try:
            with reads("looking at spot requests", region):
                rows = [row for page in pages(ec2.describe_spot_instance_requests, asked) for row in page["SpotInstanceRequests"]]
        except ProviderError:
            return {}
        found = {}
        for row in rows:
            status = row.get("Status") or {}
            if row.get("InstanceId") and status.get("Code"):
                found[str(row["InstanceId"])] = SpotStatus(str(status["Code"]), status.get("UpdateTime"))
        return found

    def _notice(self, status: SpotStatus) -> Notice:
        now = self._now()
        marked_at = now if status.since is None else min(status.since, now)
        return Notice(NoticeKind.RECLAIM, NoticeSource.PROVIDER, now, marked_at + NOTICE)


def _ended_at(ending: Ending, status: SpotStatus | None, now: datetime) -> datetime:
    """When it ended, as well as can be told: EC2 has no field for it. Never later than now, so at most the listing's period too late."""
    if ending.at is not None:
        return min(ending.at, now)
    if status is None or status.since is None:
        return now
    if ending.by is EndedBy.RECLAIM:
        # The request changed with the notice, two minutes before the end (facts/reclaim.md §0.3).
        return min(status.since + NOTICE, now)
    if status.code.startswith("instance-terminated") and status.code not in NOTICE_CODES:
        return min(status.since, now)
    return now


def _observed(machine: Machine, region: str, status: SpotStatus | None, now: datetime) -> ObservedInstance:
    ending = ending_of(machine, "" if status is None else status.code)
    never_ran = machine.state == "pending" or (ending is not None and ending.by is EndedBy.NEVER_RAN)
    return ObservedInstance(
        provider_id=machine.instance_id,
        # Tags vanish before the row does (facts/reclaim.md §1.9).
        token=machine.tags.get(TOKEN),
        region=region,
        zone=machine.zone,
        state=observed_state(machine),
        launched_at=None if never_ran else machine.launch_time,
        ended_at=None if ending is None else _ended_at(ending, status, now),
        ended_by=None if ending is None else ending.by,
        end_code="" if ending is None else ending.code,
    )
