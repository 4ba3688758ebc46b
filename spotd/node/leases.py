"""When an instance ends itself although nobody told it to. Pure.

Every instance is owned or ended (DESIGN §4, rule 4), and a daemon that may replace what it cannot reach relies on
``stop_when_unreachable_s``: after that silence no workload runs here any more.
"""

from __future__ import annotations

import dataclasses

_FAREWELL_S = 60.0  # for the daemon to hear how a drain of our own ended, before the power goes
_FENCE_MARGIN_S = 60.0


@dataclasses.dataclass(frozen=True)
class View:
    """What the decision rests on; seconds."""

    phase: str
    age_s: float  # since the agent's first start here
    silence_s: float  # since the last request that the daemon answered
    idle_s: float  # since the job ended, 0 while it has not
    told_off: bool  # the daemon said power_off
    own_drain: str | None  # the lease that this agent drained for
    unsaid: bool  # messages wait for acknowledgement
    idle_timeout_s: float
    max_lifetime_s: float
    stop_when_unreachable_s: float | None


@dataclasses.dataclass(frozen=True)
class Due:
    """*what* is ``drain`` or ``power_off``."""

    what: str
    why: str


_ENDED = ("drained", "exited", "failed", "stopped")


def due(view: View) -> Due | None:
    """Return what a lease demands now, None while all hold."""
    ended = view.phase in _ENDED
    if view.told_off:
        return Due("power_off", "told")
    if view.phase == "draining":
        return None
    if ended and view.own_drain is not None and (not view.unsaid or view.idle_s >= _FAREWELL_S):
        return Due("power_off", view.own_drain)
    if (ended or view.phase == "ready") and min(view.silence_s, view.idle_s if ended else view.silence_s) >= view.idle_timeout_s:
        return Due("power_off", "idle")
    if view.age_s >= view.max_lifetime_s:
        return Due("drain" if view.phase == "running" else "power_off", "lifetime")
    if view.stop_when_unreachable_s is not None and view.silence_s >= view.stop_when_unreachable_s:
        return Due("drain" if view.phase == "running" else "power_off", "unreachable")
    return None


def fence_s(stop_when_unreachable_s: float | None, notice_s: float) -> float | None:
    """Return the silence after which the shim ends the job by itself: later than a living agent would have, in case there is none."""
    return None if stop_when_unreachable_s is None else stop_when_unreachable_s + notice_s + _FENCE_MARGIN_S
