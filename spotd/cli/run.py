"""`spotd run -- command …`: hand in a command and watch it."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from spotd.cli.arguments import add_verb, client_of
from spotd.cli.failure import FAILED, INTERRUPTED, Failure
from spotd.cli.output import note, print_json

_EXAMPLES = """
spotd run --policy h100 -- python train.py --epochs 3
spotd run --policy h100 --name try-7 --env WANDB_MODE=offline -- 'cd src && python train.py'
"""


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its place on the command line."""
    summary = "run a command as a job and print its output; Ctrl-C detaches, the exit code is the job's"
    parser = add_verb(verbs, "run", execute, summary, _EXAMPLES)
    parser.add_argument("--policy", metavar="NAME", required=True, help="the policy that says where it may run")
    parser.add_argument("--name", metavar="NAME", help="what to call it (default: made from the command)")
    parser.add_argument("--env", metavar="NAME=VALUE", action="append", default=[], help="an environment variable (repeatable)")
    parser.add_argument("--setup", metavar="COMMAND", help="run once on each new instance before the command")
    parser.add_argument("--checkpoint-dir", metavar="DIR", help="where the job writes its checkpoints (default: checkpoints)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--workdir", metavar="DIR", type=Path, default=Path(), help="the directory to send (default: this one)")
    where.add_argument("--no-workdir", action="store_true", help="send nothing: start in an empty directory")
    parser.add_argument("command", metavar="COMMAND", nargs="+", help="after --: a command with its arguments, or one quoted shell line")


def execute(arguments: argparse.Namespace) -> int:
    """Hand in, watch, and end as the job ends."""
    from spotd.cli.handing_in import hand_in, send_workdir, tell_warnings

    client = client_of(arguments)
    spec = _spec(arguments)
    body: dict[str, Any] = {"spec": spec, "file": "command line"}
    if not arguments.no_workdir:
        body["workdir_sha256"] = send_workdir(client, arguments.workdir)
    answer = hand_in(client, body)
    tell_warnings(answer)
    job = answer["job"]
    short = job["id"][:8]
    note(f"spotd: job {short} ({job['name']}) submitted; Ctrl-C detaches, `spotd cancel {short}` stops it")
    from spotd.cli.follow import Following

    out = sys.stderr.buffer if arguments.json else sys.stdout.buffer

    def write(piece: bytes) -> None:
        out.write(piece)
        out.flush()

    try:
        final = Following(client, job["id"], write).to_the_end()
    except KeyboardInterrupt:
        note(f"\nspotd: detached; the job goes on. Watch it: spotd logs -f {short}    stop it: spotd cancel {short}")
        return INTERRUPTED
    if arguments.json:
        print_json(final)
    ended = final["job"]
    note(f"spotd: job {short} {ended['outcome']}" + (f": {ended['detail']}" if ended["detail"] else ""))
    return exit_code(final)


def exit_code(final: dict[str, Any]) -> int:
    """The job's own exit code as a shell would give it; 1 when it failed without one."""
    if final["job"]["outcome"] == "succeeded":
        return 0
    codes = [attempt["exit_code"] for attempt in final["attempts"] if attempt["exit_code"] is not None]
    code = codes[-1] if codes and final["job"]["outcome"] == "failed" else FAILED
    if code < 0:
        return min(128 - code, 255)
    return code if 0 < code < 256 else FAILED


def _spec(arguments: argparse.Namespace) -> dict[str, Any]:
    env = {}
    for item in arguments.env:
        name, equals, value = item.partition("=")
        if not equals:
            raise Failure(f"--env {item}: write NAME=VALUE")
        env[name] = value
    words = arguments.command
    # One word with spaces is a shell line that was quoted; several words are a command whose words must stay what they are.
    command = words[0] if len(words) == 1 else shlex.join(words)
    spec: dict[str, Any] = {"name": arguments.name or _name(words), "policy": arguments.policy, "run": command, "env": env}
    if arguments.setup:
        spec["setup"] = arguments.setup
    if arguments.checkpoint_dir:
        spec["checkpoint"] = {"dir": arguments.checkpoint_dir}
    if not arguments.no_workdir:
        spec["workdir"] = "."
    return spec


def _name(words: list[str]) -> str:
    """A name from the command: its script, or its program."""
    parts = words if len(words) > 1 else words[0].split()
    script = next((p for p in parts[1:] if p.endswith((".py", ".sh"))), parts[0] if parts else "job")
    stem = Path(script).name.rsplit(".", 1)[0] if script.endswith((".py", ".sh")) else Path(script).name
    cleaned = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in stem).strip("-._")
    return cleaned[:40] or "job"
