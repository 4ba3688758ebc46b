"""`spotd submit`: hand in a job file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from spotd.cli.arguments import add_verb, client_of
from spotd.cli.failure import WRONG, Failure
from spotd.cli.output import plain, print_json

_EXAMPLES = """
spotd submit job.yaml                    its workdir is packed and sent, once per content
generate-job | spotd submit -            from standard input; the workdir is relative to where you are
"""


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its place on the command line."""
    parser = add_verb(verbs, "submit", execute, "hand in a job", _EXAMPLES)
    parser.add_argument("file", metavar="FILE", help="a job file (YAML), or - for standard input")


def execute(arguments: argparse.Namespace) -> int:
    """Check the file here, send what it needs, hand it in."""
    from spotd.cli.handing_in import hand_in, send_workdir, tell_warnings
    from spotd.config.errors import ConfigError
    from spotd.config.job import parse_job
    from spotd.config.yaml_tree import MAX_BYTES, decode, read_limited

    client = client_of(arguments)
    from_input = arguments.file == "-"
    name = "standard input" if from_input else arguments.file
    try:
        content = sys.stdin.buffer.read(MAX_BYTES + 1) if from_input else read_limited(Path(arguments.file), name)
        text = decode(content, name)
        parsed = parse_job(text, name)
    except ConfigError as error:
        first = error.problems[0]
        details = {"code": "invalid", "message": first.message, "hint": first.hint, "file": first.file, "line": first.line, "key": first.key}
        raise Failure(str(error), WRONG, details) from None
    body = {"yaml": text, "file": name}
    if parsed.workdir is not None:
        here = Path() if from_input else Path(arguments.file).parent
        body["workdir_sha256"] = send_workdir(client, here / parsed.workdir)
    answer = hand_in(client, body)
    if arguments.json:
        print_json(answer)
        return 0
    tell_warnings(answer)
    job = answer["job"]
    print(f"submitted {plain(job['name'])} as {job['id']}")
    print(f"  watch it: spotd logs -f {job['id'][:8]}    why it waits: spotd explain {job['id'][:8]}    stop it: spotd cancel {job['id'][:8]}")
    return 0
