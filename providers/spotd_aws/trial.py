"""The steps of a self-test on a running daemon: a job, a reclaim, a resume, an end. What is seen is evidence; what is not is a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Protocol

from spotd_aws.trial_pace import Pace
from spotd_aws.trial_reclaim import How, Target
from spotd_aws.trial_report import Evidence, Failed, Record

STARTS, SAVES, RECLAIM, RESUMES = (
    "a spot instance runs the job",
    "a checkpoint is committed",
    "the instance is taken away",
    "the job goes on elsewhere",
)
SUCCEEDS, ENDS, COST = "the job succeeds", "spotd has ended every instance", "it cost no more than the budget"
TITLES = (STARTS, SAVES, RECLAIM, RESUMES, SUCCEEDS, ENDS, COST)
#: AWS ends an instance two minutes after its notice, and spotd lets it, because the first hour is then free (facts/reclaim.md §1.11).
_END_S = 480.0
#: From the notice, or the end, to spotd's word for it.
_KNOWN_S = 480.0
#: An end by hand is the machine's own shutdown where its agent tells of that before the listing tells who asked for it.
_REASONS = {How.FIS: {"reclaimed"}, How.BY_HAND: {"external", "guest_shutdown", "reclaimed"}}


class Asks(Protocol):
    """A daemon that is asked by the command line."""

    def ask(self, *words: str) -> Any:
        """The JSON that a command answers; Failed otherwise."""


class Takes(Protocol):
    """Takes an instance away."""

    def reclaim(self, target: Target, saw: Callable[[str], None]) -> How:
        """By one way or another."""


@dataclass(slots=True)
class Trial:
    """One run. The methods are the steps, in order."""

    daemon: Asks
    pace: Pace
    record: Record
    job_file: Path
    seconds: int
    budget_usd: Decimal
    #: The id of the job, once it is handed in.
    job: str = ""
    spent_usd: Decimal | None = None
    #: The attempt that loses its instance, and the last step of which a checkpoint was committed before it did.
    _attempt: int = 0
    _saved: int = 0
    _lost: str = ""
    _answer: Mapping[str, Any] = field(default_factory=dict)

    def run(self, takes: Takes) -> None:
        """All steps. Raises what stops it, which is recorded."""
        self.starts()
        self.saves()
        self.reclaim(takes)
        self.resumes()
        self.succeeds()
        self.ends()
        self.cost()

    # What is asked

    def show(self) -> Mapping[str, Any]:
        """All that spotd knows of the job."""
        answer = self.daemon.ask("show", self.job)
        self._answer = answer
        return self._answer

    def _going(self, evidence: Evidence) -> Mapping[str, Any]:
        """The same of a job that is not over."""
        answer = self.show()
        job = answer["job"]
        evidence.news(_standing(answer))
        if job["outcome"] is not None:
            raise Failed(f"the job is over too soon: {job['outcome']}, {job['detail']}")
        return answer

    # The steps

    def starts(self) -> None:
        """Hand the job in, and wait until it runs."""
        with self.record.step(STARTS) as evidence:
            self.job = str(self.daemon.ask("submit", str(self.job_file))["job"]["id"])
            evidence.saw(f"a job of {self.seconds} s was handed in")

            def runs() -> Mapping[str, Any] | None:
                answer = self._going(evidence)
                return next((a for a in answer["attempts"] if a["state"] == "running"), None)

            attempt = self.pace.until(runs, "the job runs")
            self._attempt = int(attempt["number"])
            machine = self._machine(self._attempt)
            if machine["offer"]["market"] != "spot":
                raise Failed(f"attempt {self._attempt} runs on {machine['offer']['market']} capacity")
            evidence.saw(f"attempt {self._attempt} runs on {_named(machine)}" + _boot(attempt))

    def saves(self) -> None:
        """Wait until a checkpoint is committed."""
        with self.record.step(SAVES) as evidence:
            found = self.pace.until(lambda: self._going(evidence)["checkpoints"] or None, "a checkpoint is committed")
            newest = found[-1]
            evidence.saw(f"step {newest['step']}, {newest['files']} file(s), {newest['size_bytes']} bytes")

    def reclaim(self, takes: Takes) -> None:
        """Have the instance taken away, and wait until spotd knows."""
        with self.record.step(RECLAIM) as evidence:
            # A real reclaim may have come first.
            machine = self.pace.until(lambda: self._running(evidence), "the job runs")
            self._attempt = int(machine["attempt"])
            self._lost = str(machine["provider_id"])
            how = takes.reclaim(Target(machine["offer"]["region"], self._lost), evidence.saw)

            def known() -> Mapping[str, Any] | None:
                attempt = self._numbered(self._going(evidence), self._attempt)
                return attempt if attempt["reason"] is not None else None

            attempt = self.pace.until(known, "spotd knows that the instance is lost", _KNOWN_S)
            notice = self._machine(self._attempt)["notice"]
            if attempt["reason"] not in _REASONS[how]:
                raise Failed(f"spotd takes the end of attempt {self._attempt} for {attempt['reason']}: {attempt['detail']}")
            told = f"{notice['kind']} announced by {notice['source']}" if notice else "with no notice"
            evidence.saw(f"attempt {self._attempt} ended as {attempt['reason']}, {told}")
            self._saved = max((int(c["step"] or 0) for c in self._answer["checkpoints"] if c["attempt"] == self._attempt), default=0)
            self._saved = self._saved or int(attempt["resumed_step"] or 0)
            if how is How.FIS and not attempt["saved"]:
                raise Failed(f"the notice did not end in a committed checkpoint: {attempt['detail'] or 'no reason is known'}")
            if attempt["saved"]:
                evidence.saw(f"saved in {_s(attempt['seconds_used'])} of {_s(attempt['seconds_given'])}")
            evidence.saw(f"it had reached step {attempt['step']}, and step {self._saved} is saved")

    def resumes(self) -> None:
        """Wait until another instance goes on from the last checkpoint."""
        with self.record.step(RESUMES) as evidence:

            def goes_on() -> Mapping[str, Any] | None:
                # A short rest of the job may be done before one looks: over is well, too, if it is this attempt that did it.
                answer = self.show()
                evidence.news(_standing(answer))
                later = [a for a in answer["attempts"] if a["number"] > self._attempt and a["started_at"]]
                if not later and answer["job"]["outcome"] is not None:
                    raise Failed(f"the job is over: {answer['job']['outcome']}, {answer['job']['detail']}")
                return later[0] if later else None

            attempt = self.pace.until(goes_on, "another attempt runs")
            machine = self._machine(int(attempt["number"]))
            evidence.saw(f"attempt {attempt['number']} runs on {_named(machine)}" + _boot(attempt))
            if machine["provider_id"] == self._lost:
                raise Failed("that is the instance which was taken away")
            if int(attempt["resumed_step"] or 0) != self._saved:
                raise Failed(f"it went on from step {attempt['resumed_step']}, and not from step {self._saved}")
            evidence.saw(f"it went on from step {self._saved}, the last that was saved")

    def succeeds(self) -> None:
        """Wait for the job's end."""
        with self.record.step(SUCCEEDS) as evidence:

            def over() -> Mapping[str, Any] | None:
                answer = self.show()
                evidence.news(_standing(answer))
                return answer if answer["job"]["outcome"] is not None else None

            job = self.pace.until(over, "the job is over")["job"]
            if job["outcome"] != "succeeded":
                raise Failed(f"{job['outcome']}: {job['detail']}")
            if job["step"] != self.seconds:
                raise Failed(f"it succeeded at step {job['step']} of {self.seconds}")
            evidence.saw(f"all {self.seconds} steps are done, in {job['attempts']} attempts")

    def ends(self) -> None:
        """Wait until spotd has ended its instances by itself, and knows it."""
        with self.record.step(ENDS) as evidence:

            def ended() -> bool:
                rows = self.show()["instances"]
                live = [row["provider_id"] or "a launch" for row in rows if row["state"] != "gone"]
                evidence.news(f"not yet ended: {', '.join(live)}" if live else "all are gone")
                return not live

            self.pace.until(ended, "every instance is gone", _END_S)
            made = [row for row in self._answer["instances"] if row["provider_id"]]
            evidence.saw(", ".join(f"{row['provider_id']} ended by {row['ended_by']} (${row['spend_usd']})" for row in made))

    def cost(self) -> None:
        """Ask the ledger what it came to."""
        with self.record.step(COST) as evidence:
            total = self.daemon.ask("savings")["total"]
            self.spent_usd = amount(total)
            if self.spent_usd is None:
                raise Failed(f"the ledger does not say: {total}")
            if self.spent_usd > self.budget_usd:
                raise Failed(f"${self.spent_usd}, and the budget is ${self.budget_usd}")
            evidence.saw(f"${self.spent_usd} of ${self.budget_usd}, says `spotd savings`")

    def _running(self, evidence: Evidence) -> Mapping[str, Any] | None:
        answer = self._going(evidence)
        running = [a["number"] for a in answer["attempts"] if a["state"] == "running"]
        return self._machine(max(running)) if running else None

    def _machine(self, attempt: int) -> Mapping[str, Any]:
        rows: list[Mapping[str, Any]] = [row for row in self._answer["instances"] if row["attempt"] == attempt and row["provider_id"]]
        if not rows:
            raise Failed(f"attempt {attempt} has no instance")
        return rows[-1]

    def _numbered(self, answer: Mapping[str, Any], number: int) -> Mapping[str, Any]:
        found: Mapping[str, Any] = next(a for a in answer["attempts"] if a["number"] == number)
        return found


def amount(total: Mapping[str, Any]) -> Decimal | None:
    """What a line of the savings report says was spent."""
    try:
        return Decimal(str(total["spend_usd"]))
    except (KeyError, InvalidOperation):
        return None


def _named(machine: Mapping[str, Any]) -> str:
    offer = machine["offer"]
    return f"{machine['provider_id']}, {offer['instance_type']} {offer['market']} in {offer['zone']} at ${machine['price_usd_per_hour']}/h"


def _boot(attempt: Mapping[str, Any]) -> str:
    return f", booted in {_s(attempt['boot_s'])}" if attempt.get("boot_s") is not None else ""


def _s(seconds: float | None) -> str:
    return "unknown time" if seconds is None else f"{seconds:.1f} s"


def _standing(answer: Mapping[str, Any]) -> str:
    job = answer["job"]
    hold = job["hold"]
    why = f" ({hold['why']}: {hold['detail']})" if hold else ""
    saved = f", saved step {job['checkpoint_step']}" if job["checkpoint_step"] is not None else ""
    refused = sum(1 for row in answer["instances"] if row["refusal"])
    tries = f", {refused} launches refused" if refused else ""
    return f"{job['status']}{why}{saved}{tries}"
