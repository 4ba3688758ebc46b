"""`spotd status`: whether the daemon is well."""

from __future__ import annotations

import argparse
from typing import Any

from spotd.cli.arguments import add_verb, client_of
from spotd.cli.output import age, length, plain, print_json, print_pairs, print_speeds, print_table, when

_EXAMPLES = """
spotd status                             version, uptime, providers
spotd status --json | jq .providers
"""


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its place on the command line."""
    add_verb(verbs, "status", execute, "show how the daemon and its providers are", _EXAMPLES)


def execute(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    answer = client_of(arguments).get("/v1/status")
    if arguments.json:
        print_json(answer)
        return 0
    policies = answer["policies"]
    print_pairs(
        [
            ("spotd", f"{answer['version']}, pid {answer['pid']}, up {length(answer['uptime_s'])}"),
            ("deployment", answer["deployment"]),
            ("you are", answer["you"]),
            ("jobs", ", ".join(f"{number} {word}" for word, number in answer["jobs"].items()) or "none unfinished"),
            ("instances", answer["live_instances"] or "none"),
            ("strays", f"{answer['strays']} machines with our tag that no record accounts for" if answer["strays"] else None),
            ("policies", policies["problem"] or policies["directory"]),
            ("broken", ", ".join(policies["with_problems"]) + ": see `spotd policy list`" if policies["with_problems"] else None),
        ]
    )
    if answer["providers"]:
        print()
        print_table(
            ("PROVIDER", "LISTED", "PRICES", "FAILURES", "LAST ERROR"), [_row(answer, name) for name in answer["providers"]], right=("FAILURES",)
        )
        remarks = [f"{name}: {plain(remark)}" for name, health in answer["providers"].items() for remark in health.get("remarks", ())]
        if remarks:
            print("\nleft out, or done without")
            for remark in remarks:
                print(f"  {remark}")
    print_speeds(answer)
    return 0


def _row(answer: dict[str, Any], name: str) -> tuple[object, ...]:
    health = answer["providers"][name]
    suspended = answer["suspended"].get(name)
    error = health.get("last_error") or "-"
    if suspended:
        error = f"suspended until {when(suspended)}; {error}"
    return (name, age(health.get("last_listing_at")), age(health.get("last_sweep_at")), health.get("failures", 0), plain(error))
