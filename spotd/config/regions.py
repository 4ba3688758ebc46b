"""Which provider a region belongs to, by its name, and which candidates a policy means that names them only in part.

AWS regions end in a dash and a digit (`us-west-2`), GCP regions in a digit without a dash (`us-central1`): no name is both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_DIRECTIONS = "central|north|south|east|west|northeast|northwest|southeast|southwest"
_AWS = re.compile(rf"[a-z]{{2}}(-gov|-iso[a-z]?)?-({_DIRECTIONS})-\d{{1,2}}")
_GCP = re.compile(rf"(us|europe|asia|australia|northamerica|southamerica|me|africa)-({_DIRECTIONS})\d{{1,2}}")
#: `p5.48xlarge` against `a3-highgpu-8g`.
_AWS_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
_GCP_TYPE = re.compile(r"[a-z][a-z0-9]*-[a-z0-9-]+")
_EXAMPLE = {"aws": "us-west-2", "gcp": "us-central1"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A candidate as written; regions may be left to `region_failover`."""

    provider: str
    instance_types: tuple[str, ...]
    regions: tuple[str, ...]


class Unclear(ValueError):
    """The policy does not say where to run: what is unclear, under which key, and what to write."""

    def __init__(self, key: tuple[str | int, ...], message: str, hint: str) -> None:
        super().__init__(message)
        self.key = key
        self.message = message
        self.hint = hint


_FAILOVER = ("spot_handlers", "region_failover")
_NAME_CANDIDATES = "name them: candidates: [{provider: …, instance_types: […], regions: […]}]"


def provider_of(region: str) -> str | None:
    """The cloud that names its regions like this, or None."""
    if _AWS.fullmatch(region):
        return "aws"
    return "gcp" if _GCP.fullmatch(region) else None


def misfit(provider: str, instance_type: str) -> str:
    """The other cloud whose instance types look like this one, or nothing: material for a warning."""
    if provider == "aws" and not _AWS_TYPE.fullmatch(instance_type) and _GCP_TYPE.fullmatch(instance_type):
        return "gcp"
    return "aws" if provider == "gcp" and _AWS_TYPE.fullmatch(instance_type) else ""


def complete(wanted: Sequence[Wanted], fallback_node: str | None, failover: tuple[str, ...]) -> tuple[Wanted, ...]:
    """Every candidate with its regions. Raises Unclear when the policy does not say."""
    if not wanted:
        return (_implied(fallback_node, failover),)
    leave = {w.provider: i for i, w in reversed(list(enumerate(wanted))) if not w.regions}
    name = {w.provider: i for i, w in reversed(list(enumerate(wanted))) if w.regions}
    if not failover:
        if leave:
            index = min(leave.values())
            raise Unclear(("candidates", index), "names no regions, and there is no region_failover", "give it regions: [us-west-2, …]")
        return tuple(wanted)
    shares = _shares(failover, frozenset(leave), name)
    return tuple(w if w.regions else Wanted(w.provider, w.instance_types, _share(shares, w.provider, leave)) for w in wanted)


def _implied(fallback_node: str | None, failover: tuple[str, ...]) -> Wanted:
    """The candidate of a policy that holds only `spot_handlers`: the type from `fallback_node`, the provider from the regions."""
    if not fallback_node:
        raise Unclear(("candidates",), "are missing, and no fallback_node says which instance type is meant", _NAME_CANDIDATES)
    if not failover:
        raise Unclear(("candidates",), "are missing, and no region_failover says where to run", _NAME_CANDIDATES)
    found = {region: provider_of(region) for region in failover}
    strange = [region for region, provider in found.items() if provider is None]
    if strange:
        raise Unclear(
            _FAILOVER,
            f"{', '.join(strange)}: which provider's region that is cannot be told from its name",
            f"with such names the candidates must be named: candidates: [{{provider: …, instance_types: [{fallback_node}], regions: […]}}]",
        )
    providers = {provider for provider in found.values() if provider}
    if len(providers) > 1:
        by = "; ".join(f"{p}: {', '.join(r for r in failover if found[r] == p)}" for p in sorted(providers))
        raise Unclear(
            _FAILOVER,
            f"mixes regions of two providers ({by}), but the one type {fallback_node} of fallback_node is sold by one of them only",
            "name a candidate for each provider, with its own instance_types; their regions may stay in region_failover",
        )
    return Wanted(providers.pop(), (fallback_node,), failover)


def _shares(failover: tuple[str, ...], leave: frozenset[str], name: dict[str, int]) -> dict[str, tuple[str, ...]]:
    """Which of the regions in `region_failover` belong to which provider among those that leave theirs to it."""
    both = sorted(leave & set(name))
    if both:
        raise Unclear(
            ("candidates", name[both[0]], "regions"),
            f"another {both[0]} candidate leaves its regions to region_failover",
            f"say it once for {both[0]}: regions for every candidate of it, or for none",
        )
    shares: dict[str, list[str]] = {}
    for region in failover:
        shares.setdefault(_taker(region, leave, name), []).append(region)
    return {provider: tuple(regions) for provider, regions in shares.items()}


def _taker(region: str, leave: frozenset[str], name: dict[str, int]) -> str:
    provider = provider_of(region)
    others = sorted(leave - set(_EXAMPLE))
    if provider in leave:
        return str(provider)
    if len(others) == 1 and not leave & set(_EXAMPLE):
        # A provider of one's own names its regions as it likes, also like a cloud does.
        return others[0]
    if provider in name or not leave:
        who = provider if provider in name else min(name)
        raise Unclear(
            _FAILOVER,
            f"names {region}, but the {who} candidate names its own regions",
            f"say it once: leave `regions` out of the {who} candidate, or {region} out of region_failover",
        )
    if provider is not None:
        raise Unclear(
            _FAILOVER,
            f"names {region}, a region of {provider}, but no candidate is of {provider}",
            f"{_examples(leave)}; or add a candidate for {provider}",
        )
    raise Unclear(
        _FAILOVER,
        f"names {region}, which does not look like a region of {' or '.join(sorted(leave))}",
        _examples(leave) or "give each candidate its own regions",
    )


def _examples(providers: Iterable[str]) -> str:
    return ", ".join(f"{p} regions look like {_EXAMPLE[p]}" for p in sorted(providers) if p in _EXAMPLE)


def _share(shares: dict[str, tuple[str, ...]], provider: str, leave: dict[str, int]) -> tuple[str, ...]:
    regions = shares.get(provider)
    if regions is None:
        hint = f"{provider} regions look like {_EXAMPLE[provider]}" if provider in _EXAMPLE else "give it regions: […]"
        raise Unclear(("candidates", leave[provider]), f"names no regions, and region_failover has none of {provider}", hint)
    return regions
