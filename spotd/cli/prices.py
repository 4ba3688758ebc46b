"""`spotd prices`: how prices moved."""

from __future__ import annotations

import argparse

from spotd.cli.arguments import add_verb, client_of, count
from spotd.cli.output import print_json, print_speeds, print_table, usd, when

_EXAMPLES = """
spotd prices --since 7d --type p5.48xlarge
spotd prices --region us-west-2 --market spot --json
"""


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its place on the command line."""
    parser = add_verb(verbs, "prices", execute, "list changes of price, oldest first", _EXAMPLES)
    parser.add_argument("--since", metavar="WHEN", default="1d", help="7d, 12h, or a date such as 2026-11-30 (default: 1d)")
    parser.add_argument("--provider", metavar="NAME", help="only this provider's")
    parser.add_argument("--region", metavar="NAME", help="only in this region")
    parser.add_argument("--zone", metavar="NAME", help="only in this zone")
    parser.add_argument("--type", metavar="TYPE", help="only this instance type")
    parser.add_argument("--market", choices=("spot", "on-demand"), help="only in this market")
    parser.add_argument("--limit", metavar="N", type=count, default=1000, help="the newest so many (default: 1000)")


def execute(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    names = ("since", "provider", "region", "zone", "type", "market", "limit")
    answer = client_of(arguments).get("/v1/prices", {name: getattr(arguments, name) for name in names})
    if arguments.json:
        print_json(answer)
        return 0
    rows = [
        (when(p["seen_at"]), p["provider"], p["region"], p["zone"], p["instance_type"], p["market"], usd(p["price_usd_per_hour"]))
        for p in answer["prices"]
    ]
    if not rows:
        print("No prices were recorded in that time.")
        return 0
    print_table(("SEEN", "PROVIDER", "REGION", "ZONE", "TYPE", "MARKET", "PRICE/H"), rows, right=("PRICE/H",))
    print_speeds(answer)
    return 0
