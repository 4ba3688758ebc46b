"""Refusals of the daemon, and its absence. Apart from `client`, so that a verb can name them without the cost of importing HTTP."""

from __future__ import annotations

from typing import Any

from spotd.cli.failure import FAILED, WRONG, Failure


class Away(Failure):
    """The daemon cannot be reached, or went away while it answered: those who follow something may ask again."""


class Refusal(Failure):
    """The daemon's own words."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        self.status = status
        self.error = error
        super().__init__(_sentence(error), FAILED if status in {403, 409} and error.get("code") != "ambiguous" else WRONG, error)


def job_path(ref: str, rest: str = "") -> str:
    """The address of a job, whatever the user called it."""
    from urllib.parse import quote

    return f"/v1/jobs/{quote(ref, safe='')}{rest}"


def _sentence(error: dict[str, Any]) -> str:
    """The daemon's refusal for a person: every problem of a file on a line of its own."""
    problems = error.get("problems")
    if isinstance(problems, list) and problems:
        lines = [place(problem) for problem in problems]
        if error.get("more"):
            lines.append(f"… and {error['more']} more")
        return "\n".join(lines)
    return place(error)


def place(problem: dict[str, Any]) -> str:
    """`file:line: key: message (hint)`, as far as each is known."""
    file, line = problem.get("file"), problem.get("line")
    where = f"{file}:{line}: " if file and line else f"{file}: " if file else ""
    key = f"{problem['key']}: " if problem.get("key") else ""
    hint = f" ({problem['hint']})" if problem.get("hint") else ""
    return f"{where}{key}{problem.get('message', 'refused')}{hint}"
