"""One machine of the simulated cloud as it really is: what listings say of it may be late, stale or missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from spotd.core.instance import EndedBy, LaunchRequest, ObservedInstance, ObservedState
from spotd.core.offer import OfferKey
from spotd.sim.timeline import stamp


@dataclass(slots=True)
class Reclaim:
    """The provider takes a machine back at `deadline_s`, unless that is cancelled."""

    decided_s: float
    deadline_s: float
    #: Whether the machine's metadata server tells it.
    told: bool
    cancelled: bool
    kind: Literal["reclaim", "maintenance"] = "reclaim"


@dataclass(slots=True, eq=False)
class Machine:
    """Ground truth."""

    provider_id: str
    offer: OfferKey
    #: None: not launched by this daemon (a stray of an earlier life, or somebody else's).
    request: LaunchRequest | None
    #: Whether it carries our deployment's tag.
    ours: bool
    created_s: float
    #: A listing shows it from here on at the earliest.
    visible_s: float
    running_s: float | None = None
    ending_s: float | None = None
    ended_s: float | None = None
    ended_by: EndedBy | None = None
    end_code: str = ""
    #: The first terminate call of ours that was carried out.
    terminated_s: float | None = None
    external_s: float | None = None
    acknowledged_s: float | None = None
    #: Listings wrongly lack it within this stretch.
    hidden: tuple[float, float] | None = None
    reclaim: Reclaim | None = None
    #: Every reclaim that was decided, cancelled ones too.
    reclaims: list[Reclaim] = field(default_factory=list)
    #: Who has asked for its end so far; the first one is who ended it.
    ending_for: EndedBy | None = None
    #: After its end: when its tags and its row vanish.
    tags_gone_s: float = 0.0
    row_gone_s: float = 0.0

    @property
    def token(self) -> str | None:
        """Our id of it, from its tags."""
        return None if self.request is None else self.request.token

    @property
    def region(self) -> str:
        """Where it is."""
        return self.offer.region

    @property
    def alive(self) -> bool:
        """Whether it may execute anything."""
        return self.ended_s is None

    @property
    def up(self) -> bool:
        """Whether its operating system runs and is not on its way down."""
        return self.running_s is not None and self.ending_s is None and self.ended_s is None

    def row(self, as_of_s: float, now_s: float) -> ObservedInstance | None:
        """What a listing says that is made now from a copy of the state as it was then. None: not in it."""
        if self.visible_s > as_of_s or (self.ended_s is not None and as_of_s >= self.row_gone_s):
            return None
        if self.hidden is not None and self.hidden[0] <= now_s < self.hidden[1]:
            return None
        ended = self.ended_s is not None and as_of_s >= self.ended_s
        if ended:
            state = ObservedState.GONE
        elif self.ending_s is not None and as_of_s >= self.ending_s:
            state = ObservedState.ENDING
        elif self.running_s is not None and as_of_s >= self.running_s:
            state = ObservedState.RUNNING
        else:
            state = ObservedState.PENDING
        began = self.running_s if self.running_s is not None and as_of_s >= self.running_s else None
        tagged = not (ended and as_of_s >= self.tags_gone_s)
        return ObservedInstance(
            provider_id=self.provider_id,
            token=self.token if tagged else None,
            region=self.offer.region,
            zone=self.offer.zone,
            state=state,
            launched_at=None if began is None else stamp(began),
            ended_at=stamp(self.ended_s) if ended and self.ended_s is not None else None,
            ended_by=self.ended_by if ended else None,
            end_code=self.end_code if ended else "",
        )
