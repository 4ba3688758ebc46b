"""What all verbs share on the command line."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotd.cli.client import Client

DEFAULT_SOCKET = "/run/spotd/spotd.sock"


def add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    execute: Callable[[argparse.Namespace], int],
    summary: str,
    examples: str,
    *,
    talks: bool = True,
) -> argparse.ArgumentParser:
    """A verb with its help, an example in it, `--json`, and (if it talks to a daemon) `--socket`."""
    parser = verbs.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog="examples:\n" + "\n".join(f"  {line}" for line in examples.strip().splitlines()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(execute=execute)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    if talks:
        parser.add_argument("--socket", metavar="PATH", help=f"the daemon's socket (else $SPOTD_SOCKET, else {DEFAULT_SOCKET})")
    return parser


def client_of(arguments: argparse.Namespace) -> Client:
    """The daemon that the command line means."""
    from spotd.cli.client import Client

    return Client(arguments.socket or os.environ.get("SPOTD_SOCKET") or DEFAULT_SOCKET)


def count(text: str) -> int:
    """A whole number from 0, for argparse."""
    if not text.isascii() or not text.isdecimal() or len(text) > 15:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)
