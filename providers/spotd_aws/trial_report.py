"""What a self-test saw, step by step: told while it happens, and kept as a report that can be pasted into an issue."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum, unique
from typing import Any

#: A report has no account ids and no keys in it, wherever they came from.
_ACCOUNT = re.compile(r"(?<![0-9A-Za-z])\d{12}(?![0-9A-Za-z])")
_KEY_ID = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b")
_FENCE = re.compile(r"`{3,}")


class Failed(Exception):
    """A step did not come to what it should; the message is what was seen instead."""


@unique
class Verdict(StrEnum):
    """What became of a step."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_REACHED = "not reached"


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the report."""

    title: str
    verdict: Verdict
    #: What was seen, sentence by sentence.
    evidence: tuple[str, ...] = ()
    seconds: float = 0.0


class Evidence:
    """What is seen in a step that is under way."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.seen: list[str] = []
        self._tell = tell
        self._news = ""

    def saw(self, sentence: str) -> None:
        """Something that the report says, too."""
        self.seen.append(sentence)
        self._tell(sentence)

    def news(self, sentence: str) -> None:
        """Something that is only told, once, while one waits."""
        if sentence != self._news:
            self._news = sentence
            self._tell(sentence)


class Record:
    """The steps so far."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.steps: list[Step] = []
        self._tell = tell
        self._clock = clock
        self._began = clock()

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Evidence]:
        """A step; it has passed if nothing is raised within. What is raised is recorded, and goes on."""
        began = self._clock()
        self._line(f"{title} …")
        evidence = Evidence(lambda sentence: self._line(f"  {sentence}"))
        verdict = Verdict.FAILED
        try:
            yield evidence
            verdict = Verdict.PASSED
        except KeyboardInterrupt:
            evidence.saw("interrupted")
            raise
        except Exception as error:
            evidence.saw(str(error) or type(error).__name__)
            raise
        finally:
            self.steps.append(Step(title, verdict, tuple(evidence.seen), self._clock() - began))
            self._line(f"  {verdict.value}")

    def _line(self, text: str) -> None:
        self._tell(f"[{self._clock() - self._began:5.0f} s] {text}")


@dataclass(frozen=True, slots=True)
class Discretion:
    """What the report does not say, and what it says instead."""

    words: Mapping[str, str] = field(default_factory=dict)

    def clean(self, text: str) -> str:
        """The text without account ids, keys and the words that are nobody else's business."""
        for word in sorted(filter(None, self.words), key=len, reverse=True):
            text = text.replace(word, self.words[word])
        return _KEY_ID.sub("<key>", _ACCOUNT.sub("<account>", text))


@dataclass(frozen=True, slots=True)
class Report:
    """All of it."""

    steps: Sequence[Step]
    #: Every title that there is, in order: what was not reached is said, too.
    titles: Sequence[str]
    #: Versions, regions and the like, by name.
    facts: Mapping[str, str]
    budget_usd: Decimal
    spent_usd: Decimal | None
    discretion: Discretion = field(default_factory=Discretion)
    #: The end of the daemon's and of the job's output: of interest where something failed.
    logs: Mapping[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> list[Step]:
        """The steps that were made and those that were not."""
        made = {step.title: step for step in self.steps}
        return [made.get(title, Step(title, Verdict.NOT_REACHED)) for title in self.titles]

    @property
    def passed(self) -> bool:
        """Whether every step was made, and passed."""
        return all(step.verdict is Verdict.PASSED for step in self.complete)

    def markdown(self) -> str:
        """For an issue."""
        lines = [f"## spotd selftest aws: {'passed' if self.passed else 'FAILED'}", "", "| | |", "|---|---|"]
        lines += [f"| {name} | {_cell(value)} |" for name, value in self.facts.items()]
        lines += [f"| cost | {self._cost()} |", "", "| step | | took | seen |", "|---|---|---:|---|"]
        for step in self.complete:
            took = "" if step.verdict is Verdict.NOT_REACHED else f"{step.seconds:.0f} s"
            lines.append(f"| {step.title} | {step.verdict.value} | {took} | {_cell('; '.join(step.evidence))} |")
        for name, text in self.logs.items():
            if text.strip() and not self.passed:
                lines += ["", f"<details><summary>{name}</summary>", "", "```", _FENCE.sub("'''", text.rstrip()), "```", "", "</details>"]
        return self.discretion.clean("\n".join(lines) + "\n")

    def view(self) -> dict[str, Any]:
        """For a program."""
        clean = self.discretion.clean
        return {
            "passed": self.passed,
            "facts": {name: clean(value) for name, value in self.facts.items()},
            "budget_usd": str(self.budget_usd),
            "spent_usd": None if self.spent_usd is None else str(self.spent_usd),
            "steps": [
                {
                    "title": step.title,
                    "verdict": step.verdict.value,
                    "seconds": round(step.seconds, 1),
                    "evidence": [clean(sentence) for sentence in step.evidence],
                }
                for step in self.complete
            ],
            "markdown": self.markdown(),
        }

    def _cost(self) -> str:
        if self.spent_usd is None:
            return f"not known; the budget is ${self.budget_usd}"
        return f"${self.spent_usd} of ${self.budget_usd} for instances (disks, requests and traffic come to about a cent more)"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
