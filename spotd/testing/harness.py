"""What the contract suite needs around a provider: a cloud that can be told what to do. Whoever writes a provider writes one of these."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Protocol, TypeVar

from spotd.core.instance import EndedBy
from spotd.core.offer import OfferKey
from spotd.ports import Clock, Provider

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Goods:
    """What the suite may buy. Each of the four has capacity, and its price is below `limit`."""

    spot: OfferKey
    #: On-demand in the region of `spot`.
    on_demand: OfferKey
    #: Spot in the region of `spot`, in another zone.
    other_zone: OfferKey
    #: Spot in another region.
    other_region: OfferKey
    #: USD per hour: the highest price that requests name.
    limit: Decimal


@dataclass(frozen=True, slots=True)
class Traits:
    """How this cloud is to be tested. The defaults suit a cloud behind HTTP."""

    #: A well-formed id that no instance has.
    absent_id: str
    #: A boot script that does no harm. The suite looks whether it turns up in logs or errors.
    user_data: str = "#!/bin/sh\n# credential-that-nobody-may-see\nexit 0\n"
    #: Between two looks, in seconds of the harness's clock, and how long something may take that was promised.
    step_s: float = 1.0
    patience_s: float = 300.0
    #: Real seconds within which a call that "returns at once" has returned.
    at_once_s: float = 5.0
    #: How many threads launch at the same moment; 1 where time is virtual and there is but one.
    threads: int = 8
    #: So many instances that a listing of them needs a second page, where the cloud has pages.
    many: int = 3
    #: What `ended_by` may say of an instance that we terminated. A cloud whose reason does not tell us from others adds EXTERNAL, and the loop,
    #: which knows what it asked for, decides (facts/reclaim.md §1.9).
    words_for_us: frozenset[EndedBy] = frozenset({EndedBy.US})
    #: Whether the cloud itself ends an instance at `expires_at`. If not, it is passed on all the same (a tag), for the sweep and for people.
    ends_at_expiry: bool = True
    #: Whether one region can be out of reach while another answers.
    regions_fail_apart: bool = True


class ProviderUnderTest(Protocol):
    """One account of one cloud, empty at first. A new one for every test; whoever makes it also cleans up behind it."""

    @property
    def goods(self) -> Goods:
        """What may be bought."""

    @property
    def traits(self) -> Traits:
        """How it is to be tested."""

    @property
    def clock(self) -> Clock:
        """The cloud's time."""

    @property
    def deployment(self) -> str:
        """Whose instances `provider()` sees."""

    def provider(self) -> Provider:
        """A new object for our deployment on this account, as a restarted daemon would build it."""

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass: step the clock where it can be stepped, sleep where it cannot."""

    def foreign(self, offer: OfferKey) -> str:
        """Launch an instance of another deployment on the same account; its id."""

    def reclaim(self, provider_id: str) -> None:
        """The cloud decides to take this running spot instance back, with its usual notice on every channel it has."""

    def exhaust(self) -> OfferKey:
        """Empty the pool of one spot offer, none of the goods', in their region; which one."""

    def break_region(self, region: str) -> AbstractContextManager[None]:
        """Within the context no call about this region reaches the cloud (or: what it says cannot be read). Instances live on."""

    def expiry_of(self, provider_id: str) -> datetime | None:
        """The end of life that the cloud has on its own record of this instance (a setting, a tag)."""


def eventually(cloud: ProviderUnderTest, answer: Callable[[], T | None], within_s: float | None = None) -> T:
    """What `answer` gives as soon as that is true, letting time pass between two looks. AssertionError when the patience is over."""
    patience = cloud.traits.patience_s if within_s is None else within_s
    end = cloud.clock.monotonic() + patience
    while not (found := answer()):
        if cloud.clock.monotonic() >= end:
            raise AssertionError(f"Still {found!r} after {patience:g} s.")
        cloud.pass_time(cloud.traits.step_s)
    return found
