"""What a check of the account finds, and how a question is put to AWS whose refusal is itself the finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import TypeVar

from spotd.core.errors import NotAuthorized, ProviderError, Throttled
from spotd_aws.errors import reads

_Answer = TypeVar("_Answer")
#: What a region says that the account has not enabled (facts/cloud-api.md §1.1). The last is what services other than EC2 say.
DISABLED = frozenset({"AuthFailure", "OptInRequired", "UnrecognizedClientException", "InvalidClientTokenId"})


@unique
class State(StrEnum):
    """How it stands with one thing."""

    OK = "ok"
    #: Worth knowing; nothing has to be done.
    NOTE = "note"
    PROBLEM = "problem"
    #: It could not be found out.
    UNKNOWN = "unknown"

    @property
    def well(self) -> bool:
        """Whether nothing has to be done."""
        return self in (State.OK, State.NOTE)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    #: A region, or `account`, or `host`.
    where: str
    subject: str
    state: State
    says: str = ""
    #: What to do; empty where nothing is to be done.
    fix: str = ""


@dataclass(slots=True)
class Notes:
    """The findings of one place as they are made."""

    where: str
    findings: list[Finding] = field(default_factory=list)

    def add(self, subject: str, state: State, says: str = "", fix: str = "") -> None:
        """One more."""
        self.findings.append(Finding(self.where, subject, state, says, fix))

    def ask(self, subject: str, action: str, call: Callable[[], _Answer]) -> _Answer | None:
        """The answer; None, and a finding, where there is none. `action` is the permission, in IAM's words, that it takes."""
        region = "" if self.where == "account" else self.where
        try:
            with reads(f"checking {action}", region):
                return call()
        except ProviderError as error:
            self.failed(subject, action, error)
        return None

    def failed(self, subject: str, action: str, error: ProviderError) -> None:
        """A question that was not answered."""
        if isinstance(error, NotAuthorized):
            fix = f"allow {action}: `spotd aws iam-policy` prints the whole policy"
            self.add(subject, State.PROBLEM, f"{action} is not permitted", fix)
        else:
            fix = (
                "AWS limits such questions: run it again in a minute"
                if isinstance(error, Throttled)
                else "run it again; if it stays, look at it by hand"
            )
            self.add(subject, State.UNKNOWN, str(error), fix)
