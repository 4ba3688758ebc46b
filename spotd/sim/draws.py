"""What one run is made of. Swarm: each run draws its own fault rates, and most runs leave several kinds out.

A run in which everything fails a little never gets far enough to fail in an interesting way, so every rate is zero in about half of the runs
(STYLE §7: TigerBeetle's VOPR draws its parameters in the same way and prints them first).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields

_OUT = 0.45


@dataclass(frozen=True, slots=True)
class Draws:
    """Rates are probabilities per question unless the name says `_per_day`; times are seconds unless it says hours."""

    # The world. ------------------------------------------------------------------------------------------------------
    jobs: int = 1
    regions: int = 1
    zones: int = 1
    types: int = 1
    #: Faults end then, and everything is healed.
    fault_hours: float = 6.0
    job_hours: float = 2.0
    checkpoint_s: float = 900.0
    observe_s: float = 120.0
    prices_s: float = 900.0
    listing_lag_s: float = 20.0
    boot_s: float = 60.0
    max_preemptions: int = 3
    max_run_hours: float = 168.0
    max_wait_s: float = 7200.0
    return_after_s: float = 3600.0
    idle_s: float = 900.0
    #: 0: the policy says never.
    replace_unreachable_s: float = 0.0
    price_cap: float = 0.0
    # The cloud's faults. ---------------------------------------------------------------------------------------------
    no_capacity: float = 0.0
    dry_pools: float = 0.0
    dies_pending: float = 0.0
    quota: int = 0
    throttled: float = 0.0
    launch_lost_reply: float = 0.0
    launch_never_executed: float = 0.0
    launch_executed_late: float = 0.0
    not_authorized_per_day: float = 0.0
    outcome_fails: float = 0.0
    outcome_pending: float = 0.0
    listing_fails: float = 0.0
    listing_stale: float = 0.0
    listing_hides_per_day: float = 0.0
    listing_slow: float = 0.0
    terminate_fails: float = 0.0
    terminate_lost_reply: float = 0.0
    terminate_slow_ack: float = 0.0
    terminate_slow_end: float = 0.0
    outages_per_day: float = 0.0
    price_moves_per_day: float = 4.0
    price_spikes: float = 0.0
    reclaims_per_day: float = 0.0
    zone_bursts_per_day: float = 0.0
    boot_reclaims: float = 0.0
    notice_late: float = 0.0
    notice_none: float = 0.0
    notice_cancelled: float = 0.0
    hints_per_day: float = 0.0
    maintenance_per_day: float = 0.0
    external_ends_per_day: float = 0.0
    strays_per_day: float = 0.0
    #: Also a channel of the provider's own tells of reclaims.
    channel: float = 0.0
    channel_loses: float = 0.0
    # The instance's faults. --------------------------------------------------------------------------------------------
    never_boots: float = 0.0
    blind_agents: float = 0.0
    hangs_per_day: float = 0.0
    agent_crashes_per_day: float = 0.0
    link_losses_per_day: float = 0.0
    reply_lost: float = 0.0
    setup_fails: float = 0.0
    job_errors: float = 0.0
    bit_rot: float = 0.0
    manifest_reply_lost: float = 0.0
    # The daemon's faults. ------------------------------------------------------------------------------------------------
    crashes_per_day: float = 0.0
    crash_after_commit: float = 0.0
    crash_after_call: float = 0.0
    store_fails: float = 0.0
    clock_steps_per_day: float = 0.0
    # What people do. -----------------------------------------------------------------------------------------------------
    cancels: float = 0.0
    policy_changes_per_day: float = 0.0

    def told(self) -> str:
        """The draws that differ from a quiet world, on one line."""
        quiet = Draws()
        pairs = ((f.name, getattr(self, f.name)) for f in fields(self))
        return " ".join(f"{name}={value:g}" for name, value in pairs if value != getattr(quiet, name)) or "(quiet)"


#: Fault rates and the ranges they are drawn from, low to high on a logarithmic scale.
FAULTS: dict[str, tuple[float, float]] = {
    "no_capacity": (0.02, 0.6),
    "dry_pools": (0.05, 0.7),
    "dies_pending": (0.02, 0.3),
    "throttled": (0.01, 0.3),
    "launch_lost_reply": (0.02, 0.5),
    "launch_never_executed": (0.02, 0.5),
    "launch_executed_late": (0.02, 0.4),
    "not_authorized_per_day": (0.5, 4.0),
    "outcome_fails": (0.02, 0.5),
    "outcome_pending": (0.05, 0.7),
    "listing_fails": (0.02, 0.6),
    "listing_stale": (0.05, 0.9),
    "listing_hides_per_day": (0.5, 12.0),
    "listing_slow": (0.02, 0.4),
    "terminate_fails": (0.02, 0.7),
    "terminate_lost_reply": (0.02, 0.5),
    "terminate_slow_ack": (0.02, 0.4),
    "terminate_slow_end": (0.02, 0.5),
    "outages_per_day": (0.5, 8.0),
    "price_spikes": (0.02, 0.4),
    "reclaims_per_day": (2.0, 40.0),
    "zone_bursts_per_day": (0.5, 12.0),
    "boot_reclaims": (0.02, 0.3),
    "notice_late": (0.05, 0.7),
    "notice_none": (0.05, 0.7),
    "notice_cancelled": (0.02, 0.4),
    "hints_per_day": (1.0, 20.0),
    "maintenance_per_day": (0.3, 4.0),
    "external_ends_per_day": (0.3, 4.0),
    "strays_per_day": (0.5, 6.0),
    "channel": (1.0, 1.0),
    "channel_loses": (0.05, 0.7),
    "never_boots": (0.02, 0.3),
    "blind_agents": (0.02, 0.5),
    "hangs_per_day": (0.5, 12.0),
    "agent_crashes_per_day": (1.0, 40.0),
    "link_losses_per_day": (1.0, 40.0),
    "reply_lost": (0.02, 0.5),
    "setup_fails": (0.02, 0.3),
    "job_errors": (0.1, 0.7),
    "bit_rot": (0.01, 0.2),
    "manifest_reply_lost": (0.02, 0.4),
    "crashes_per_day": (1.0, 60.0),
    "crash_after_commit": (0.005, 0.15),
    "crash_after_call": (0.01, 0.2),
    "store_fails": (0.005, 0.2),
    "clock_steps_per_day": (0.5, 8.0),
    "cancels": (0.1, 0.8),
    "policy_changes_per_day": (0.5, 6.0),
}


def draw(seed: int) -> Draws:
    """The draws of a seed."""
    values: dict[str, float] = {}
    for name, (low, high) in FAULTS.items():
        stream = random.Random(f"{seed}/draws/{name}")
        values[name] = 0.0 if stream.random() < _OUT else low * (high / low) ** stream.random()
    shape = random.Random(f"{seed}/draws/shape")
    return Draws(
        jobs=shape.choice((1, 1, 2, 2, 3)),
        regions=shape.choice((1, 2, 3)),
        zones=shape.choice((1, 2)),
        types=shape.choice((1, 1, 2)),
        fault_hours=shape.uniform(2.0, 9.0),
        job_hours=shape.uniform(0.3, 3.5),
        checkpoint_s=shape.choice((300.0, 900.0, 1800.0)),
        observe_s=shape.choice((60.0, 180.0, 300.0)),
        prices_s=shape.choice((600.0, 1800.0)),
        listing_lag_s=shape.choice((2.0, 20.0, 60.0)),
        boot_s=shape.choice((20.0, 60.0, 180.0)),
        max_preemptions=shape.choice((0, 1, 2, 3, 5)),
        max_run_hours=shape.choice((1.5, 4.0, 168.0, 168.0)),
        max_wait_s=shape.choice((600.0, 7200.0)),
        return_after_s=shape.choice((0.0, 1200.0, 3600.0)),
        idle_s=shape.choice((300.0, 900.0)),
        replace_unreachable_s=shape.choice((0.0, 0.0, 1800.0)),
        price_cap=shape.choice((0.0, 0.0, 2.0)),
        quota=shape.choice((0, 0, 0, 1, 3)),
        price_moves_per_day=shape.choice((0.0, 4.0, 24.0)),
        **values,
    )
