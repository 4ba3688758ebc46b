"""Deterministic identifiers.

Everything spotd creates in a cloud is named by a uuid5 of what it is for, so that a repeated request is byte-identical and a lost answer
can be looked up again (DESIGN §4 rule 1). Identifiers are not secrets; credentials are made elsewhere and never stored.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotd.core.offer import OfferKey

_NAMESPACE = uuid.UUID("5b0f6e0e-7d1c-5d6a-9a53-0f6d1c7f5a11")


def attempt_id(job_id: str, number: int) -> str:
    """The id of a job's attempt with this number (from 1)."""
    return str(uuid.uuid5(_NAMESPACE, f"attempt/{job_id}/{number}"))


def instance_id(deployment: str, attempt: str, rank: int, try_number: int, offer: OfferKey) -> str:
    """Our id of one try, which is also its client token (36 ASCII characters; EC2 allows 64, facts/reclaim.md §1.10).

    The zone and the market are part of it: EC2's idempotency is zonal, so the same token in another zone would launch a second instance
    without an error (facts/cloud-api.md §0.2). The try's number is part of it, so that an offer refused once and tried again later is a new
    request, while a request whose outcome is unknown keeps its number and is repeated byte for byte.
    """
    name = "/".join(("instance", deployment, attempt, str(rank), str(try_number), *offer.parts()))
    return str(uuid.uuid5(_NAMESPACE, name))


def jitter(*parts: str) -> float:
    """A number in [0, 1) that is the same for the same parts: ties and jitter are hashes, never dice."""
    return uuid.uuid5(_NAMESPACE, "/".join(("jitter", *parts))).int % 1_000_003 / 1_000_003
