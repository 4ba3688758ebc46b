"""A promise and its proof."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """One promise, whether it was kept, and how one can see that."""

    claim: str
    held: bool
    evidence: str
