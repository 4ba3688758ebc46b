"""What the demonstration claims, and the evidence for each claim. Pure: facts in, claims out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from spotd.cli.output import usd
from spotd.demo import scene, witness
from spotd.demo.claim import Claim
from spotd.demo.killing import Killing
from spotd.demo.story import Story
from spotd.demo.weights import Weights
from spotd.demo.witness import Stint


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the claims rest on."""

    story: Story
    stints: list[Stint]
    #: The total of `GET /v1/savings`.
    savings: dict[str, Any]
    #: None: it could not be had, and `weights_problem` says why.
    final: Weights | None
    reference: Weights | None
    weights_problem: str
    #: What was left behind, in words; empty: nothing.
    left_behind: list[str]
    daemon_stopped: bool
    killing: Killing | None
    seconds: float

    @property
    def preempted(self) -> list[dict[str, Any]]:
        """The attempts that were reclaimed."""
        return [a for a in self.story.attempts if a["preempted_at"] is not None]

    @property
    def saved_in_time(self) -> list[dict[str, Any]]:
        """Those that answered the notice with a committed checkpoint before its deadline."""
        return [a for a in self.preempted if a["saved"] and a["seconds_used"] is not None and a["seconds_used"] <= (a["seconds_given"] or 0.0)]

    @property
    def regions(self) -> list[str]:
        """Where the job trained, in order."""
        found = [self.story.machine(a["number"])["offer"]["region"] for a in self.story.attempts if a["started_at"] is not None]
        return list(dict.fromkeys(found))

    @property
    def fallback(self) -> dict[str, Any] | None:
        """The attempt that ran on demand."""
        return next((a for a in self.story.attempts if a["market"] == "on-demand" and a["started_at"] is not None), None)

    @property
    def comeback(self) -> dict[str, Any] | None:
        """The attempt that ran on spot again after it."""
        fallback = self.fallback
        after = (a for a in self.story.attempts if fallback is not None and a["number"] > fallback["number"])
        return next((a for a in after if a["market"] == "spot" and a["purpose"] == "return" and a["started_at"] is not None), None)

    @property
    def steps_redone(self) -> int:
        """Steps that were trained twice."""
        return witness.redone(self.stints)

    @property
    def identical(self) -> bool:
        """Whether interruptions left no trace in the weights."""
        return self.final is not None and self.reference is not None and not self.final.differing(self.reference)

    def where(self, attempt: dict[str, Any]) -> str:
        """An attempt and its zone."""
        return f"attempt {attempt['number']} in {self.story.zone_of(attempt['number'])}"


def examine(facts: Facts) -> list[Claim]:
    """Every claim of this run."""
    found = [
        _reclaimed(facts),
        _saved(facts),
        _fell_back(facts),
        _returned(facts),
        _finished(facts),
        _redone(facts),
        _one_at_a_time(facts),
        _identical(facts),
        _cheaper(facts),
    ]
    if facts.killing is not None:
        found.append(facts.killing.claim(facts.story, facts.stints))
    return [*found, _nothing_left(facts), _in_time(facts)]


def _reclaimed(facts: Facts) -> Claim:
    regions = {facts.story.machine(a["number"])["offer"]["region"] for a in facts.preempted}
    held = len(facts.preempted) >= scene.MAX_PREEMPTIONS and len(regions) >= len(scene.REGIONS)
    marks = "; ".join(f"{facts.where(a)} at {facts.story.seconds(a['preempted_at']):.1f} s" for a in facts.preempted)
    return Claim("reclaimed three times, in three regions, by the recorded market", held, marks or "no reclaim came")


def _saved(facts: Facts) -> Claim:
    parts = [
        f"attempt {a['number']} used {a['seconds_used'] or 0.0:.1f} s of {a['seconds_given'] or 0.0:.1f}, step {a['checkpoint_step']}"
        if a["saved"]
        else f"attempt {a['number']} saved nothing: {a['detail']}"
        for a in facts.preempted
    ]
    held = bool(parts) and len(facts.saved_in_time) == len(facts.preempted)
    return Claim("saved inside the notice, each time", held, "; ".join(parts) or "no reclaim came")


def _fell_back(facts: Facts) -> Claim:
    attempt = facts.fallback
    if attempt is None:
        return Claim("fell back to on-demand at max_preemptions", held=False, evidence="no attempt ran on demand")
    before = [a for a in facts.preempted if a["number"] < attempt["number"]]
    why = facts.story.machine(attempt["number"])["because"].partition(";")[0]
    held = len(before) == scene.MAX_PREEMPTIONS
    return Claim("fell back to on-demand at max_preemptions", held, f"{facts.where(attempt)}: {why}")


def _returned(facts: Facts) -> Claim:
    claim = "returned to spot at a checkpoint boundary"
    fallback, comeback = facts.fallback, facts.comeback
    if fallback is None or comeback is None:
        return Claim(claim, held=False, evidence="no attempt ran on spot after on-demand")
    spent = facts.story.seconds(comeback["started_at"]) - facts.story.seconds(fallback["started_at"])
    waited = spent >= scene.RETURN_AFTER_S
    held = waited and fallback["reason"] == "moved" and bool(fallback["saved"]) and comeback["resumed_step"] == fallback["checkpoint_step"]
    evidence = (
        f"{facts.where(comeback)} went on from step {comeback['resumed_step']}, {spent:.1f} s after on-demand began "
        f"(return_to_spot.after: {scene.RETURN_AFTER_S} s); attempt {fallback['number']} had saved step {fallback['checkpoint_step']}"
    )
    return Claim(claim, held, evidence)


def _finished(facts: Facts) -> Claim:
    steps = max((s.last for s in facts.stints), default=0)
    job = facts.story.shown.get("job", {})
    held = facts.story.outcome == "succeeded" and steps == scene.STEPS and witness.skipped(facts.stints) == 0
    return Claim("finished every step", held, f"{job.get('outcome')}, {job.get('detail')}; step {steps} of {scene.STEPS}, none left out")


def _redone(facts: Facts) -> Claim:
    interruptions = max(len(facts.stints) - 1, 0)
    limit = interruptions * scene.CHECKPOINT_EVERY
    stints = ", ".join(f"{s.first}–{s.last}" for s in facts.stints)
    evidence = (
        f"{facts.steps_redone} steps were trained twice in {interruptions} changes of machine, at most {limit} are promised; by machine: {stints}"
    )
    return Claim("lost at most one checkpoint interval each time", facts.steps_redone <= limit, evidence)


def _one_at_a_time(facts: Facts) -> Claim:
    again = witness.overlapping(facts.stints)
    gaps = [after.began - before.ended for before, after in pairwise(facts.stints)]
    shown = ", ".join(f"{gap:.1f}" for gap in gaps)
    evidence = f"the trainer's own record: {len(facts.stints)} processes one after another, {shown} s between them"
    if again:
        evidence = f"processes {again} trained between another's steps"
    return Claim("never two workloads at once", bool(facts.stints) and not again, evidence)


def _identical(facts: Facts) -> Claim:
    claim = "final weights are bit-identical to an uninterrupted run"
    if facts.final is None or facts.reference is None:
        return Claim(claim, held=False, evidence=facts.weights_problem)
    different = facts.final.differing(facts.reference)
    if different:
        return Claim(claim, held=False, evidence=f"{len(different)} of {len(facts.final.arrays)} arrays differ, first {different[0]}")
    evidence = f"sha256 {facts.final.sha256[:16]}… of all {len(facts.final.arrays)} arrays, both at step {facts.final.step} ({facts.final.source})"
    return Claim(claim, facts.final.step == facts.reference.step, evidence)


def _cheaper(facts: Facts) -> Claim:
    total = facts.savings
    held = total.get("saving_usd") is not None and float(total["saving_usd"]) > 0
    evidence = (
        f"{usd(total.get('spend_usd'))} instead of {usd(total.get('baseline_usd'))} on demand, {total.get('saving_pct')} % saved, boots, "
        f"waits and {scene.RETURN_AFTER_S} s or more of on-demand included ({scene.SPEED} billed seconds per real second)"
    )
    return Claim("cheaper than on-demand", held, evidence)


def _nothing_left(facts: Facts) -> Claim:
    living = [i["provider_id"] for i in facts.story.shown.get("instances", ()) if i["state"] != "gone"]
    problems = [*facts.left_behind, *(f"instance {name} is not gone" for name in living)]
    if not facts.daemon_stopped:
        problems.append("the daemon did not stop when it was asked to")
    machines = sum(1 for i in facts.story.shown.get("instances", ()) if i["provider_id"])
    evidence = (
        "; ".join(problems) or f"all {machines} machines are gone, the daemon stopped, no process carries the directory's mark, its port is closed"
    )
    return Claim("nothing left behind", not problems, evidence)


def _in_time(facts: Facts) -> Claim:
    return Claim(f"under {scene.LIMIT_S:.0f} seconds", facts.seconds < scene.LIMIT_S, f"{facts.seconds:.1f} s")
