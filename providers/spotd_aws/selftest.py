"""`spotd selftest aws`: the whole of it on the user's own account, within a budget: a spot instance, a job, a reclaim, a resume, and nothing left.

A daemon of its own does the work, with a deployment of its own, so that the one in use is neither needed nor touched.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path

from spotd_aws.commands import typed_region
from spotd_aws.errors import translate
from spotd_aws.installation import Unusable
from spotd_aws.printing import complain, plain, say
from spotd_aws.tags import SELFTEST
from spotd_aws.trial_choice import SMALL_TYPES
from spotd_aws.trial_report import Record
from spotd_aws.trial_run import CANNOT_RUN, SelfTest
from spotd_aws.trial_signals import interruptible
from spotd_aws.trial_wishes import read_wishes

_SHORTEST_S, _LONGEST_S = 10, 3600

EXAMPLES = """
spotd selftest aws --budget 1                                  by /etc/spotd/spotd.toml; spends some cents
spotd selftest aws --budget 1 --fis-role arn:aws:iam::123456789012:role/spotd-main-fis
spotd selftest aws --budget 1 --config ./spotd.toml --region us-west-2 --report selftest.md
spotd selftest aws --budget 1 --listen 0.0.0.0:7444 --advertise 203.0.113.5:7444    beside a daemon that runs
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `spotd selftest aws`, beside --json."""
    parser.description = (
        "Prove on your own account that spotd works there: run a job of three minutes on a small spot instance, have the instance taken away, "
        "see the job go on elsewhere, remove everything, and write a report. A daemon of its own does it, under a deployment of its own."
    )
    parser.epilog = "examples:\n" + "\n".join(f"  {line}" for line in EXAMPLES.strip().splitlines())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--budget", metavar="USD", type=_dollars, required=True, help="what it may cost at most; nothing is launched that could exceed it"
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="the daemon's settings (default: /etc/spotd/spotd.toml)")
    parser.add_argument(
        "--region", metavar="REGION", type=typed_region, action="append", help="use this region only; may be repeated (default: those configured)"
    )
    parser.add_argument(
        "--type", metavar="TYPE", action="append", help=f"use this instance type only; may be repeated (default: {', '.join(SMALL_TYPES)})"
    )
    parser.add_argument(
        "--fis-role", metavar="ARN", default="", help="role with which AWS FIS may interrupt instances (default: the instance is ended by hand)"
    )
    parser.add_argument("--seconds", metavar="N", type=_seconds, default=180, help="how long the job is (default: 180)")
    parser.add_argument("--timeout", metavar="TIME", type=_time, default=1800.0, help="give up after this, and remove everything (default: 30m)")
    parser.add_argument("--listen", metavar="HOST:PORT", help="where the daemon listens for agents (default: as configured)")
    parser.add_argument("--advertise", metavar="HOST:PORT", help="the address of it that agents are told (default: as configured)")
    parser.add_argument("--report", metavar="FILE", type=Path, help="also write the report (Markdown) to this file")


def _dollars(text: str) -> Decimal:
    try:
        value = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount in dollars, such as 1 or 0.50") from None
    if not value.is_finite() or not 0 < value <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount from $0 to $1000")
    return value


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not _SHORTEST_S <= int(text) <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from {_SHORTEST_S} to {_LONGEST_S}")
    return int(text)


def _time(text: str) -> float:
    from pydantic import TypeAdapter, ValidationError

    from spotd_aws.config import Seconds

    try:
        return float(TypeAdapter(Seconds).validate_python(text))
    except ValidationError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration, such as 30m or 1h") from None


def run(arguments: argparse.Namespace) -> int:
    """Do it. 0 if all passed, 1 if something failed, 2 if it cannot run, 130 after Ctrl-C; whatever it was, everything is removed first."""
    from spotd_aws.clients import Clients
    from spotd_aws.provider import AwsProvider

    # Where JSON is the output, how it goes is told beside it.
    tell: Callable[[str], None] = _aside if arguments.json else say
    deployment = SELFTEST + secrets.token_hex(4)
    try:
        wishes = read_wishes(arguments, deployment)
        clients = Clients(wishes.installation.aws)
    except Unusable as error:
        complain(str(error))
        return CANNOT_RUN
    except Exception as error:  # noqa: BLE001 - a profile that is not there, a broken file of credentials
        complain(str(translate(error, doing="reading the credentials")))
        return CANNOT_RUN
    provider = AwsProvider(clients, wishes.installation.aws, deployment, lambda: datetime.now(UTC))
    try:
        with interruptible():
            return SelfTest(wishes, clients, provider, Record(tell)).run(as_json=arguments.json, file=arguments.report)
    finally:
        provider.close()


def _aside(text: str) -> None:
    sys.stderr.write(plain(text) + "\n")
    sys.stderr.flush()
