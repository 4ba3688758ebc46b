"""A day's work: a real daemon, real machines, a real training job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spotd_local import control
from tests.e2e.world import World, one_at_a_time, uninterrupted, world


@pytest.fixture(name="house")
def _house() -> Iterator[World]:
    with world() as made:
        yield made


def test_reclaimed_with_notice_it_saves_goes_on_elsewhere_and_ends_the_same(house: World) -> None:
    """One reclaim costs no step: saved within the notice, another region, the weights of an undisturbed run, and the books balance."""
    job = house.train("spirals", 100)
    house.steps("spirals", 30)
    first = house.instance(job, 1)
    control.reclaim(house.cloud, first)
    answer = house.finished(job)

    one, two = answer["attempts"]
    assert (one["reason"], one["saved"], two["reason"]) == ("reclaimed", True, "exited")
    assert one["seconds_used"] < one["seconds_given"] <= 3.1
    assert two["resumed_step"] == one["step"]
    assert len({i["offer"]["region"] for i in answer["instances"]}) == 2
    assert answer["job"]["preemptions"] == 1
    lines = house.witness("spirals")
    one_at_a_time(lines, 100, {c["step"]: c for c in answer["checkpoints"]})
    assert [line.step for line in lines] == list(range(1, 101))
    assert house.weights(job) == uninterrupted(100)
    house.at_peace()
