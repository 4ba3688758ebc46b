"""The tags by which an instance is ours (DESIGN §4 rule 4), put on it in the launch call itself (facts/cloud-api.md §2.1)."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spotd.core.instance import LaunchRequest

DEPLOYMENT = "spotd:deployment"
TOKEN = "spotd:token"  # noqa: S105 - a tag's key
REQUEST = "spotd:request"
EXPIRES = "spotd:expires"
#: How the names of a self-test's deployments begin.
SELFTEST = "selftest-"
_JOB, _JOB_NAME, _ATTEMPT, _RANK = "spotd:job", "spotd:job-name", "spotd:attempt", "spotd:rank"
#: EC2 takes 256 by its documentation and 255 by its errors (facts/cloud-api.md §2.1).
_LONGEST_VALUE = 255


def fingerprint(request: LaunchRequest) -> str:
    """Tells whether two requests are the same one: what EC2 compares differs between two calls where an image's parameter has moved on."""
    values = {
        "token": request.token,
        "deployment": request.deployment,
        "job": request.job_id,
        "name": request.job_name,
        "attempt": request.attempt,
        "rank": request.rank,
        "offer": request.offer.parts(),
        "max_price": None if request.max_price_usd_per_hour is None else str(request.max_price_usd_per_hour),
        "expires": request.expires_at.isoformat(),
        "labels": dict(request.labels),
        "disk_gb": request.disk_gb,
        "instance_profile": request.instance_profile,
        "agent": request.agent_sha256,
    }
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def tags_of(request: LaunchRequest) -> list[dict[str, str]]:
    """Everything that an instance, its disk and its spot request are tagged with; user labels under their own names."""
    own = {
        DEPLOYMENT: request.deployment,
        TOKEN: request.token,
        REQUEST: fingerprint(request),
        EXPIRES: request.expires_at.isoformat(),
        _JOB: request.job_id,
        _JOB_NAME: request.job_name,
        _ATTEMPT: str(request.attempt),
        _RANK: str(request.rank),
        "Name": f"spotd {request.job_name} {request.attempt}",
    }
    return [{"Key": key, "Value": value[:_LONGEST_VALUE]} for key, value in {**request.labels, **own}.items()]


def read_tags(rows: Iterable[Any]) -> Mapping[str, str]:
    """Tags of an answer, by key. Rows that are none are left out."""
    return {str(row["Key"]): str(row.get("Value", "")) for row in rows if isinstance(row, dict) and "Key" in row}
