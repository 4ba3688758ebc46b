"""Rules 2, 3, 4 and 5: gone is proved, healthy workloads are left alone, every machine of ours is ended and nobody else's is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotd.core.attempt import EndReason
from spotd.core.events import NoticeSeen
from spotd.core.instance import InstanceState
from spotd.core.notice import NoticeKind, NoticeSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spotd.core.events import Event
    from spotd.core.instance import ObservedInstance
    from spotd.core.world import Changes
    from spotd.sim.agent import Agent
    from spotd.sim.checks import Checks
    from spotd.sim.machine import Machine

#: A listing may lag by this much, and the daemon's clock may run fast by a twentieth while its wall clock was stepped.
_YOUNG_S = 560.0
#: With this much warning a daemon that can reach an agent has had time to make it stop.
_ENOUGH_S = 60.0


class Endings:
    """Looks at every end that the daemon brings about."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        #: Machines whose agents began to drain, and for what.
        self.drains: dict[str, list[str]] = {}

    # Rule 5 and the fence ------------------------------------------------------------------------------------------------------

    def committed(self, events: Sequence[Event], changes: Changes) -> None:
        """What is stored as gone must be gone."""
        cloud = self._checks.sim.cloud
        for row in changes.instances:
            if row.state is InstanceState.GONE:
                machine = cloud.by_token.get((row.request.offer.zone, row.id))
                if machine is not None and machine.alive:
                    self._checks.violated("gone", f"{machine.provider_id} is stored as gone ({row.end_code or row.refusal}) and is alive")
        for event in events:
            if isinstance(event, NoticeSeen) and event.notice.kind is NoticeKind.RECLAIM and event.notice.source is NoticeSource.PROVIDER:
                self._expect_drain(event.instance_id)

    def listed(self, region: str, rows: Sequence[ObservedInstance]) -> None:
        """The simulated cloud itself must not show what is not ours."""
        for row in rows:
            if not self._checks.sim.cloud.machines[row.provider_id].ours or row.region != region:
                self._checks.violated("simulator", f"{row.provider_id} is not ours and was listed")

    # Rule 3 ----------------------------------------------------------------------------------------------------------------------

    def terminate_executed(self, machine: Machine) -> None:
        """Whose workload runs and who is well is not ended because calls failed or the daemon died."""
        sim = self._checks.sim
        if sim.witness.on(machine) is None or machine.request is None:
            return
        if not self._may_end(machine):
            row = sim.store.instances.get(machine.request.token)
            because = "" if row is None else row.terminate_because
            self._checks.violated("healthy", f"{machine.provider_id} is ended while its workload runs well ({because})")

    def _may_end(self, machine: Machine) -> bool:
        sim = self._checks.sim
        row = sim.store.instances.get(machine.token or "")
        job = None if row is None else sim.store.jobs.get(row.job_id)
        attempt = None if row is None else sim.store.attempts.get(row.attempt_id)
        if row is None or job is None or attempt is None:
            return False
        agent = sim.nodes.agents[machine.provider_id]
        return (
            job.cancel_requested_at is not None
            # Somebody else had begun to end it.
            or machine.ending_s is not None
            or job.outcome is not None
            or bool(machine.reclaims)
            # A complete listing lacked it: the cloud itself said that it was not there.
            or machine.hidden is not None
            or (attempt.drain is not None and attempt.drain.deadline <= sim.host.clock.now())
            or attempt.reason is EndReason.UNREACHABLE
            # Its own lease or a signal began to stop it.
            or agent.phase != "running"
        )

    def told_to_stop(self, agent: Agent, why: str) -> None:
        """The hard stop is for workloads that were given up on purpose."""
        sim = self._checks.sim
        row = sim.store.instances.get(agent.token)
        attempt = None if row is None else sim.store.attempts.get(row.attempt_id)
        job = None if row is None else sim.store.jobs.get(row.job_id)
        given_up = attempt is not None and attempt.reason in {EndReason.UNREACHABLE, EndReason.CANCELLED}
        if not given_up and (job is None or job.outcome is None) and not self._may_end(agent.machine):
            reason = "not ended" if attempt is None else str(attempt.reason)
            self._checks.violated("healthy", f"the workload on {agent.machine.provider_id} is stopped hard ({why}; attempt: {reason})")

    # Rule 7 ----------------------------------------------------------------------------------------------------------------------

    def drain_begins(self, agent: Agent, kind: str, deadline_s: float) -> None:
        """Asked to stop: there must be time left."""
        self.drains.setdefault(agent.machine.provider_id, []).append(kind)
        if kind in {"move", "cancel", "return"} and deadline_s <= self._checks.now_s and agent.link.silent_since_s is None and kind != "cancel":
            late = self._checks.now_s - deadline_s
            if late > 600.0:
                self._checks.violated("drain", f"{agent.machine.provider_id} was asked to stop {late:.0f} s after the deadline")

    def _expect_drain(self, token: str) -> None:
        """The daemon knows of a reclaim by another channel than the agent: the agent must be asked before the deadline."""
        sim = self._checks.sim
        agent = next((a for a in sim.nodes.living() if a.token == token), None)
        if agent is None or agent.machine.reclaim is None or agent.phase != "running":
            return
        reclaim, began, life = agent.machine.reclaim, self._checks.now_s, sim.host.life
        if reclaim.deadline_s - began < _ENOUGH_S or sim.draws.reply_lost or sim.draws.store_fails:
            return

        def look() -> None:
            reachable = agent.link.up and agent.link.last_silence_s < began and agent.link.silent_since_s is None and sim.host.life == life
            if reachable and agent.alive and agent.phase == "running" and agent.run is not None and agent.run.stopped_s is None:
                self._checks.violated("drain", f"{agent.machine.provider_id}: the daemon knew of the reclaim, and its agent was never asked to stop")

        sim.timeline.at(reclaim.deadline_s - 1.0, look)

    # Rule 4 ----------------------------------------------------------------------------------------------------------------------

    def terminate_called(self, provider_id: str) -> None:
        """Foreign machines are never touched; what has no record is not swept young."""
        sim = self._checks.sim
        machine = sim.cloud.machines.get(provider_id)
        if machine is None or not machine.ours:
            self._checks.violated("ownership", f"the daemon asked to end {provider_id}, which is not ours")
            return
        recorded = machine.token is not None and machine.token in sim.store.instances
        age = self._checks.now_s - machine.created_s
        if not recorded and age < _YOUNG_S:
            self._checks.violated("ownership", f"{provider_id} was swept as unrecorded at an age of {age:.0f} s")

    def at_end(self) -> None:
        """Nothing of ours is left."""
        left = [m.provider_id for m in self._checks.sim.cloud.machines.values() if m.ours and m.alive]
        if left:
            self._checks.violated("ownership", f"{', '.join(left)} still live after everything was healed")
