"""`spotd demo`: everything on this machine, in two minutes."""

from __future__ import annotations

import argparse

from spotd.cli.arguments import add_verb

_EXAMPLES = """
spotd demo                               a live view, and a line of evidence for every claim
spotd demo --json                        one JSON object
"""


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its place on the command line."""
    add_verb(verbs, "demo", execute, "show a job train through real reclaims on this machine", _EXAMPLES, talks=False)


def execute(arguments: argparse.Namespace) -> int:
    """Start it."""
    from spotd.demo import main

    return int(main(["--json"] if arguments.json else []))
