"""`spotd daemon`: run the daemon in the foreground, as systemd does."""

from __future__ import annotations

import argparse
from pathlib import Path

from spotd.cli.arguments import add_verb
from spotd.cli.failure import WRONG, Failure

_EXAMPLES = """
spotd daemon                                     with /etc/spotd/spotd.toml
spotd daemon --config ./spotd.toml               with a file of your own
SPOTD_LOG_LEVEL=debug spotd daemon               every key can be overridden
"""


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its place on the command line."""
    parser = add_verb(verbs, "daemon", execute, "run the daemon in the foreground, until SIGTERM or Ctrl-C", _EXAMPLES, talks=False)
    parser.add_argument("--config", metavar="FILE", type=Path, help="its settings (default: /etc/spotd/spotd.toml, which need not exist)")


def execute(arguments: argparse.Namespace) -> int:
    """Run until told to stop. What keeps it from starting is said in a sentence."""
    import gc
    import logging

    # Nothing of what is imported and loaded now becomes garbage: looking for some costs a tenth of the start. `Daemon.run` ends this.
    gc.disable()
    from spotd.daemon.main import run

    try:
        return int(run(arguments.config) or 0)
    except Exception as error:
        module = type(error).__module__
        if not module.startswith("spotd") and not isinstance(error, OSError):
            # A bug, not a mistake of ops: the daemon's log is where its traceback belongs.
            logging.getLogger("spotd").critical("the daemon failed", exc_info=True)
        raise Failure(str(error) or type(error).__name__, WRONG) from None
