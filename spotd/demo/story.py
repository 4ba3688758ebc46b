"""The journal in human words, and what is known so far: all of it from the daemon's own API."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from spotd.cli.output import plain, usd
from spotd.demo import scene

_LINES_KEPT = 200


@dataclass
class Story:
    """What happened and how things stand."""

    began: datetime
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES_KEPT))
    events: list[dict[str, Any]] = field(default_factory=list)
    #: The answer of `GET /v1/jobs/ID`, the newest there is; empty before the first.
    shown: dict[str, Any] = field(default_factory=dict)
    offers: list[dict[str, Any]] = field(default_factory=list)
    #: By zone: whether its spot price went up (1), down (-1) or has not moved since the beginning (0).
    trend: dict[str, int] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _purposes: dict[int, str] = field(default_factory=dict)
    _instances: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    _noticed: set[str] = field(default_factory=set)

    def hear(self, event: dict[str, Any]) -> str | None:
        """Take one event of the journal; the line to tell, if it is worth one."""
        self.events.append(event)
        text = self._tell(event["kind"], event["fields"])
        if text is None:
            return None
        line = f"[{self.seconds(event['at']):5.1f} s] {plain(text)}"
        self.lines.append(line)
        return line

    def say(self, text: str, now: datetime) -> str:
        """A line of our own among the journal's."""
        line = f"[{(now - self.began).total_seconds():5.1f} s] {text}"
        self.lines.append(line)
        return line

    def price(self, offers: list[dict[str, Any]]) -> None:
        """Take the newest prices."""
        before = {self._zone(o): float(o["price_usd_per_hour"]) for o in self.offers if o["market"] == "spot"}
        for offer in offers:
            zone, price = self._zone(offer), float(offer["price_usd_per_hour"])
            if offer["market"] == "spot" and zone in before and price != before[zone]:
                self.trend[zone] = 1 if price > before[zone] else -1
        self.offers = offers

    def seconds(self, at: str | None) -> float:
        """An instant of the daemon's as seconds since the beginning."""
        return 0.0 if at is None else (datetime.fromisoformat(at) - self.began).total_seconds()

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """Every attempt, oldest first."""
        return list(self.shown.get("attempts", ()))

    @property
    def outcome(self) -> str | None:
        """How the job ended, if it has."""
        found = self.shown.get("job", {}).get("outcome")
        return None if found is None else str(found)

    def machine(self, number: int) -> dict[str, Any]:
        """The instance of an attempt: its last try."""
        tries = [i for i in self.shown.get("instances", ()) if i["attempt"] == number]
        return max(tries, key=lambda i: int(i["try"]), default={})

    def zone_of(self, number: int) -> str:
        """Where an attempt is or was."""
        return self._zone(self.machine(number).get("offer", {}))

    def last_checkpoint(self) -> dict[str, Any]:
        """The newest committed checkpoint, as the journal recorded it; empty when there is none."""
        found = [e["fields"]["checkpoint"] for e in self.events if e["kind"] == "checkpoint_committed"]
        return max(found, key=lambda c: (c["attempt"], c["sequence"]), default={})

    def _tell(self, kind: str, fields: dict[str, Any]) -> str | None:
        match kind:
            case "job_submitted":
                return f"the job is handed in: {scene.STEPS} steps, a checkpoint every {scene.CHECKPOINT_EVERY}"
            case "attempt_placed":
                self._numbers[fields["attempt_id"]] = fields["number"]
                self._purposes[fields["number"]] = fields["purpose"]
                return None
            case "launch_requested":
                return self._requested(fields["instance"])
            case "drain_ordered":
                return f"attempt {self._numbers.get(fields['attempt_id'])}: asked to save and stop, {fields['because']}"
            case "job_finished":
                return f"the job {fields['outcome']}: {fields['detail']}"
            case "alarm_raised":
                return f"alarm: {fields['message']}"
            case _:
                return self._of_instance(kind, fields) if fields.get("instance_id") in self._instances else None

    def _requested(self, instance: dict[str, Any]) -> str:
        offer = instance["request"]["offer"]
        if isinstance(offer, (list, tuple)):
            offer = dict(zip(("provider", "region", "zone", "instance_type", "market"), offer, strict=False))
        number = self._numbers.get(instance["attempt_id"], 0)
        self._instances[instance["id"]] = (number, offer)
        back = "back to spot: " if self._purposes.get(number) == "return" else ""
        why = instance["because"].partition(";")[0] if offer["market"] != "spot" else ""
        text = f"attempt {number}: {back}asks for {offer['market']} in {self._zone(offer)} at {usd(instance['price_usd_per_hour'])}/h"
        return f"{text} ({why})" if why else text

    def _of_instance(self, kind: str, fields: dict[str, Any]) -> str | None:
        number, offer = self._instances[fields["instance_id"]]
        zone = self._zone(offer)
        if kind == "notice_seen":
            return self._noticed_at(number, zone, fields)
        words = _words(kind, zone, fields)
        return None if words is None else f"attempt {number}: {words}"

    def _noticed_at(self, number: int, zone: str, fields: dict[str, Any]) -> str | None:
        """The first channel that warns is told; the second is no news."""
        if fields["instance_id"] in self._noticed:
            return None
        self._noticed.add(fields["instance_id"])
        notice = fields["notice"]
        left = ""
        if notice["deadline"]:
            seconds = datetime.fromisoformat(notice["deadline"]) - datetime.fromisoformat(fields["at"])
            left = f" in {seconds.total_seconds():.1f} s"
        return f"RECLAIM: {zone} takes attempt {number}'s machine away{left}"

    @staticmethod
    def _zone(offer: dict[str, Any]) -> str:
        return str(offer.get("zone", "?"))


def _words(kind: str, zone: str, fields: dict[str, Any]) -> str | None:  # noqa: PLR0911 - a table of sentences
    """What happened to one machine."""
    match kind:
        case "launch_refused":
            return f"{zone} refuses, {fields['message']}"
        case "launch_succeeded":
            return f"a machine in {zone} boots"
        case "workload_started":
            step = fields["restored_step"]
            return f"trains in {zone} " + ("from the beginning" if step is None else f"on from step {step}")
        case "checkpoint_committed":
            return f"checkpoint of step {fields['checkpoint']['step']} is committed"
        case "workload_drained":
            saved = f"saved step {fields['step']}" if fields["saved"] else "saved nothing new"
            return f"{saved} and stopped, {fields['seconds_used']:.1f} s of {fields['seconds_given'] or 0.0:.1f} used"
        case "workload_exited":
            return f"training ended at step {fields['step']} with exit code {fields['code']}"
        case "start_failed":
            return f"could not start ({fields['phase']}): {fields['detail']}"
        case "launch_unknown" | "terminate_failed":
            return f"{zone}: {fields['message']}"
        case _:
            return None
