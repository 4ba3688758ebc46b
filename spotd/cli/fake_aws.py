"""`spotd fake-aws`: an AWS account on this machine, to play with."""

from __future__ import annotations

import argparse
import shlex
import signal
import threading
from pathlib import Path

from spotd.cli.arguments import add_verb, count
from spotd.cli.failure import Failure
from spotd.cli.output import print_json_line

_EXAMPLES = """
spotd fake-aws --port 4566                         then, in another shell, what it prints
spotd fake-aws --regions us-west-2,eu-west-1       with these regions
spotd fake-aws --machines /tmp/machines            run the instances' user data as processes of this machine
"""
_REGIONS = "us-east-1,us-west-2,eu-west-1"
_HIGHEST_PORT = 65_535


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its place on the command line."""
    summary = "serve a fake AWS account on this machine, for trying spotd without paying; needs no daemon"
    parser = add_verb(verbs, "fake-aws", execute, summary, _EXAMPLES, talks=False)
    parser.add_argument("--port", metavar="N", type=count, default=0, help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--regions", metavar="REGION,…", default=_REGIONS, help=f"regions of the account (default: {_REGIONS})")
    parser.add_argument(
        "--machines", metavar="DIR", type=Path, help="run instances as processes below this directory (default: they only seem to run)"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Serve until interrupted."""
    try:
        from spotd.testing.fake_aws import FakeAws, Machines
        from spotd.testing.fake_aws.control import HELP

        if arguments.port > _HIGHEST_PORT:
            raise Failure(f"There is no port {arguments.port}.")
        regions = [name for name in arguments.regions.split(",") if name]
        if not regions:
            raise Failure("Name at least one region.")
        machines = None if arguments.machines is None else Machines(arguments.machines)
        aws = FakeAws(regions=regions, machines=machines, port=arguments.port)
    except ModuleNotFoundError as error:
        raise Failure(str(error)) from None
    except OSError as error:
        raise Failure(f"Port {arguments.port} cannot be had: {error.strerror}. Name another with --port.") from None
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with aws:
        if arguments.json:
            print_json_line(aws.environment())
        else:
            print(f"# A fake AWS account with the regions {', '.join(regions)}. Point a shell, and spotd's daemon, at it with:")
            for name, value in aws.environment().items():
                print(f"export {name}={shlex.quote(value)}")
            print("# Until Ctrl-C. What can be made to happen, by curl at $AWS_ENDPOINT_URL:")
            print("".join(f"#   {line}\n" for line in HELP.splitlines()), end="", flush=True)
        stopped.wait()
    return 0
