"""Who ended an instance: the decision table of facts/reclaim.md §1.9."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from spotd.core.errors import Misconfigured, NoCapacity, ProviderUnavailable, QuotaExceeded
from spotd.core.instance import EndedBy, ObservedState
from spotd_aws.endings import ending_of, launch_failure, observed_state
from spotd_aws.machines import Machine

LAUNCHED = datetime(2026, 1, 1, 10, tzinfo=UTC)


def _machine(state: str, reason: str = "", transition: str = "") -> Machine:
    return Machine("i-1", state, "us-west-2a", LAUNCHED, is_spot=True, reason=reason, transition=transition)


@pytest.mark.parametrize(
    ("reason", "spot", "by"),
    [
        ("Server.SpotInstanceTermination", "instance-terminated-no-capacity", EndedBy.RECLAIM),
        ("Server.SpotInstanceShutdown", "", EndedBy.RECLAIM),
        ("", "instance-terminated-by-price", EndedBy.RECLAIM),
        ("", "instance-terminated-by-experiment", EndedBy.RECLAIM),
        # Ended by a call after the notice: whose call decides the bill, and the loop knows of the notice anyway.
        ("Client.UserInitiatedShutdown", "instance-terminated-no-capacity", EndedBy.EXTERNAL),
        ("Client.UserInitiatedShutdown", "instance-terminated-by-user", EndedBy.EXTERNAL),
        ("", "spot-instance-terminated-by-user", EndedBy.EXTERNAL),
        ("Client.InstanceInitiatedShutdown", "instance-terminated-by-user", EndedBy.GUEST),
        ("Server.InsufficientInstanceCapacity", "", EndedBy.NEVER_RAN),
        ("Client.VolumeLimitExceeded", "", EndedBy.NEVER_RAN),
        ("Server.ScheduledStop", "", EndedBy.MAINTENANCE),
        ("Server.InternalError", "", EndedBy.NEVER_RAN),
        ("Client.InstanceTerminated", "", EndedBy.EXTERNAL),
        ("", "", EndedBy.UNKNOWN),
        ("Server.SomethingNew", "fulfilled", EndedBy.UNKNOWN),
    ],
)
def test_who_ended_it(reason: str, spot: str, by: EndedBy) -> None:
    """The reason of the state says who did it; where it says nothing, the spot request does; and what is not known stays unknown."""
    ending = ending_of(_machine("terminated", reason), spot)
    assert ending is not None
    assert ending.by is by


def test_what_lives_has_no_ending() -> None:
    """Also with a request that is marked: its two minutes are not over."""
    assert ending_of(_machine("running"), "instance-terminated-no-capacity") is None


@pytest.mark.parametrize(
    ("transition", "at"),
    [
        ("User initiated (2026-01-01 11:30:00 GMT)", datetime(2026, 1, 1, 11, 30, tzinfo=UTC)),
        ("User initiated (2026-01-01 11:30:00 UTC)", datetime(2026, 1, 1, 11, 30, tzinfo=UTC)),
        ("User initiated (2025-12-31 11:30:00 GMT)", None),
        ("Server.SpotInstanceTermination", None),
        ("", None),
    ],
)
def test_when_it_ended(transition: str, at: datetime | None) -> None:
    """Free text is taken only for a time that can be true."""
    ending = ending_of(_machine("terminated", "Client.UserInitiatedShutdown", transition), "")
    assert ending is not None
    assert ending.at == at


def test_a_state_that_nobody_knows_is_not_guessed() -> None:
    """A listing that is not understood proves nothing."""
    assert observed_state(_machine("stopped")) is ObservedState.ENDING
    with pytest.raises(ProviderUnavailable, match="hibernating"):
        observed_state(_machine("hibernating"))


def test_a_launch_that_died_while_pending_was_refused() -> None:
    """Accepted, and then there was no capacity: nothing ran, and the pool is short."""
    assert isinstance(launch_failure(_machine("terminated", "Server.InsufficientInstanceCapacity")), NoCapacity)
    assert isinstance(launch_failure(_machine("terminated", "Client.VolumeLimitExceeded")), QuotaExceeded)
    assert isinstance(launch_failure(_machine("terminated", "Client.InternalError")), Misconfigured)
    assert launch_failure(_machine("terminated", "Client.UserInitiatedShutdown")) is None
    assert launch_failure(_machine("pending")) is None
