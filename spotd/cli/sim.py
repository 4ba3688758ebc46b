"""`spotd sim replay`: a run of the simulated world, told for a person."""

from __future__ import annotations

import argparse

from spotd.cli.arguments import add_verb, count
from spotd.cli.failure import Failure

_EXAMPLES = """
spotd sim replay 42                      what happened in the run of this seed
spotd sim replay 42 --without hangs_per_day,reply_lost
"""


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its place on the command line."""
    parent = verbs.add_parser(
        "sim",
        help="play a run of the simulated world again",
        description="Play a run of the simulated world again. `make soak` finds runs that are worth it.",
        epilog="examples:\n" + "\n".join(f"  {line}" for line in _EXAMPLES.strip().splitlines()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    inner = parent.add_subparsers(title="verbs", metavar="VERB", required=True)
    parser = add_verb(inner, "replay", replay, "tell what happened in the run of a seed; needs no daemon", _EXAMPLES, talks=False)
    parser.add_argument("seed", metavar="SEED", type=count, help="a seed, as `make soak` prints it")
    parser.add_argument("--without", metavar="DRAWS", default="", help="draws to leave out, with commas between them")


def replay(arguments: argparse.Namespace) -> int:
    """Run it and print it; 1 if a rule was broken."""
    from spotd.sim.replay import run

    left_out = [name for name in arguments.without.split(",") if name]
    try:
        return run(arguments.seed, left_out, as_json=arguments.json)
    except ValueError as error:
        raise Failure(str(error)) from None
