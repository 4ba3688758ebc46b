"""From a configuration to a running agent."""

from __future__ import annotations

import fcntl
import os
import signal
import threading

from spotd.node import files, procfs
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


def start(config_file: str, root: str, user: str | None, power_off: str | None) -> int:
    """Run the agent of this machine; its exit code (see `main`)."""
    os.umask(0o077)
    try:
        config = Config.parse(files.read_json(config_file) or {})
        places = Places(root, user)
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
    agent = Agent(web, session[0], session[1], places, journal, clock, config.instance, Power(power_off, clock))
    signal.signal(signal.SIGTERM, lambda *_: agent.terminate())
    if cancel.is_set():
        agent.terminate()
    code = agent.run()
    # Threads may hang in a request to somebody who does not answer; nothing they could still bring matters.
    os._exit(code)
