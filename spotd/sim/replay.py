"""`spotd sim replay SEED`: what happened in one run, for a person."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from spotd.sim.draws import draw
from spotd.sim.shrink import without
from spotd.sim.story import clock
from spotd.sim.world import Result, Simulation


def replay(seed: int, left_out: Iterable[str] = ()) -> tuple[Result, Iterator[str]]:
    """The run and its lines. ValueError for a draw that does not exist."""
    draws = without(draw(seed), left_out)
    result = Simulation(seed, draws, told=True).run()
    return result, _lines(result)


def _lines(result: Result) -> Iterator[str]:
    yield f"seed {result.seed}"
    yield f"draws {result.draws.told()}"
    yield ""
    yield from result.story.printed()
    yield ""
    yield f"{clock(result.virtual_s)}  {result.launches} machines, {result.steps} steps; jobs: {_outcomes(result)}"
    for violation in result.violations:
        yield f"VIOLATION at {clock(violation.at_s)}: {violation.rule}: {violation.text}"
    if not result.violations:
        yield "no rule was broken"


def _outcomes(result: Result) -> str:
    return ", ".join(f"{job} {outcome if outcome != 'None' else 'is not finished'}" for job, outcome in sorted(result.outcomes.items())) or "none"


def run(seed: int, left_out: Iterable[str], *, as_json: bool) -> int:
    """Print it; 0 if no rule was broken, 1 otherwise."""
    result, lines = replay(seed, left_out)
    if as_json:
        found = {
            "seed": result.seed,
            "draws": asdict(result.draws),
            "outcomes": result.outcomes,
            "violations": [asdict(violation) for violation in result.violations],
            "story": [{"at_s": at, "who": who, "what": what} for at, who, what in result.story.lines],
        }
        print(json.dumps(found))
    else:
        for line in lines:
            print(line)
    return 1 if result.violations else 0
