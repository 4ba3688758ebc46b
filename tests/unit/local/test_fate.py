"""What becomes of a machine, second by second."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from spotd.core.instance import EndedBy
from spotd_local.fate import EXPIRED, POWERED_OFF, RECLAIMED, TERMINATED, Fate


@dataclass
class Life:
    """A fate and a clock to step."""

    fate: Fate = field(default_factory=lambda: Fate(spot=True, notice_s=6.0, expires_at=1e9))
    now: float = 1000.0

    def pass_(self, seconds: float, *, has_capacity: bool = True) -> Life:
        """Let seconds pass."""
        self.now += seconds
        self.fate.observe(self.now, has_capacity=has_capacity)
        return self

    def order(self, name: str, **fields: Any) -> Life:
        """Give an order now."""
        self.fate.obey(name, fields, self.now)
        return self


def test_a_zone_without_capacity_marks_the_instance_and_takes_it_at_the_deadline() -> None:
    """The mark comes at once, with a deadline one notice away; until then the machine runs (facts/reclaim.md §1.4)."""
    life = Life().pass_(1, has_capacity=False)
    assert life.fate.mark is not None
    assert (life.fate.mark.marked_at, life.fate.mark.deadline) == (1001, 1007)
    assert life.pass_(5.9, has_capacity=False).fate.end is None
    end = life.pass_(0.1, has_capacity=False).fate.end
    assert end is not None
    assert (end.ended_by, end.code) == (EndedBy.RECLAIM, RECLAIMED)


def test_capacity_that_comes_back_saves_nobody() -> None:
    """A mark stands, whatever the market does afterwards."""
    life = Life().pass_(1, has_capacity=False).pass_(1, has_capacity=True)
    assert life.pass_(5).fate.end is not None


def test_on_demand_is_never_reclaimed() -> None:
    """Neither by the market nor by order."""
    life = Life(Fate(spot=False, notice_s=6.0, expires_at=1e9))
    life.order("reclaim").order("reclaim", unannounced=True).pass_(1, has_capacity=False).pass_(1e6, has_capacity=False)
    assert (life.fate.mark, life.fate.end) == (None, None)


def test_an_injected_reclaim_is_like_the_markets_with_its_own_notice() -> None:
    """Late notices are short ones."""
    life = Life().order("reclaim", notice_s=2.0)
    assert life.fate.mark is not None
    assert life.pass_(1.9).fate.end is None
    assert life.pass_(0.1).fate.end is not None


def test_an_unannounced_reclaim_is_a_power_cut() -> None:
    """No mark, no grace."""
    end = Life().order("reclaim", unannounced=True).fate.end
    assert end is not None
    assert (end.code, end.grace_s) == (RECLAIMED, 0)


def test_a_cancelled_reclaim_passes_its_deadline_and_goes_away() -> None:
    """The announced time is in the past, the instance lives, and some time later the mark is gone (facts/reclaim.md §1.3)."""
    life = Life().order("reclaim", notice_s=2.0, cancelled_after_s=5.0).pass_(3)
    assert life.fate.mark is not None
    assert life.pass_(2).fate.mark is None
    assert life.fate.end is None
    assert life.pass_(1, has_capacity=False).fate.mark is not None, "it can be reclaimed later"


def test_a_second_reclaim_does_not_move_the_deadline() -> None:
    """There is one mark at a time, and its deadline is the one announced."""
    life = Life().order("reclaim", notice_s=4.0).pass_(1, has_capacity=False).order("reclaim", notice_s=60.0)
    assert life.fate.mark is not None
    assert life.fate.mark.deadline == 1004


@pytest.mark.parametrize(
    ("order", "fields", "ended_by", "code"),
    [
        ("terminate", {}, EndedBy.US, TERMINATED),
        ("terminate", {"by": "external"}, EndedBy.EXTERNAL, TERMINATED),
        ("power-off", {}, EndedBy.GUEST, POWERED_OFF),
    ],
)
def test_who_ended_it_is_recorded(order: str, fields: dict[str, str], ended_by: EndedBy, code: str) -> None:
    """With AWS's code for it, because billing and preemption counts hang on that (facts/reclaim.md §1.9, §1.11)."""
    end = Life().order(order, **fields).fate.end
    assert end is not None
    assert (end.ended_by, end.code) == (ended_by, code)


def test_a_terminate_after_a_notice_is_ours() -> None:
    """AWS bills it as ours, even though a reclaim was coming (facts/reclaim.md §1.9)."""
    end = Life().pass_(1, has_capacity=False).order("terminate").pass_(10).fate.end
    assert end is not None
    assert end.code == TERMINATED


def test_nothing_outlives_its_request() -> None:
    """The lifetime in the launch request is a lock of its own."""
    end = Life(Fate(spot=False, notice_s=6.0, expires_at=1010.0)).pass_(10).fate.end
    assert end is not None
    assert end.code == EXPIRED


def test_a_rebalance_hint_is_remembered_and_ends_nothing() -> None:
    """It stays set, at the time of the first one."""
    life = Life().order("rebalance").pass_(5).order("rebalance").pass_(1000)
    assert (life.fate.rebalance_at, life.fate.end) == (1000.0, None)
