"""`spotd offers`: what could be bought now."""

from __future__ import annotations

import argparse

from spotd.cli.arguments import add_verb, client_of
from spotd.cli.output import age, or_dash, print_json, print_speeds, print_table, rate, usd

_EXAMPLES = """
spotd offers                             everything known, cheapest first
spotd offers --type p5.48xlarge --market spot
"""


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its place on the command line."""
    parser = add_verb(verbs, "offers", execute, "list offers, cheapest first", _EXAMPLES)
    parser.add_argument("--provider", metavar="NAME", help="only this provider's")
    parser.add_argument("--region", metavar="NAME", help="only in this region")
    parser.add_argument("--type", metavar="TYPE", help="only this instance type")
    parser.add_argument("--market", choices=("spot", "on-demand"), help="only in this market")


def execute(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    answer = client_of(arguments).get("/v1/offers", {name: getattr(arguments, name) for name in ("provider", "region", "type", "market")})
    if arguments.json:
        print_json(answer)
        return 0
    rows = [
        (
            o["provider"],
            o["region"],
            o["zone"],
            o["instance_type"],
            o["market"],
            usd(o["price_usd_per_hour"]),
            age(o["seen_at"]),
            or_dash(o["source"]),
            rate(o["prior_hazard_per_hour"]),
        )
        for o in answer["offers"]
    ]
    if not rows:
        print("No offers. Prices are asked for only where a policy has candidates: see `spotd policy list` and `spotd status`.")
        return 0
    print_table(("PROVIDER", "REGION", "ZONE", "TYPE", "MARKET", "PRICE/H", "SEEN", "SOURCE", "PRIOR/H"), rows, right=("PRICE/H", "PRIOR/H"))
    if answer["more"]:
        print(f"… and {answer['more']} more: narrow it down")
    print_speeds(answer)
    return 0
