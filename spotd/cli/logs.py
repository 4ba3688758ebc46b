"""`spotd logs`: a job's output."""

from __future__ import annotations

import argparse
import sys

from spotd.cli.arguments import add_verb, client_of, count
from spotd.cli.failure import Failure
from spotd.cli.output import note, print_json, print_json_line
from spotd.cli.refusal import job_path

_EXAMPLES = """
spotd logs llama-ft                      the newest attempt's output
spotd logs -f llama-ft                   go on across reclaims until the job is over
spotd logs llama-ft --attempt 2
"""


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its place on the command line."""
    parser = add_verb(verbs, "logs", execute, "print a job's output", _EXAMPLES)
    parser.add_argument("job", metavar="JOB", help="a job's id, the beginning of one, or a name")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job is over, across attempts; with --json one line per piece")
    parser.add_argument("--attempt", metavar="N", type=count, help="this attempt only (default: the newest)")


def execute(arguments: argparse.Namespace) -> int:
    """Ask and print. Bytes are passed on as the job wrote them."""
    client = client_of(arguments)
    if arguments.follow:
        return _follow(arguments)
    query = {"attempt": arguments.attempt}
    headers, pieces = client.stream(job_path(arguments.job, "/logs"), query)
    number = int(headers.get("X-Spotd-Attempt", "0"))
    if arguments.json:
        text = b"".join(pieces).decode("utf-8", "replace")
        print_json({"attempt": number or None, "text": text})
        return 0
    written = 0
    for piece in pieces:
        written += len(piece)
        _write(piece)
    if written == 0:
        note(f"no output yet: `spotd explain {arguments.job}` says why")
    return 0


def _follow(arguments: argparse.Namespace) -> int:
    from spotd.cli.follow import Following

    client = client_of(arguments)
    answer = client.get(job_path(arguments.job))
    job = answer["job"]
    numbers = [attempt["number"] for attempt in answer["attempts"]]
    first = arguments.attempt or max(numbers, default=1)
    if arguments.attempt and arguments.attempt not in numbers:
        raise Failure(f"job {job['id'][:8]} has no attempt {arguments.attempt}: it has {len(numbers)} so far")
    following = Following(client, job["id"], _write_json if arguments.json else _write)
    if arguments.attempt:
        following.attempt(first)
        return 0
    ended = following.to_the_end(first)["job"]
    if not arguments.json:
        note(f"spotd: job {ended['id'][:8]} {ended['outcome']}" + (f": {ended['detail']}" if ended["detail"] else ""))
    return 0


def _write(piece: bytes) -> None:
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _write_json(piece: bytes) -> None:
    print_json_line({"text": piece.decode("utf-8", "replace")})
