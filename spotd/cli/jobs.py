"""`spotd jobs`: what there is and how it goes."""

from __future__ import annotations

import argparse
from typing import Any

from spotd.cli.arguments import add_verb, client_of, count
from spotd.cli.output import age, offer, or_dash, print_json, print_speeds, print_table

_EXAMPLES = """
spotd jobs                               your colleagues' and your unfinished jobs
spotd jobs --all --owner alice           everything alice ever submitted, newest first
spotd jobs --status running --label project=legal
"""


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its place on the command line."""
    parser = add_verb(verbs, "jobs", execute, "list jobs, newest first", _EXAMPLES)
    parser.add_argument("-a", "--all", action="store_true", help="finished jobs, too")
    parser.add_argument("--owner", metavar="USER", help="only this user's")
    parser.add_argument("--policy", metavar="NAME", help="only those of this policy")
    parser.add_argument("--status", metavar="WORD", help="only those that are waiting, running, failed, …")
    parser.add_argument("--label", metavar="KEY=VALUE", action="append", default=[], help="only those with this label (repeatable)")
    parser.add_argument("--limit", metavar="N", type=count, default=1000, help="at most so many (default: 1000)")


def execute(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    query = {name: getattr(arguments, name) for name in ("all", "owner", "policy", "status", "limit")}
    answer = client_of(arguments).get("/v1/jobs", query, [("label", label) for label in arguments.label])
    if arguments.json:
        print_json(answer)
        return 0
    rows = answer["jobs"]
    if not rows:
        filtered = any((arguments.owner, arguments.policy, arguments.status, arguments.label))
        print("No jobs fit." if filtered or arguments.all else "No unfinished jobs. `spotd jobs --all` shows finished ones.")
        return 0
    head = ("JOB", "NAME", "OWNER", "POLICY", "STATUS", "STEP", "SAVED", "ATTEMPT", "PREEMPTED", "SUBMITTED", "WHERE, OR WHY NOT")
    print_table(head, map(_row, rows), right=("STEP", "SAVED", "ATTEMPT", "PREEMPTED"))
    print_speeds(answer)
    return 0


def _row(job: dict[str, Any]) -> tuple[object, ...]:
    return (
        job["id"][:8],
        job["name"],
        job["owner"],
        job["policy"],
        job["status"],
        or_dash(job["step"]),
        or_dash(job["checkpoint_step"]),
        job["attempts"],
        job["preemptions"],
        age(job["submitted_at"]),
        _where(job),
    )


def _where(job: dict[str, Any]) -> str:
    if job["outcome"]:
        return or_dash(job["detail"])
    if job["where"]:
        return offer(job["where"])
    hold = job["hold"]
    return f"{hold['why']}: {hold['detail']}" if hold else "-"
