"""Ten known-bad variants of the engine and its world, each a small patch of one function. None of them must ever be what we ship."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from spotd.core import fold, fold_cloud, planner
from spotd.core.attempt import Attempt, AttemptState
from spotd.core.errors import ProviderError
from spotd.core.events import CancelRequested, Event, LaunchRequested
from spotd.core.ids import instance_id
from spotd.core.instance import EndedBy, Instance, InstanceState
from spotd.core.lifecycle import InstanceTrigger
from spotd.core.offer import OfferKey
from spotd.core.plan import Case, Launch
from spotd.core.planner import gates, launching, placing, terminating
from spotd.sim.host import Host
from spotd.sim.saver import Saver
from spotd.sim.shelf import Manifest
from spotd.sim.store import SimStore

if TYPE_CHECKING:
    from spotd.core.draft import Draft
    from spotd.core.events import Listed
    from spotd.core.instance import LaunchRequest, ObservedInstance
    from spotd.core.plan import Snapshot
    from spotd.core.planner.findings import Findings
    from spotd.core.world import Changes

Patch = pytest.MonkeyPatch


def intent_recorded_after_the_call(patch: Patch) -> None:
    """The commit of a launch's intent happens a second later, and not at all if the daemon dies in between."""
    commit = SimStore.commit

    def late(self: SimStore, events: Sequence[Event], changes: Changes) -> None:
        if not any(isinstance(event, LaunchRequested) for event in events):
            commit(self, events, changes)
            return
        sim = self._checks.sim
        life = sim.host.life
        sim.timeline.after(1.0, lambda: commit(self, events, changes) if sim.host.life == life else None)

    patch.setattr(SimStore, "commit", late)


def gone_after_four_missed_listings(patch: Patch) -> None:
    """A machine that four listings in a row lack is taken for gone."""
    miss = fold_cloud._miss
    missed: dict[str, tuple[datetime, int]] = {}

    def guess(draft: Draft, instance: Instance, event: Listed) -> None:
        miss(draft, instance, event)
        now = draft.instances[instance.id]
        since, count = missed.get(instance.id, (event.at, 0))
        count = count + 1 if now.absent_since is not None and now.absent_since <= since else 1
        missed[instance.id] = (now.absent_since or event.at, count)
        if count >= 4 and now.state is not InstanceState.REQUESTED:
            gone = draft.advance_instance(now, InstanceTrigger.SEEN_GONE)
            draft.put_instance(gone)
            fold_cloud._gone(draft, gone, event.at, EndedBy.UNKNOWN, "missed", event.at)

    patch.setattr(fold_cloud, "_miss", guess)


def gate_opened_at_the_notice(patch: Patch) -> None:
    """A replacement runs as soon as the old workload was warned, not when it has stopped."""

    def early(snapshot: Snapshot, case: Case, findings: Findings) -> None:
        left = tuple(a for a in case.attempts if a.state is not AttemptState.DRAINING)
        gates.open_gate(snapshot, dataclasses.replace(case, attempts=left), findings)

    rules = tuple(early if rule is gates.open_gate else rule for rule in planner._JOB_RULES)
    patch.setattr(planner, "_JOB_RULES", rules)


def token_without_the_zone(patch: Patch) -> None:
    """The token names what is wanted and not where: the next zone is asked with the same one."""

    def token(deployment: str, attempt: str, rank: int, try_number: int, offer: OfferKey) -> str:
        del try_number
        return instance_id(deployment, attempt, rank, 0, dataclasses.replace(offer, zone=""))

    patch.setattr(placing, "instance_id", token)


def terminate_given_up(patch: Patch) -> None:
    """After three calls an instance is left to itself."""
    again = terminating._again

    def tired(snapshot: Snapshot, instance: Instance, findings: Findings) -> None:
        if instance.terminate_calls < 3:
            again(snapshot, instance, findings)

    patch.setattr(terminating, "_again", tired)


def retry_with_a_new_token(patch: Patch) -> None:
    """A launch whose outcome is unknown is asked for again as if it were another one."""

    def fresh(request: LaunchRequest) -> Launch:
        return Launch(dataclasses.replace(request, token=request.token[::-1]))

    patch.setattr(launching, "Launch", fresh)


def orphan_sweep_without_age_guard(patch: Patch) -> None:
    """Whatever carries our tag and has no record is ended at first sight."""
    patch.setattr(terminating, "STRAY_AGE", timedelta(0))


def manifest_written_first(patch: Patch) -> None:
    """The manifest is there before the objects it names."""
    save = Saver.save
    put = Manifest.__init__

    def first(self: Saver, step: int, trigger: Any, then: Callable[[], None]) -> None:
        upload_s, self._agent.work.upload_s = self._agent.work.upload_s, 0.0
        save(self, step, trigger, then)
        self._agent.work.upload_s = upload_s

    def incomplete(self: Manifest, *args: Any, **kwargs: Any) -> None:
        put(self, *args, **{**kwargs, "complete": False})

    def commit(self: Saver, step: int, trigger: Any, then: Callable[[], None]) -> None:
        _COMMIT(self, step, trigger, then)
        agent = self._agent
        manifest = agent.host.shelf.get(agent.work.job_id, f"{agent.attempt:05d}-{self._sequence:06d}")
        if manifest is not None:
            agent.later(agent.work.upload_s, lambda: setattr(manifest, "complete", True))

    patch.setattr(Saver, "save", first)
    patch.setattr(Manifest, "__init__", incomplete)
    patch.setattr(Saver, "_commit", commit)


_COMMIT = Saver._commit


def failed_listing_read_as_empty(patch: Patch) -> None:
    """A region that does not answer has no instances."""

    def credulous(self: Host, region: str) -> tuple[ObservedInstance, ...]:
        try:
            return tuple(self.provider.instances(region))
        except ProviderError:
            return ()

    patch.setattr(Host, "_list", credulous)


def preemption_counted_for_a_users_cancel(patch: Patch) -> None:
    """An attempt that its user stops counts as one that the provider took."""
    requested = fold._cancel_requested

    def harsh(draft: Draft, event: CancelRequested) -> None:
        requested(draft, event)
        running: list[Attempt] = [a for a in draft.attempts.values() if a.job_id == event.job_id and not a.ended]
        for attempt in running:
            draft.put_attempt(dataclasses.replace(attempt, preempted_at=event.at))

    patch.setattr(fold, "_cancel_requested", harsh)


#: Each with the rules of which one must be found broken.
PLANTED: tuple[tuple[Callable[[Patch], None], frozenset[str]], ...] = (
    (intent_recorded_after_the_call, frozenset({"intent", "settles"})),
    (gone_after_four_missed_listings, frozenset({"gone", "one workload"})),
    (gate_opened_at_the_notice, frozenset({"one workload"})),
    (token_without_the_zone, frozenset({"intent"})),
    (terminate_given_up, frozenset({"ownership", "converges"})),
    (retry_with_a_new_token, frozenset({"intent"})),
    (orphan_sweep_without_age_guard, frozenset({"ownership"})),
    (manifest_written_first, frozenset({"checkpoints"})),
    (failed_listing_read_as_empty, frozenset({"gone", "healthy", "one workload"})),
    (preemption_counted_for_a_users_cancel, frozenset({"preemptions"})),
)
