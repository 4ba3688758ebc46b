"""Launch calls whose outcome is not known: ask, adopt what is found, repeat the identical call when nothing is."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from spotd.core.backoff import doubled
from spotd.core.events import AbsenceProved, AlarmKind, LaunchRepeated
from spotd.core.fold_cloud import ABSENCE_AGE
from spotd.core.instance import Instance, InstanceState
from spotd.core.plan import Launch, Resolve
from spotd.core.planner.wanting import wanted_instances

if TYPE_CHECKING:
    from spotd.core.plan import Snapshot
    from spotd.core.planner.findings import Findings

_FIRST_WAIT = timedelta(seconds=2)
_LONGEST_WAIT = timedelta(minutes=1)
#: Complete listings that lack an instance before its absence is proved (DESIGN §4 rule 2).
PROOF = 2
_MANY_ASKS = 10


def resolve(snapshot: Snapshot, moved: frozenset[str], findings: Findings) -> None:
    """One step for every launch that is neither launched nor refused, except of jobs about which something was just decided (`moved`).

    A try that another one takes the place of in this very plan must not be asked for again beside it.
    """
    wanted = wanted_instances(snapshot.world)
    for instance in snapshot.world.instances.values():
        if instance.state is InstanceState.REQUESTED and instance.id not in snapshot.in_flight and instance.job_id not in moved:
            _resolve(snapshot, instance, instance.id in wanted, findings)


def _resolve(snapshot: Snapshot, instance: Instance, is_wanted: bool, findings: Findings) -> None:  # noqa: FBT001 - a fact, not a mode
    called = instance.launch_called_at or instance.requested_at
    asked = instance.asked_at
    if asked is None or asked < called:
        # The daemon died between the intent and the answer: nothing is known, so ask before anything else.
        findings.decide(effect=Resolve(instance.request))
        return
    not_found = instance.not_found_at is not None and instance.not_found_at >= called
    # Refused when it was repeated: nobody repeats it again, but the call before may have launched it.
    settled = not is_wanted or instance.refusal is not None
    if settled and not_found and instance.absences >= PROOF and not _spoke_lately(snapshot, instance, findings):
        findings.decide(AbsenceProved(snapshot.now, instance.id))
        return
    if instance.asks >= _MANY_ASKS:
        offer = instance.request.offer
        found = instance.error or "nothing is found"
        message = f"the outcome of a launch in {offer.region} is unknown after {instance.asks} questions: {found}"
        findings.alarm(snapshot, AlarmKind.PROVIDER_FAILING, f"{offer.provider}/{offer.region}", message)
    if not findings.passed(asked, _wait(instance)):
        return
    suspended = snapshot.world.suspended.get(instance.request.offer.provider)
    if not settled and not_found:
        if suspended is not None and suspended > snapshot.now:
            findings.look_at(suspended)
            return
        findings.decide(LaunchRepeated(snapshot.now, instance.id), effect=Launch(instance.request))
    else:
        findings.decide(effect=Resolve(instance.request))


def _spoke_lately(snapshot: Snapshot, instance: Instance, findings: Findings) -> bool:
    """Whether its agent has called, and nobody has looked for its machine in vain long enough after its last word.

    An agent that calls runs on a machine, whatever listings lack. One that fell silent for good may have been reclaimed before any listing
    showed it, and nothing will ever be found of it.
    """
    if instance.nonce_sha256 is None:
        return False
    last_word = snapshot.now - snapshot.silent_for(instance.id)
    if instance.not_found_at is not None and instance.not_found_at >= last_word + ABSENCE_AGE:
        return False
    findings.look_at(last_word + ABSENCE_AGE)
    return True


def _wait(instance: Instance) -> timedelta:
    return doubled(_FIRST_WAIT, instance.asks - 1, _LONGEST_WAIT)
