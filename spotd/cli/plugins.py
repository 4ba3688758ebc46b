"""Verbs that providers bring along, by entry point: spotd never imports a provider by name, and `spotd jobs` never pays for one.

`spotd.commands`: a group of verbs under the provider's own name (`spotd aws setup`). `spotd.doctors` and `spotd.selftests`: what `spotd doctor NAME`
and `spotd selftest NAME` run. Each names a module with `add_options(parser)` and `run(arguments) -> int`, or, for commands, a function
`add(verbs)`. An error that is a ValueError, or that an SDK's absence raises, becomes a sentence.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from spotd.cli.failure import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.metadata import EntryPoint

COMMANDS, DOCTORS, SELFTESTS = "spotd.commands", "spotd.doctors", "spotd.selftests"
_HELP = {"-h", "--help"}

_DOCTOR = """
spotd doctor aws                         what is missing in the account, and how to mend it
spotd doctor aws --json | jq '.findings[].fix'
"""
_SELFTEST = """
spotd selftest aws --budget 1            spend at most one dollar to see it work on your own account
"""


def add_plugins(verbs: argparse._SubParsersAction[argparse.ArgumentParser], argv: Sequence[str], own: frozenset[str]) -> None:
    """Add the providers' verbs where they may be wanted: their own names, and help."""
    first = next((word for word in argv if not word.startswith("-")), None)
    if first in own and first not in {"doctor", "selftest"}:
        return
    if first is None and not _HELP & set(argv):
        return
    if first not in {"doctor", "selftest"}:
        for point in _points(COMMANDS):
            if first in {None, point.name}:
                _load(point)(verbs)


def add_doctor(verbs: argparse._SubParsersAction[argparse.ArgumentParser], argv: Sequence[str]) -> None:
    """`spotd doctor PROVIDER`."""
    _provider_verb(verbs, argv, "doctor", DOCTORS, "check a provider's account: what is missing and how to mend it", _DOCTOR)


def add_selftest(verbs: argparse._SubParsersAction[argparse.ArgumentParser], argv: Sequence[str]) -> None:
    """`spotd selftest PROVIDER`."""
    _provider_verb(verbs, argv, "selftest", SELFTESTS, "prove on your own account that spotd works there, within a budget", _SELFTEST)


def _provider_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    argv: Sequence[str],
    name: str,
    group: str,
    summary: str,
    examples: str,
) -> None:
    parent = verbs.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog="examples:\n" + "\n".join(f"  {line}" for line in examples.strip().splitlines()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    if next((word for word in argv if not word.startswith("-")), None) != name:
        parent.set_defaults(execute=lambda _: 2)
        return
    inner = parent.add_subparsers(title="providers", metavar="PROVIDER", required=True)
    for point in _points(group):
        parser = inner.add_parser(point.name, help=f"of {point.name}", allow_abbrev=False)
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")
        module = _load(point)
        module.add_options(parser)
        parser.set_defaults(execute=module.run)


def _points(group: str) -> list[EntryPoint]:
    from importlib.metadata import entry_points

    return sorted(entry_points(group=group), key=lambda point: point.name)


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except ImportError as error:
        raise Failure(f"{point.name}: {error.name or error} is not installed: pip install 'spotd[{point.name}]'") from error
