"""`spotd events`: the journal."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from spotd.cli.arguments import add_verb, client_of, count
from spotd.cli.output import note, plain, print_json, print_json_line, when
from spotd.cli.refusal import Away

if TYPE_CHECKING:
    from spotd.cli.client import Client

_EXAMPLES = """
spotd events -f                          everything, as it happens
spotd events --job llama-ft --limit 50
spotd events --kind notice_seen --kind attempt_ended
"""
#: How long one request may wait for something to happen, and how long until the daemon is asked again after it went away.
_WAIT_S = 25
_AGAIN_S = 2.0


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its place on the command line."""
    parser = add_verb(verbs, "events", execute, "show what happened: the daemon's journal", _EXAMPLES)
    parser.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C; with --json one line per event")
    parser.add_argument("--job", metavar="JOB", help="only what is about this job")
    parser.add_argument("--kind", metavar="WORD", action="append", default=[], help="only events of this kind (repeatable)")
    parser.add_argument("--after", metavar="SEQ", type=count, help="from this place of the journal on, instead of the newest")
    parser.add_argument("--limit", metavar="N", type=count, default=100, help="at most so many (default: 100)")


def execute(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    client = client_of(arguments)
    repeated = [("kind", kind) for kind in arguments.kind]
    query = {"job": arguments.job, "limit": arguments.limit, "after": arguments.after}
    answer = client.get("/v1/events", query, repeated)
    if arguments.json and not arguments.follow:
        print_json(answer)
        return 0
    _print(answer["events"], as_json=arguments.json)
    if arguments.follow:
        _follow(client, arguments, repeated, answer["last"])
    elif not answer["events"]:
        print("Nothing was recorded yet.")
    return 0


def _follow(client: Client, arguments: argparse.Namespace, repeated: list[tuple[str, str]], last: int) -> None:
    away = False
    while True:
        try:
            answer = client.get("/v1/events", {"job": arguments.job, "after": last, "limit": 1000, "wait": _WAIT_S}, repeated)
        except Away as failure:
            # A restart of the daemon is no reason to stop following.
            if not away:
                note(f"{failure.message}; going on as soon as it is back")
            away = True
            time.sleep(_AGAIN_S)
            continue
        away = False
        last = answer["last"]
        _print(answer["events"], as_json=arguments.json)


def _print(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    for row in rows:
        if as_json:
            print_json_line(row)
        else:
            job = f" job={row['job_id'][:8]}" if row["job_id"] else ""
            print(f"{row['seq']:>6}  {when(row['at'])}  {row['kind']}{job}{_said(row['fields'])}", flush=True)


def _said(fields: dict[str, Any]) -> str:
    """The parts of an event that are words or numbers; whole rows are left to --json."""
    shown = ""
    for key, value in fields.items():
        if key in {"at", "job_id", "attempt_id"} or value in (None, "") or isinstance(value, (dict, list)):
            continue
        text = plain(value).replace("\n", " ")
        if key.endswith("_id"):
            text = text[:8]
        shown += f' {key}="{text}"' if " " in text else f" {key}={text}"
    return shown
