"""Command line of the zip: ``agent`` (what the boot script starts) and ``shim`` (what the agent starts)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command of *argv*; the exit code. 2: unusable configuration, 3: the daemon refuses us for good, 4: another agent runs here."""
    parser = argparse.ArgumentParser(prog="agent.pyz", description="spotd on an instance")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("agent", help="run a job for the daemon named in the configuration")
    one.add_argument("--config", required=True, help="agent.json, as the boot script wrote it")
    one.add_argument("--root", required=True, help="directory for all of the agent's files")
    one.add_argument(
        "--power-off",
        default=None,
        metavar="COMMAND",
        help="how to switch this machine off; without it the agent only leaves",
    )
    one.add_argument("--user", default=None, metavar="NAME", help="run the job as this user")
    other = commands.add_parser("shim", help="own one process tree (started by the agent)")
    other.add_argument("--directory", required=True)
    options = parser.parse_args(argv)
    # Python compiles what it imports from the zip at every start. A hook's shim is waited for within the seconds of a notice, so it must not
    # pay for the agent: that was a quarter of a second of CPU, and five times that where five machines share two cores.
    if options.command == "shim":
        from spotd.node import shim  # noqa: PLC0415

        return shim.main(options.directory)
    from spotd.node.start import start  # noqa: PLC0415

    return start(options.config, options.root, options.user, options.power_off)
