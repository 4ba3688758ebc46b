"""Command line of the zip: ``agent`` (what the boot script starts) and ``shim`` (what the agent starts)."""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import threading
from collections.abc import Sequence

from spotd.node import files, procfs, shim
from spotd.node.agent import Agent, new_journal
from spotd.node.bootstrap import BootstrapRefused, bootstrap
from spotd.node.clock import SystemClock
from spotd.node.places import Places
from spotd.node.power import Power
from spotd.node.spec import BadSpec, Config
from spotd.node.voice import say
from spotd.node.web import Web

EXIT_USAGE = 2
EXIT_REFUSED = 3
EXIT_BUSY = 4


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
    if options.command == "shim":
        return shim.main(options.directory)
    return _agent(options)


def _agent(options: argparse.Namespace) -> int:
    os.umask(0o077)
    try:
        config = Config.parse(files.read_json(options.config) or {})
        places = Places(options.root, options.user)
        web = Web(config.address, config.certificate)
    except (BadSpec, ValueError, KeyError, OSError) as error:
        say(f"{error}")
        return EXIT_USAGE
    lock = os.open(os.path.join(places.agent, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"another agent runs in {places.root}")
        return EXIT_BUSY
    places.sweep()
    clock = SystemClock()
    cancel = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: cancel.set())
    try:
        session = bootstrap(web, config, places.agent, procfs.boot_id(), clock, cancel)
    except BootstrapRefused as error:
        say(f"bootstrap refused: {error}")
        return EXIT_REFUSED
    except BadSpec as error:
        say(f"unusable specification: {error}")
        return EXIT_USAGE
    if session is None:
        return 0
    if session[1].insecure_store is not None:
        web.allow_plain(session[1].insecure_store)
    journal = new_journal(places, clock)
    agent = Agent(web, session[0], session[1], places, journal, clock, config.instance, Power(options.power_off, clock))
    signal.signal(signal.SIGTERM, lambda *_: agent.terminate())
    if cancel.is_set():
        agent.terminate()
    code = agent.run()
    # Threads may hang in a request to somebody who does not answer; nothing they could still bring matters.
    os._exit(code)
