"""`spotd policy check` and `spotd policy list`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotd.cli.arguments import add_verb, client_of
from spotd.cli.failure import WRONG
from spotd.cli.output import note, plain, print_json, print_table
from spotd.cli.refusal import place

if TYPE_CHECKING:
    from spotd.config.errors import Problem

_EXAMPLES = """
spotd policy check my-policy.yaml        is it right? Needs no daemon
spotd policy check /etc/spotd/policies/*.yaml
spotd policy list                        what is in force, and which files are broken
"""


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its place on the command line."""
    parent = verbs.add_parser(
        "policy",
        help="check policy files, list the policies in force",
        description="Check policy files, list the policies in force.",
        epilog="examples:\n" + "\n".join(f"  {line}" for line in _EXAMPLES.strip().splitlines()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    inner = parent.add_subparsers(title="verbs", metavar="VERB", required=True)
    checker = add_verb(
        inner,
        "check",
        check,
        "check policy files; needs no daemon",
        "spotd policy check my-policy.yaml\nspotd policy check policies/*.yaml --json",
        talks=False,
    )
    checker.add_argument("files", metavar="FILE", nargs="+", help="policy files")
    add_verb(inner, "list", execute_list, "list the daemon's policies with their problems", "spotd policy list\nspotd policy list --json")


def check(arguments: argparse.Namespace) -> int:
    """Parse each file. 0 if all are right, 2 otherwise."""
    from spotd.config.errors import ConfigError
    from spotd.config.policy import parse_policy
    from spotd.config.yaml_tree import read_limited

    results: list[dict[str, Any]] = []
    for file in arguments.files:
        try:
            parsed = parse_policy(read_limited(Path(file), file), file)
        except ConfigError as error:
            results.append({"file": file, "ok": False, "problems": [_view(p) for p in error.problems], "warnings": []})
        else:
            results.append({"file": file, "ok": True, "problems": [], "warnings": [_view(w) for w in parsed.warnings]})
    if arguments.json:
        print_json({"files": results})
    else:
        for result in results:
            _print_result(result)
    return 0 if all(result["ok"] for result in results) else WRONG


def _view(problem: Problem) -> dict[str, Any]:
    return {"file": problem.file, "line": problem.line, "key": problem.key, "message": problem.message, "hint": problem.hint}


def _print_result(result: dict[str, Any]) -> None:
    for warning in result["warnings"]:
        note(f"warning: {place(warning)}")
    for problem in result["problems"]:
        note(place(problem))
    if result["ok"]:
        print(f"{plain(result['file'])}: OK")


def execute_list(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    answer = client_of(arguments).get("/v1/policies")
    if arguments.json:
        print_json(answer)
        return 0
    if answer["problem"]:
        note(answer["problem"])
    rows = answer["policies"]
    if not rows:
        print(f"No policies: add a file to {plain(answer['directory'])}.")
        return 0
    print_table(("POLICY", "STATE", "JOBS", "CANDIDATES"), [_row(entry) for entry in rows], right=("JOBS",))
    for entry in rows:
        for problem in entry["problems"]:
            print(f"\n{plain(place(problem))}")
        if entry["problems"] and entry["state"] == "broken":
            print(f"  The last good version of {entry['name']} stays in force.")
        for warning in entry["warnings"]:
            print(f"\nwarning: {plain(place(warning))}")
    return 0


def _row(entry: dict[str, Any]) -> tuple[object, ...]:
    policy = entry["policy"]
    where = "; ".join(f"{c['provider']} {'/'.join(c['instance_types'])} in {'/'.join(c['regions'])}" for c in policy["candidates"]) if policy else "-"
    return (entry["name"], entry["state"], entry["unfinished_jobs"], where)
