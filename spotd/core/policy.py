"""What ops intend, as values. Files are parsed into these by `spotd.config`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Candidate:
    """Capacity a policy allows: every named type in every named region of one provider."""

    provider: str
    instance_types: tuple[str, ...]
    #: In order of preference among equals.
    regions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SpotHandlers:
    """What to do about reclaims."""

    pre_reclaim_hook: str | None = None
    #: On-demand once this many preemptions are counted within the window.
    max_preemptions: int = 3
    #: None: since the job last returned to spot.
    preemption_window: timedelta | None = None
    #: Instance type to fall back to; None: the cheapest allowed on-demand offer.
    fallback_node: str | None = None
    #: Regions for candidates that name none, in order of preference among equals.
    region_failover: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy file, parsed and completed with defaults."""

    name: str
    candidates: tuple[Candidate, ...]
    spot_handlers: SpotHandlers = SpotHandlers()
    #: None: never.
    return_to_spot_after: timedelta | None = timedelta(hours=1)
    #: Per instance; None: no cap beyond the on-demand price.
    max_hourly_price_usd: Decimal | None = None
    #: An offer whose price is older than this is not bought.
    max_price_age: timedelta = timedelta(hours=24)
    #: Pending longer than this on spot alone: on-demand.
    max_wait: timedelta = timedelta(hours=2)
    #: An attempt is moved before it runs longer than this.
    max_run_duration: timedelta = timedelta(days=7)
    #: An instance without a running job is ended after this.
    idle_timeout: timedelta = timedelta(minutes=15)
    #: The cloud's identity that instances get; None: as the provider is configured, by default none.
    instance_profile: str | None = None
    #: None: never. Otherwise an instance that neither its agent nor its provider answers for is presumed stopped after this.
    replace_when_unreachable: timedelta | None = None
