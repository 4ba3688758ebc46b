"""What is said at the end: the savings report, a line for every claim, and the same as one JSON object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spotd.cli.output import usd
from spotd.demo import scene

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spotd.demo.claim import Claim
    from spotd.demo.claims import Facts


def lines(facts: Facts, claims: list[Claim]) -> Iterator[str]:
    """The report for people."""
    total = facts.savings
    spend, baseline, saving = (f"{usd(total.get(key)):>10}" for key in ("spend_usd", "baseline_usd", "saving_usd"))
    useful, billed = (f"{total.get(key) or 0.0:.2f}" for key in ("useful_hours", "billed_hours"))
    lost = ", ".join(f"{cause} {usd(row['usd'])}" for cause, row in total.get("waste", {}).items() if row["hours"])
    yield ""
    yield f"Savings (a recorded market replayed {scene.SPEED} times faster: {scene.SPEED} seconds are billed for each real one)"
    yield f"  on demand only  {baseline}   the same {useful} useful hours at the on-demand price"
    yield f"  with spotd      {spend}   {billed} billed hours; not useful of it: {lost or 'nothing'}"
    yield f"  saved           {saving}   {total.get('saving_pct')} %"
    yield ""
    yield "Claims"
    for claim in claims:
        yield f"  {'held  ' if claim.held else 'FAILED'}  {claim.claim}: {claim.evidence}"


def document(facts: Facts, claims: list[Claim]) -> dict[str, Any]:
    """The report for machines."""
    total = facts.savings
    return {
        "ok": all(claim.held for claim in claims),
        "preemptions": len(facts.preempted),
        "saved_within_notice": len(facts.saved_in_time),
        "regions_used": facts.regions,
        "fell_back": facts.fallback is not None,
        "returned_to_spot": facts.comeback is not None,
        "steps_redone": facts.steps_redone,
        "identical_to_uninterrupted": facts.identical,
        "spend_usd": _number(total.get("spend_usd")),
        "baseline_usd": _number(total.get("baseline_usd")),
        "saving_pct": _number(total.get("saving_pct")),
        "seconds": round(facts.seconds, 1),
        "billing_speed": scene.SPEED,
        "notice_seconds": scene.NOTICE_S,
        "claims": [{"claim": claim.claim, "held": claim.held, "evidence": claim.evidence} for claim in claims],
    }


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
