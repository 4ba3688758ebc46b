"""What people do: submit, cancel, edit the policy."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from spotd.core.events import CancelRequested, JobSubmitted
from spotd.core.job import Job, JobSpec, Retries
from spotd.core.policy import Candidate, Policy, SpotHandlers
from spotd.sim.agents_api import NoAnswer
from spotd.sim.market import PROVIDER

if TYPE_CHECKING:
    from spotd.sim.shelf import Work
    from spotd.sim.world import Simulation

POLICY = "policy"
_AGAIN_S = 30.0


class Users:
    """They try again while the daemon does not answer."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim

    def policy(self) -> Policy:
        """The policy that this run's draws describe."""
        draws, bazaar = self._sim.draws, self._sim.cloud.bazaar
        return Policy(
            name=POLICY,
            candidates=(Candidate(PROVIDER, bazaar.types, bazaar.regions),),
            spot_handlers=SpotHandlers(max_preemptions=draws.max_preemptions),
            return_to_spot_after=timedelta(seconds=draws.return_after_s) if draws.return_after_s else None,
            max_hourly_price_usd=Decimal(str(draws.price_cap)) if draws.price_cap else None,
            max_wait=timedelta(seconds=draws.max_wait_s),
            max_run_duration=timedelta(hours=draws.max_run_hours),
            idle_timeout=timedelta(seconds=draws.idle_s),
            replace_when_unreachable=timedelta(seconds=draws.replace_unreachable_s) if draws.replace_unreachable_s else None,
        )

    def schedule(self, until_s: float) -> None:
        """What they will do."""
        sim, dice = self._sim, self._sim.dice
        for work in sim.works.values():
            when = dice.between("submits", 0.0, until_s / 3.0)
            sim.timeline.at(when, lambda work=work: self.submit(work))  # type: ignore[misc]  # bound now, called then
            if dice.chance("cancels", sim.draws.cancels):
                sim.timeline.at(dice.between("cancel when", when, until_s), lambda work=work: self.cancel(work.job_id))  # type: ignore[misc]
        for when in dice.times("policy changes", sim.draws.policy_changes_per_day, until_s):
            sim.timeline.at(when, self._edit)

    def submit(self, work: Work) -> None:
        """`spotd submit`."""
        sim = self._sim
        now = sim.clock.now()
        stream = sim.dice.stream(f"job {work.job_id}")
        retries = Retries(stream.choice((0, 1, 3)), (33,) if stream.random() < 0.5 else ())
        spec = JobSpec(work.name, POLICY, "python train.py", retries=retries)
        job = Job(work.job_id, spec, "alice", now, waiting_since=now)
        try:
            sim.host.record((JobSubmitted(now, job),))
        except NoAnswer:
            if work.job_id not in sim.store.jobs:
                sim.timeline.after(_AGAIN_S, lambda: self.submit(work))
                return
        sim.submitted.add(work.job_id)

    def cancel(self, job_id: str) -> None:
        """`spotd cancel`."""
        sim = self._sim
        if job_id not in sim.store.jobs:
            sim.timeline.after(_AGAIN_S, lambda: self.cancel(job_id))
            return
        if sim.host.up and job_id not in sim.host.engine.world.jobs:
            return
        try:
            sim.host.record((CancelRequested(sim.clock.now(), job_id, "alice"),))
        except NoAnswer:
            sim.timeline.after(_AGAIN_S, lambda: self.cancel(job_id))

    def _edit(self) -> None:
        """Ops edit the policy file; it is reloaded."""
        sim, dice = self._sim, self._sim.dice
        policy = sim.host.policies[POLICY]
        match dice.choice("edit", ("preemptions", "idle", "return", "run", "unreachable")):
            case "preemptions":
                handlers = replace(policy.spot_handlers, max_preemptions=dice.choice("edited", (0, 1, 3, 5)))
                policy = replace(policy, spot_handlers=handlers)
            case "idle":
                policy = replace(policy, idle_timeout=timedelta(seconds=dice.choice("edited", (300.0, 900.0, 1800.0))))
            case "return":
                policy = replace(policy, return_to_spot_after=dice.choice("edited", (None, timedelta(minutes=20), timedelta(hours=1))))
            case "run":
                policy = replace(policy, max_run_duration=timedelta(hours=dice.choice("edited", (1.5, 4.0, 168.0))))
            case _:
                policy = replace(policy, replace_when_unreachable=dice.choice("edited", (None, timedelta(minutes=30), timedelta(hours=1))))
        sim.story.say("ops", f"edit the policy: {policy}")
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """Put a policy in force."""
        sim = self._sim
        sim.host.policies[policy.name] = policy
        sim.policies_so_far.append(policy)
        if sim.host.up:
            sim.host.engine.use_policies(dict(sim.host.policies))
            sim.host.tell(())
