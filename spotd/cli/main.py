"""`spotd`: the command line. Every verb is a module of its own that imports what it needs when it runs."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

import spotd
from spotd.cli import cancel, daemon, demo, events, explain, fake_aws, jobs, logs, offers, policy, prices, run, savings, show, sim, status, submit
from spotd.cli.failure import INTERRUPTED, Failure
from spotd.cli.output import plain, print_json
from spotd.cli.plugins import add_doctor, add_plugins, add_selftest

if TYPE_CHECKING:
    from collections.abc import Sequence

#: In the order in which somebody new would want to read about them.
_VERBS = (submit, run, jobs, show, logs, explain, cancel, offers, prices, savings, events, policy, status, daemon, demo, sim, fake_aws)

_EPILOG = """\
Start here:
  spotd demo                           see it at work on this machine
  spotd policy check my-policy.yaml    is this policy right?
  spotd submit job.yaml                hand in a job
  spotd logs -f JOB                    watch it

`spotd VERB --help` explains each verb with an example. JOB is a job's id, the beginning of one, or a name.
"""


def build_parser(argv: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The whole command line; `argv` tells which verbs of providers may be wanted, which are loaded only then."""
    parser = argparse.ArgumentParser(
        prog="spotd",
        description="Keeps resumable training jobs running on the cheapest capacity that will hold, and proves what it saved.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"spotd {spotd.__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb", required=True)
    for module in _VERBS:
        module.add(verbs)
    add_doctor(verbs, argv)
    add_selftest(verbs, argv)
    add_plugins(verbs, argv, frozenset(verbs.choices))
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code."""
    words = sys.argv[1:] if argv is None else argv
    try:
        arguments = build_parser(words).parse_args(words)
        code: int = arguments.execute(arguments)
        sys.stdout.flush()
    except Failure as failure:
        return _failed(failure, as_json="--json" in words)
    except BrokenPipeError:
        # Whoever read us has enough (`| head`). Python would complain once more at exit, so what is left goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _failed(failure: Failure, *, as_json: bool) -> int:
    if as_json:
        print_json({"error": failure.details})
    for number, line in enumerate(plain(failure.message).split("\n")):
        print(line if number else f"spotd: {line}", file=sys.stderr)
    return failure.code


if __name__ == "__main__":
    sys.exit(main())
