"""`spotd demo`: everything on this machine, in two minutes."""

from __future__ import annotations

import argparse

from spotd.cli.arguments import add_verb

_EXAMPLES = """
spotd demo                               a live view, and a line of evidence for every claim
spotd demo --json                        one JSON object; what happens is told on standard error
spotd demo --kill-daemon                 with a kill -9 of the daemon in the middle of the run
"""


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its place on the command line."""
    parser = add_verb(verbs, "demo", execute, "show a job train through real reclaims on this machine", _EXAMPLES, talks=False)
    parser.add_argument("--kill-daemon", action="store_true", help="kill -9 the daemon once: nothing but the log may change")


def execute(arguments: argparse.Namespace) -> int:
    """Start it."""
    from spotd.demo.play import run

    return run(as_json=arguments.json, kill_daemon=arguments.kill_daemon)
