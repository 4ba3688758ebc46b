"""`spotd aws …`: the verbs that this provider brings along. `spotd doctor aws` is in `doctor`."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from spotd_aws.printing import complain, say, say_json

if TYPE_CHECKING:
    from spotd_aws.setup import Done, Orders

FAILED, WRONG, INTERRUPTED = 1, 2, 130

_SETUP = """
spotd aws setup --dry-run                   what would be done, in every region
spotd aws setup                             do it; repeating is harmless
spotd aws setup --region us-west-2 --region eu-west-1
spotd aws setup --config ./spotd.toml --json
"""
_POLICY = """
spotd aws iam-policy > policy.json          what the daemon's credentials need, for /etc/spotd/spotd.toml
spotd aws iam-policy --setup                … and what `spotd aws setup` needs, once
spotd aws iam-policy --bucket my-checkpoints --instance-profile trainer
aws iam create-policy --policy-name spotd --policy-document "$(spotd aws iam-policy)"      then attach it to spotd's role or user
"""


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Their place on the command line."""
    parent = verbs.add_parser(
        "aws",
        help="prepare an AWS account: queues for reclaim warnings, the least IAM policy",
        description="Prepare an AWS account. Whether it is well: `spotd doctor aws`.",
        epilog=_examples(_SETUP + _POLICY),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    inner = parent.add_subparsers(title="verbs", metavar="VERB", required=True)
    setup = _verb(inner, "setup", execute_setup, "create queue, rules and security group in each region, and see that warnings arrive", _SETUP)
    setup.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    setup.add_argument(
        "--region",
        metavar="REGION",
        type=typed_region,
        action="append",
        help="this region only; may be repeated (default: those configured, else every enabled one)",
    )
    setup.add_argument("--no-canary", action="store_true", help="do not send an event through each rule to see that it arrives")
    setup.add_argument("--json", action="store_true", help="print JSON instead of text")
    policy = _verb(inner, "iam-policy", execute_policy, "print the least IAM policy that the enabled features need", _POLICY)
    policy.add_argument(
        "--bucket", metavar="NAME", action="append", default=[], help="a bucket for checkpoints (default: that of [checkpoints] store)"
    )
    policy.add_argument(
        "--instance-profile", metavar="ROLE", action="append", default=[], help="role of an instance profile that policies name; may be repeated"
    )
    policy.add_argument("--setup", action="store_true", help="also what `spotd aws setup` needs")
    policy.add_argument("--selftest", action="store_true", help="also what `spotd selftest aws` needs for its instances, and to have one reclaimed")


def typed_region(text: str) -> str:
    """The value of --region: botocore makes no client for anything else."""
    from spotd_aws.config import region_name

    try:
        return region_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    execute: Callable[[argparse.Namespace], int],
    summary: str,
    examples: str,
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=_examples(examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="the daemon's settings (default: /etc/spotd/spotd.toml)")
    parser.set_defaults(execute=execute)
    return parser


def _examples(text: str) -> str:
    return "examples:\n" + "\n".join(f"  {line}" for line in text.strip().splitlines() if line)


def execute_setup(arguments: argparse.Namespace) -> int:
    """Set up, step by step. 0 if everything is there, 1 if something failed, 2 if it cannot run."""
    from spotd.core.errors import ProviderError
    from spotd_aws.clients import Clients
    from spotd_aws.doctor import firewall
    from spotd_aws.errors import translate
    from spotd_aws.installation import Unusable, read_installation
    from spotd_aws.setup import Orders, enabled_regions, set_up

    try:
        installation = read_installation(arguments.config)
        deployment = installation.deployment
        clients = Clients(installation.aws)
    except Unusable as error:
        complain(str(error))
        return WRONG
    except Exception as error:  # noqa: BLE001 - a profile that is not there, a broken file of credentials
        complain(str(translate(error, doing="reading the credentials")))
        return WRONG
    orders = Orders(dry_run=arguments.dry_run, canary=not arguments.no_canary)
    stop = threading.Event()
    done: list[Done] = []
    try:
        regions = arguments.region or installation.aws.regions or enabled_regions(clients)
        for report in set_up(clients, installation.aws, deployment, regions, orders, stop):
            done += report
            if not arguments.json:
                _print(report)
    except ProviderError as error:
        complain(str(error))
        return WRONG
    except KeyboardInterrupt:
        stop.set()
        complain("interrupted: what was begun is done, the rest is not. Run it again to go on")
        return INTERRUPTED
    finally:
        clients.close()
    failed = sum(one.outcome.failed for one in done)
    rule = firewall(installation)
    if arguments.json:
        say_json({"steps": [asdict(one) for one in done], "failed": failed, "firewall": rule})
    else:
        _finish(failed, rule, orders, done)
    return FAILED if failed else 0


def _print(report: Sequence[Done]) -> None:
    for one in report:
        say(f"{one.region:<15} {one.what}: {one.outcome.value}" + (f" ({one.detail})" if one.detail else ""))


def _finish(failed: int, rule: str | None, orders: Orders, done: list[Done]) -> None:
    say()
    if failed:
        say(f"{failed} of {len(done)} steps failed: mend them and run this again. `spotd aws iam-policy --setup` prints what it has to be allowed.")
    elif orders.dry_run:
        say("Nothing was done. Run it without --dry-run to do it.")
    say(rule or 'agent_api.listen names no fixed port: write one, such as "0.0.0.0:7443", and let your firewall accept it from the instances.')


def execute_policy(arguments: argparse.Namespace) -> int:
    """Print the policy. Asks AWS nothing."""
    from spotd_aws.iam_policy import Wishes, iam_policy
    from spotd_aws.installation import Unusable, read_installation

    try:
        installation = read_installation(arguments.config)
        deployment = installation.deployment
    except Unusable as error:
        complain(str(error))
        return WRONG
    buckets = tuple(arguments.bucket) or ((installation.bucket,) if installation.bucket else ())
    wishes = Wishes(buckets, tuple(arguments.instance_profile), setup=arguments.setup, selftest=arguments.selftest)
    say_json(iam_policy(installation.aws, deployment, wishes))
    return 0
