"""`kill -9` of the daemon in every state that a job can be in: the next one adopts what it finds, and the job does not notice."""

from __future__ import annotations

import contextlib
import signal

import pytest

from spotd.cli.refusal import Away
from spotd_local import control
from tests.e2e.world import POLICY, World, one_at_a_time, uninterrupted, world

STEPS = 60

#: Runs in the daemon's process before it starts: it dies at a provider call, on its first one, before or after what the call does.
DIES = """
import os, signal
from spotd_local.provider import LocalProvider as P
call = P.{call}
def dies(*arguments):
    {after}
    os.kill(os.getpid(), signal.SIGKILL)
P.{call} = dies
"""


def dies(call: str, *, after: bool) -> str:
    """A daemon that is killed in its first call of this name: as the request goes out, or when the cloud has done it and the answer is lost."""
    return DIES.format(call=call, after="call(*arguments)" if after else "pass")


def identity(house: World, job: str) -> list[tuple[str, str, str]]:
    """Which attempts and machines a job has had: the same after an adoption."""
    answer = house.show(job)
    attempts = {a["number"]: a["id"] for a in answer["attempts"]}
    return [(attempts[i["attempt"]], i["id"], i["offer"]["zone"]) for i in answer["instances"]]


def ended_well(house: World, job: str, attempts: int = 1) -> None:
    """Finished in so many attempts, with the right weights, no step done by two processes at once, and nothing left."""
    answer = house.finished(job)
    assert len(answer["attempts"]) == len(answer["instances"]) == attempts, answer
    one_at_a_time(house.witness("job"), STEPS)
    assert house.weights(job) == uninterrupted(STEPS)
    house.at_peace()


@pytest.mark.parametrize("after", [False, True], ids=["request lost", "answer lost"])
def test_killed_with_the_launch_in_flight(after: bool) -> None:
    """PLACED: whether or not the call got through, the next daemon ends up with the one machine that was meant, under the same token."""
    with world(start=False) as house:
        house.start(dies("launch", after=after))
        with contextlib.suppress(Away):  # it may die before it has answered, too
            house.train("job", STEPS)
        assert house.daemon.wait(timeout=30) == -signal.SIGKILL
        job = house.newest_job()
        assert [r.token for r in house.records()] == house.tokens(job)[: 1 if after else 0]
        house.start()
        assert len(house.tokens(job)) == 1
        ended_well(house, job)
        assert [r.token for r in house.records()] == house.tokens(job)


def test_killed_while_the_machine_boots() -> None:
    """BOOTING: the agent comes up, waits for somebody to answer, and is let through the gate by the next daemon."""
    with world(boot_delay_s=0.5) as house:
        job = house.train("job", STEPS)
        house.attempt(job, 1, "booting")
        before = identity(house, job)
        house.kill()
        house.start()
        assert identity(house, job) == before
        ended_well(house, job)
        assert identity(house, job) == before


def test_killed_while_the_job_runs() -> None:
    """RUNNING: the job steps on while there is no daemon, and its output and checkpoints of that time arrive later."""
    with world() as house:
        job = house.train("job", STEPS)
        house.steps("job", 5)
        before = identity(house, job)
        house.kill()
        house.steps("job", 30)
        house.start()
        assert identity(house, job) == before
        ended_well(house, job)
        assert identity(house, job) == before
        # Checkpoint 20 was pruned by the job before anybody could take it; the last one is taken in any case.
        assert house.show(job)["checkpoints"][-1]["step"] == STEPS
        log = house.cli("logs", job).out
        assert "step 50/60" in log


def test_killed_during_the_notice() -> None:
    """DRAINING, and its replacement READY at the gate: the next daemon lets it through when the old one has reported, not before."""
    with world(notice_s=8) as house:
        house.policy("slow", POLICY + "  pre_reclaim_hook: sleep 4\n")
        house.until(lambda: any(p["name"] == "slow" for p in house.client.get("/v1/policies")["policies"]), "the policy is loaded")
        job = house.train("job", STEPS, policy="slow")
        house.steps("job", 25)
        control.reclaim(house.cloud, house.instance(job, 1))
        house.attempt(job, 2, "ready")
        assert house.attempts(job)[0]["state"] == "draining"
        before = identity(house, job)
        house.kill()
        house.start()
        assert identity(house, job) == before
        ended_well(house, job, attempts=2)
        one, two = house.attempts(job)
        assert (one["reason"], one["saved"]) == ("reclaimed", True)
        assert two["resumed_step"] == one["checkpoint_step"] == one["step"]
        assert identity(house, job) == before


@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["request lost", "answer lost"])
def test_killed_while_it_ends_an_instance(after: bool) -> None:
    """Terminating: the next daemon asks again until the machine is gone."""
    with world(start=False) as house:
        house.start(dies("terminate", after=after))
        job = house.train("job", STEPS, pace_s=0.0)
        assert house.daemon.wait(timeout=60) == -signal.SIGKILL
        house.start()
        ended_well(house, job)
        assert [r.ended_by for r in house.records()] in (["us"], ["guest"])  # told that all was heard, the agent powers off by itself


@pytest.mark.slow
def test_killed_again_and_again() -> None:
    """Three daemons that die as soon as they answer, and one that lives, get a job through."""
    with world() as house:
        job = house.train("job", STEPS, pace_s=0.1)
        for _ in range(3):
            house.kill()
            house.start()
        ended_well(house, job)
