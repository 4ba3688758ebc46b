"""`spotd cancel`: stop a job; it saves first."""

from __future__ import annotations

import argparse

from spotd.cli.arguments import add_verb, client_of
from spotd.cli.output import print_json
from spotd.cli.refusal import job_path

_EXAMPLES = """
spotd cancel llama-ft                    it checkpoints, stops, and its instance is ended
"""


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its place on the command line."""
    parser = add_verb(verbs, "cancel", execute, "stop a job: it checkpoints, then its instance is ended", _EXAMPLES)
    parser.add_argument("job", metavar="JOB", help="a job's id, the beginning of one, or a name")


def execute(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    answer = client_of(arguments).post(job_path(arguments.job, "/cancel"), {})
    if arguments.json:
        print_json(answer)
        return 0
    job = answer["job"]
    name = f"job {job['id'][:8]} ({job['name']})"
    if answer["changed"]:
        print(f"{name} is being cancelled; `spotd show {job['id'][:8]}` tells when it has stopped")
    elif job["outcome"]:
        print(f"{name} was over already: {job['outcome']}")
    else:
        print(f"{name} is being cancelled already")
    return 0
