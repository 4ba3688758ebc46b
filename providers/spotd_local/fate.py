"""What becomes of one machine: marks, deadlines, orders. Pure: time and the market come in as values.

The order of events is AWS's (facts/reclaim.md §1.4): a mark (IMDS `spot/instance-action`, the provider's channel), the
machine still running; at the deadline it is shut down, with `Server.SpotInstanceTermination` as the reason. A mark is
not taken back because the zone has capacity again. An announced time may be in the past and the instance still there:
that is a cancelled reclaim (facts/reclaim.md §1.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spotd.core.instance import EndedBy
from spotd_local.record import Mark

if TYPE_CHECKING:
    from collections.abc import Mapping

RECLAIMED = "Server.SpotInstanceTermination"
TERMINATED = "Client.UserInitiatedShutdown"
POWERED_OFF = "Client.InstanceInitiatedShutdown"
#: Not AWS's: the lifetime in the launch request was over (as GCP's maxRunDuration).
EXPIRED = "Local.LifetimeOver"
#: Not AWS's: the machine's process was killed, or the host was rebooted. Nobody's decision (`EndedBy.UNKNOWN`): the job goes on elsewhere at once,
#: where after an end by somebody's hand it would wait.
MACHINE_LOST = "Local.MachineLost"

#: How long the operating system waits for services after TERM when it shuts down.
GRACE_S = 1.0


@dataclass(frozen=True, slots=True)
class End:
    """The end of a machine: whose doing, the code in its record, and the grace its processes get."""

    ended_by: EndedBy
    code: str
    grace_s: float = GRACE_S


@dataclass(slots=True)
class Fate:
    """One machine's. `end` is set once, and then nothing changes any more."""

    spot: bool
    notice_s: float
    expires_at: float
    mark: Mark | None = None
    rebalance_at: float | None = None
    end: End | None = None

    def obey(self, name: str, fields: Mapping[str, Any], now: float) -> None:
        """Take one order. Unknown ones are ignored: whoever runs inside the instance can write some."""
        if self.end is not None:
            return
        if name == "terminate":
            self.end = End(EndedBy(fields.get("by", EndedBy.US)), TERMINATED)
        elif name == "power-off":
            self.end = End(EndedBy.GUEST, POWERED_OFF)
        elif name == "rebalance" and self.rebalance_at is None:
            self.rebalance_at = now
        elif name == "reclaim" and self.spot:
            self._reclaim(fields, now)

    def observe(self, now: float, *, has_capacity: bool) -> None:
        """Let time pass. `has_capacity`: whether the market leaves this instance its place."""
        if self.end is not None:
            return
        if self.spot and not has_capacity and self.mark is None:
            self.mark = Mark(marked_at=now, deadline=now + self.notice_s)
        if now >= self.expires_at:
            self.end = End(EndedBy.US, EXPIRED)
        elif self.mark is not None and self.mark.unmark_at is not None:
            if now >= self.mark.unmark_at:
                self.mark = None
        elif self.mark is not None and now >= self.mark.deadline:
            self.end = End(EndedBy.RECLAIM, RECLAIMED)

    def _reclaim(self, fields: Mapping[str, Any], now: float) -> None:
        """An injected reclaim (`control.reclaim`)."""
        notice = float(fields.get("notice_s", self.notice_s))
        if fields.get("unannounced"):
            self.end = End(EndedBy.RECLAIM, RECLAIMED, grace_s=0)
        elif self.mark is None or self.mark.unmark_at is not None:
            cancelled_after = fields.get("cancelled_after_s")
            self.mark = Mark(
                marked_at=now,
                deadline=now + notice,
                imds=bool(fields.get("imds", True)),
                provider=bool(fields.get("provider", True)),
                unmark_at=None if cancelled_after is None else now + float(cancelled_after),
            )
