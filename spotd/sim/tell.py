"""What the daemon recorded, in words: one line for each event of its journal, with short names for what has long ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotd.core import events as e
from spotd.daemon.journal_log import sentence

if TYPE_CHECKING:
    from datetime import datetime


class Names:
    """Short names: `job-1#2` is attempt 2 of job-1, `job-1#2.3` its third try."""

    def __init__(self) -> None:
        self._attempts: dict[str, str] = {}
        self._tries: dict[str, str] = {}
        self._machines: dict[str, str] = {}

    def attempt(self, identity: str) -> str:
        """An attempt's name."""
        return self._attempts.get(identity, identity)

    def machine(self, identity: str) -> str:
        """An instance's name: the cloud's, as soon as it is known."""
        return self._machines.get(identity) or self._tries.get(identity, identity)

    def learn(self, event: e.Event) -> None:
        """Take names from what is recorded."""
        match event:
            case e.AttemptPlaced():
                self._attempts[event.attempt_id] = f"{event.job_id}#{event.number}"
            case e.LaunchRequested(instance=instance):
                self._tries[instance.id] = f"{self.attempt(instance.attempt_id)}.{instance.try_number}"
            case e.LaunchSucceeded():
                self._machines[event.instance_id] = f"{event.provider_id} ({self._tries.get(event.instance_id, '?')})"
            case _:
                pass


def told(event: e.Event, names: Names) -> str:
    """One line."""
    names.learn(event)
    return _decision(event, names) or _launch(event, names) or _agent(event, names) or sentence(event)


def _decision(event: e.Event, names: Names) -> str | None:  # noqa: PLR0911 - one arm per kind of event, nothing else
    match event:
        case e.JobSubmitted(job=job):
            return f"{job.id} is submitted"
        case e.CancelRequested():
            return f"{event.by} cancels {event.job_id}"
        case e.AttemptPlaced():
            return f"{names.attempt(event.attempt_id)} is placed ({event.purpose})"
        case e.GateOpened():
            return f"opens the gate of {names.attempt(event.attempt_id)}: {event.because}"
        case e.DrainOrdered(order=order):
            return f"asks {names.attempt(event.attempt_id)} to save and stop until {clock(order.deadline)}: {event.because}"
        case e.AttemptEnded():
            return f"{names.attempt(event.attempt_id)} is over ({event.reason}): {event.detail}"
        case e.JobRetried():
            return f"{event.job_id} will run again, not before {clock(event.not_before)}: {event.because}"
        case e.JobFinished():
            return f"{event.job_id} {event.outcome}: {event.detail}"
        case e.AlarmRaised():
            return f"ALARM {event.alarm}: {event.message}"
        case _:
            return None


def _launch(event: e.Event, names: Names) -> str | None:  # noqa: C901, PLR0911, PLR0912 - one arm per kind of event
    match event:
        case e.LaunchRequested(instance=instance):
            offer = instance.request.offer
            return f"asks for {names.machine(instance.id)}: {offer.instance_type} {offer.market} in {offer.zone}; {instance.because}"
        case e.LaunchRepeated():
            return f"repeats the call for {names.machine(event.instance_id)}"
        case e.LaunchSucceeded():
            return f"learns that there is {names.machine(event.instance_id)}"
        case e.LaunchRefused():
            return f"is refused {names.machine(event.instance_id)}: {event.kind} ({event.scope})"
        case e.LaunchUnknown():
            return f"does not know what became of {names.machine(event.instance_id)}: {event.message}"
        case e.LaunchNotFound():
            return f"finds nothing for {names.machine(event.instance_id)}"
        case e.PriceMoved():
            return f"{names.machine(event.instance_id)} costs ${event.price_usd_per_hour} from {clock(event.at)} on"
        case e.TerminateRequested():
            return f"ends {names.machine(event.instance_id)}: {event.because}"
        case e.TerminateAcknowledged():
            return f"the end of {names.machine(event.instance_id)} is acknowledged"
        case e.TerminateFailed():
            return f"could not ask for the end of {names.machine(event.instance_id)}: {event.message}"
        case e.AbsenceProved():
            return f"{names.machine(event.instance_id)} is proved to be gone"
        case e.StrayTerminateRequested():
            return f"ends {event.provider_id}, which carries our tag and has no record"
        case _:
            return None


def _agent(event: e.Event, names: Names) -> str | None:  # noqa: PLR0911 - one arm per kind of event, nothing else
    match event:
        case e.AgentBootstrapped():
            return f"hears the agent on {names.machine(event.instance_id)} for the first time"
        case e.AgentReady():
            return f"{names.machine(event.instance_id)} is ready at the gate with {event.restored or 'nothing restored'}"
        case e.WorkloadStarted():
            return f"{names.machine(event.instance_id)} says that it runs from {event.restored or 'the start'}"
        case e.NoticeSeen(notice=notice):
            until = "" if notice.deadline is None else f", deadline {clock(notice.deadline)}"
            return f"{names.machine(event.instance_id)} was warned: {notice.kind} by {notice.source}{until}"
        case e.NoticeCancelled():
            return f"the {event.kind} of {names.machine(event.instance_id)} was called off"
        case e.CheckpointCommitted(checkpoint=checkpoint):
            return f"{checkpoint.job_id} has checkpoint {checkpoint.id} (step {checkpoint.step}, {checkpoint.trigger})"
        case e.WorkloadDrained():
            saved = "saved" if event.saved else "not saved"
            return f"{names.machine(event.instance_id)} has drained: {saved}, {event.seconds_used:.0f} s used"
        case e.WorkloadExited():
            return f"{names.machine(event.instance_id)}: the job ended with exit code {event.code}"
        case e.BootFailed():
            return f"{names.machine(event.instance_id)} did not come up: {event.detail}"
        case e.StartFailed():
            return f"{names.machine(event.instance_id)} could not start the job: {event.phase}: {event.detail}"
        case _:
            return None


def clock(instant: datetime) -> str:
    """A time of day; days are in the margin."""
    return instant.strftime("%H:%M:%S")
