"""A smaller run that fails in the same way: faults are left out one by one, as long as the same rule is still broken."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from spotd.sim.draws import FAULTS, Draws, draw
from spotd.sim.world import Result, simulate

if TYPE_CHECKING:
    from collections.abc import Iterable

_QUIET = Draws()
#: Shape of the world that may be made smaller as well.
_SHAPE = ("jobs", "regions", "zones", "types", "quota", "price_cap", "price_moves_per_day", "replace_unreachable_s")


def without(draws: Draws, names: Iterable[str]) -> Draws:
    """The same draws with some of them as in a quiet world. ValueError for a name that is none."""
    known = {f.name for f in fields(Draws)}
    for name in names:
        if name not in known:
            raise ValueError(f"{name!r} is no draw; there are {', '.join(sorted(known))}")
    return replace(draws, **{name: getattr(_QUIET, name) for name in names})


def shrink(seed: int) -> tuple[Result, list[str]]:
    """The smallest failing run that leaving out finds, and what was left out. Streams are by name, so the rest happens as before."""
    full = draw(seed)
    result = simulate(seed, full)
    if not result.violations:
        return result, []
    rule = result.violations[0].rule
    left_out: list[str] = []
    again = True
    while again:
        again = False
        for name in (*FAULTS, *_SHAPE):
            if name in left_out or getattr(full, name) == getattr(_QUIET, name):
                continue
            tried = simulate(seed, without(full, [*left_out, name]))
            if tried.violations and tried.violations[0].rule == rule:
                left_out.append(name)
                result, again = tried, True
    return result, left_out
