"""`spotd savings`: what was spent, what it would have cost, and what was wasted."""

from __future__ import annotations

import argparse
from typing import Any

from spotd.cli.arguments import add_verb, client_of
from spotd.cli.output import plain, print_json, print_speeds, print_table, usd

_EXAMPLES = """
spotd savings --since 30d --by job
spotd savings --since 2026-11-01 --until 2026-12-01 --by owner --json
"""


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its place on the command line."""
    parser = add_verb(verbs, "savings", execute, "report spend, on-demand baseline, net saving and waste", _EXAMPLES)
    parser.add_argument("--since", metavar="WHEN", help="30d, 12h, or a date (default: from the beginning)")
    parser.add_argument("--until", metavar="WHEN", help="1d (so long ago), or a date (default: now)")
    parser.add_argument("--by", metavar="WHAT", default="job", help="job, policy, provider, region, market, owner or day (default: job)")


def execute(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    answer = client_of(arguments).get("/v1/savings", {name: getattr(arguments, name) for name in ("since", "until", "by")})
    if arguments.json:
        print_json(answer)
        return 0
    rows = answer.get("rows", [])
    if not rows:
        print("Nothing was billed in that time.")
    else:
        total = {**answer["total"], "title": "total", "key": ""}
        head = (str(arguments.by).upper(), "SPEND", "BASELINE", "SAVING", "SAVED", "WASTE", "BILLED H", "USEFUL H")
        table = [_row(row, arguments.by) for row in (*rows, total)]
        print_table(head, table, right=head[1:])
        _print_waste(total)
    for provider, number in (answer.get("left_out") or {}).items():
        print(f"\n{plain(provider)}: {number} instances are left out: the provider is not configured, so its billing rule is not known.")
    print_speeds(answer)
    return 0


def _row(row: dict[str, Any], by: str) -> tuple[object, ...]:
    key = str(row["key"])
    title = f"{row['title']} ({key[:8]})" if by == "job" and key else row["title"] or key
    share = row["saving_pct"]
    return (
        title,
        usd(row["spend_usd"]),
        usd(row["baseline_usd"]),
        usd(row["saving_usd"]),
        "-" if share is None else f"{share:.1f} %",
        usd(row["waste_usd"]),
        f"{row['billed_hours']:.2f}",
        f"{row['useful_hours']:.2f}",
    )


def _print_waste(total: dict[str, Any]) -> None:
    waste = total.get("waste") or {}
    causes = [(cause, f"{line['hours']:.2f}", usd(line["usd"])) for cause, line in waste.items() if line["hours"]]
    if causes:
        print("\nwaste by cause (part of the spend above)")
        print_table(("CAUSE", "HOURS", "COST"), causes, right=("HOURS", "COST"))
    unpriced = total.get("unpriced_hours") or 0
    if unpriced:
        print(f"\n{unpriced:.2f} useful hours have no baseline: no on-demand price was known when they began.")
