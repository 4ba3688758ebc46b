"""What DescribeInstances says, as values. Every question is paged to its end, or is no answer (facts/cloud-api.md §2.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from spotd.core.errors import ProviderUnavailable
from spotd_aws.tags import read_tags

if TYPE_CHECKING:
    from collections.abc import Iterator

_EMPTY: Mapping[str, str] = MappingProxyType({})
_PAGE = 1000
#: A token that comes again and again must not keep us for ever (facts/cloud-api.md §1.1).
_MOST_PAGES = 1000


@dataclass(frozen=True, slots=True)
class Machine:
    """One row."""

    instance_id: str
    #: pending, running, shutting-down, terminated, stopping or stopped.
    state: str
    zone: str
    #: When it was asked for; billing begins when it runs, moments later.
    launch_time: datetime | None
    is_spot: bool
    #: `Client.…` or `Server.…`; empty while it runs.
    reason: str = ""
    #: Free text with a time in it, such as "User initiated (2026-01-01 10:00:00 GMT)".
    transition: str = ""
    tags: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    #: What it was made with, for people.
    details: Mapping[str, str] = field(default_factory=lambda: _EMPTY)


def machines(client: Any, filters: Mapping[str, str]) -> list[Machine]:
    """Every instance of a region that fits the filters: complete, or ProviderUnavailable."""
    asked = {"Filters": [{"Name": name, "Values": [value]} for name, value in filters.items()], "MaxResults": _PAGE}
    return [read_machine(row) for page in pages(client.describe_instances, asked) for made in page["Reservations"] for row in made["Instances"]]


def pages(ask: Any, parameters: Mapping[str, Any]) -> Iterator[Any]:
    """Every page of an answer. All parameters are repeated with each token; an empty one is the end."""
    token: str | None = None
    for _ in range(_MOST_PAGES):
        page = ask(**parameters, **({"NextToken": token} if token else {}))
        yield page
        following = page.get("NextToken")
        if not following:
            return
        if following == token:
            break
        token = following
    raise ProviderUnavailable("AWS goes on with the same page for ever", "Pagination")


def read_machine(row: Any) -> Machine:
    """One row of an answer. KeyError and the like where it lacks what every instance has: the whole answer is then worth nothing."""
    placed = row.get("Placement") or {}
    return Machine(
        instance_id=str(row["InstanceId"]),
        state=str(row["State"]["Name"]),
        zone=str(placed.get("AvailabilityZone") or ""),
        launch_time=row.get("LaunchTime"),
        is_spot=row.get("InstanceLifecycle") == "spot",
        reason=str((row.get("StateReason") or {}).get("Code") or ""),
        transition=str(row.get("StateTransitionReason") or ""),
        tags=MappingProxyType(dict(read_tags(row.get("Tags") or ()))),
        details=MappingProxyType(dict(_details(row))),
    )


def _details(row: Any) -> Iterator[tuple[str, str]]:
    for name, key in (("image", "ImageId"), ("vpc", "VpcId"), ("subnet", "SubnetId"), ("address", "PrivateIpAddress"), ("key", "KeyName")):
        if row.get(key):
            yield name, str(row[key])
    groups = [str(group.get("GroupId")) for group in row.get("SecurityGroups") or ()]
    if groups:
        yield "security groups", " ".join(groups)
    profile = row.get("IamInstanceProfile")
    if profile:
        yield "instance profile", str(profile.get("Arn"))
