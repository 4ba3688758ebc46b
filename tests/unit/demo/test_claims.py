"""A claim that does not hold is said not to: each figure that could be wrong is made wrong once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spotd.demo import claims, killing, report, scene, witness
from spotd.demo.claims import Facts
from spotd.demo.killing import Killing
from spotd.demo.story import Story
from spotd.demo.weights import Weights
from spotd.demo.witness import Stint

BEGAN = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
#: Attempt, purpose, zone, market, reclaimed, from step, to step, started at.
WAY = (
    (1, "start", "us-west-2b", "spot", True, None, 70, 5),
    (2, "replace", "us-east-2a", "spot", True, 70, 300, 14),
    (3, "replace", "us-east-1c", "spot", True, 300, 400, 39),
    (4, "replace", "us-west-2a", "on-demand", False, 400, 500, 50),
    (5, "return", "us-east-2b", "spot", False, 500, scene.STEPS, 62),
)


def at(second: float) -> str:
    """An instant as the daemon writes it."""
    return (BEGAN + timedelta(seconds=second)).isoformat()


def shown() -> dict[str, Any]:
    """What the daemon answers about a job that went its way."""
    attempts, instances = [], []
    for number, purpose, zone, market, reclaimed, first, last, started in WAY:
        over = {4: "moved", 5: "exited"}.get(number, "reclaimed")
        attempts.append(
            {
                "number": number,
                "purpose": purpose,
                "market": market,
                "state": "ended",
                "reason": over,
                "detail": "",
                "preempted_at": at(started + 8) if reclaimed else None,
                "saved": True if number < 5 else None,
                "seconds_used": 0.4 if number < 5 else None,
                "seconds_given": 6.0 if number < 5 else None,
                "started_at": at(started),
                "resumed_step": first,
                "step": last,
                "checkpoint": f"{number:05d}-000003",
                "checkpoint_step": last,
                "loss": 0.1,
            }
        )
        offer = {"provider": "local", "region": zone[:-1], "zone": zone, "instance_type": "p3.2xlarge", "market": market}
        because = "3 preemptions, max_preemptions is 3: on-demand; cheapest" if number == 4 else "cheapest"
        instances.append(
            {
                "id": f"i{number}",
                "provider_id": f"local-{number}",
                "attempt": number,
                "try": 1,
                "offer": offer,
                "because": because,
                "state": "gone",
                "refusal": None,
                "notice": None,
                "spend_usd": "1.0",
            }
        )
    return {"job": {"outcome": "succeeded", "detail": "exit code 0 in attempt 5"}, "attempts": attempts, "instances": instances}


def facts(change: Callable[[dict[str, Any]], None] = lambda _: None) -> Facts:
    """The evidence of a run in which everything went well, but for one change in the daemon's answer."""
    answer = shown()
    change(answer)
    story = Story(BEGAN, shown=answer)
    stints = [Stint(1000 + number, (first or 0) + 1, last, float(started), started + 7.5) for number, *_, first, last, started in WAY]
    weights = Weights(scene.STEPS, {"w0.npy": b"\1\2", "state.npy": b"\3"}, "checkpoint 00005-000003")
    savings = {"spend_usd": "8.2", "baseline_usd": "15.6", "saving_usd": "7.4", "saving_pct": 47.4}
    return Facts(story, stints, savings, weights, copy.deepcopy(weights), "", [], daemon_stopped=True, killing=None, seconds=75.0)


def failed(found: Facts) -> list[str]:
    """The claims that do not hold."""
    examined = claims.examine(found)
    assert report.document(found, examined)["ok"] is all(claim.held for claim in examined)
    return [claim.claim for claim in examined if not claim.held]


def test_all_claims_hold_when_all_went_well() -> None:
    """Eleven claims, each with its evidence, and the figures that go with them."""
    found = claims.examine(facts())
    assert [claim for claim in found if not claim.held] == []
    assert len(found) == 11
    document = report.document(facts(), found)
    assert (document["preemptions"], document["saved_within_notice"], document["steps_redone"]) == (3, 3, 0)
    assert document["regions_used"] == ["us-west-2", "us-east-2", "us-east-1"]
    assert f"{scene.SPEED} seconds are billed" in "\n".join(report.lines(facts(), found))


def _attempt(number: int, **values: object) -> Callable[[dict[str, Any]], None]:
    return lambda answer: answer["attempts"][number - 1].update(values)


def _machine(number: int, **values: object) -> Callable[[dict[str, Any]], None]:
    return lambda answer: answer["instances"][number - 1].update(values)


@pytest.mark.parametrize(
    ("change", "claim"),
    [
        pytest.param(_attempt(3, preempted_at=None), "reclaimed three times, in three regions, by the recorded market", id="a reclaim too few"),
        pytest.param(
            _machine(3, offer={"region": "us-east-2", "zone": "us-east-2c"}),
            "reclaimed three times, in three regions, by the recorded market",
            id="two regions",
        ),
        pytest.param(_attempt(2, saved=False), "saved inside the notice, each time", id="nothing saved"),
        pytest.param(_attempt(2, seconds_used=6.1), "saved inside the notice, each time", id="too late"),
        pytest.param(_attempt(4, market="spot"), "fell back to on-demand at max_preemptions", id="no fallback"),
        pytest.param(_attempt(5, market="on-demand"), "returned to spot at a checkpoint boundary", id="no return"),
        pytest.param(_attempt(5, resumed_step=480), "returned to spot at a checkpoint boundary", id="resumed elsewhere"),
        pytest.param(_attempt(4, reason="lost"), "returned to spot at a checkpoint boundary", id="not moved"),
        pytest.param(_attempt(5, started_at=at(55)), "returned to spot at a checkpoint boundary", id="too soon"),
        pytest.param(lambda answer: answer["job"].update(outcome="failed"), "finished every step", id="failed"),
        pytest.param(_machine(5, state="running"), "nothing left behind", id="a machine runs on"),
    ],
)
def test_what_the_daemon_says_can_fail_a_claim(change: Callable[[dict[str, Any]], None], claim: str) -> None:
    """A reclaim too few, a save too late, no fallback, no return, no end: the claim about it fails."""
    assert claim in failed(facts(change))


def test_what_the_trainer_wrote_can_fail_a_claim() -> None:
    """Steps done twice beyond the promise, steps left out, and two processes at once are seen whatever the daemon says."""
    good = facts()
    one, two, *rest = good.stints
    assert failed(replace(good, stints=[one, replace(two, first=1), *rest])) == []
    twice = [one, replace(two, first=1), *(replace(s, first=s.first - 60) for s in rest)]
    assert failed(replace(good, stints=twice)) == ["lost at most one checkpoint interval each time"]
    assert failed(replace(good, stints=[one, replace(two, first=73), *rest])) == ["finished every step"]
    interleaved = [replace(one, last=50), replace(two, last=72), replace(one, first=51), replace(two, first=73), *rest]
    assert "never two workloads at once" in failed(replace(good, stints=interleaved))


def test_what_lies_on_the_disk_can_fail_a_claim() -> None:
    """One bit of one array, a process that is left, a daemon that hangs, money that was not saved, a clock that ran on."""
    good = facts()
    assert good.final is not None
    other = replace(good.final, arrays={**good.final.arrays, "w0.npy": b"\1\3"})
    assert failed(replace(good, final=other)) == ["final weights are bit-identical to an uninterrupted run"]
    assert failed(replace(good, final=None, weights_problem="gone")) == ["final weights are bit-identical to an uninterrupted run"]
    assert failed(replace(good, left_behind=["process 1 is left"])) == ["nothing left behind"]
    assert failed(replace(good, daemon_stopped=False)) == ["nothing left behind"]
    assert failed(replace(good, savings={**good.savings, "saving_usd": None})) == ["cheaper than on-demand"]
    assert failed(replace(good, seconds=120.0)) == ["under 120 seconds"]


def test_a_killed_daemon_must_find_the_very_same_run() -> None:
    """Another process, a second start or a stint that was broken off is no adoption."""
    good = facts()
    events = [{"kind": kind, "fields": {"instance_id": "i2"}} for kind in ("launch_succeeded", "workload_started")]
    good.story.events.extend(events)
    killed = Killing(2, "i2", "local-2", before=7, after=8, process=1002, step=100, process_after=1002, step_after=130, seconds=2.9)
    assert failed(replace(good, killing=killed)) == []
    (name,) = failed(replace(good, killing=replace(killed, process_after=1009)))
    assert name == killing.never_done().claim
    assert failed(replace(good, killing=replace(killed, step_after=100))) == [name]
    assert failed(replace(good, killing=replace(killed, instance="i9"))) == [name]
    good.story.events.append(events[1])
    assert failed(replace(good, killing=killed)) == [name]


def test_stints_are_told_apart_by_their_process(tmp_path: Any) -> None:
    """The record is read in the order of its clock; where two processes alternate, both are named."""
    path = tmp_path / "witness"
    assert witness.read(path) == []
    path.write_text("7 1.0 1\n7 1.1 2\n8 2.0 2\n8 2.1 3\n9 3.0 5\n")
    stints = witness.read(path)
    assert [(s.pid, s.first, s.last) for s in stints] == [(7, 1, 2), (8, 2, 3), (9, 5, 5)]
    assert (witness.redone(stints), witness.skipped(stints), witness.overlapping(stints)) == (1, 1, [])
    path.write_text("7 1.0 1\n8 1.05 1\n7 1.1 2\n")
    assert witness.overlapping(witness.read(path)) == [7]
