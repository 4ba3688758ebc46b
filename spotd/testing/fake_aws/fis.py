"""AWS FIS as far as it interrupts spot instances: an experiment here really reclaims (facts/reclaim.md §1.13)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from spotd.core.offer import Market
from spotd.testing.fake_aws.catalogue import digest
from spotd.testing.fake_aws.instances import FakeInstance, State
from spotd.testing.fake_aws.reclaim import Reclaim, Reclaimer
from spotd.testing.fake_aws.wire import Answer, AwsError, Call, answer_json
from spotd.testing.fake_aws.world import World

_ACTION = "aws:ec2:send-spot-instance-interruptions"
_RESOURCE = "aws:ec2:spot-instance"
_DURATION = re.compile(r"PT(?:(\d+)M)?(?:(\d+)S)?")
_NOTICE_S = 120.0
_LONGEST_S = 900.0
#: From the start to the hint, with which the experiment's action begins.
_INITIATING_S = 2.0


@dataclass(slots=True)
class _Experiment:
    id: str
    region: str
    template: Mapping[str, Any]
    template_id: str
    started_at: datetime
    status: str = "initiating"
    reason: str = ""
    ended_at: datetime | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


class Laboratory:
    """Experiment templates and experiments of the account."""

    def __init__(self, world: World, reclaimer: Reclaimer) -> None:
        self._world = world
        self._reclaimer = reclaimer
        self._templates: dict[tuple[str, str], dict[str, Any]] = {}
        self._experiments: dict[tuple[str, str], _Experiment] = {}

    def answer(self, call: Call) -> Answer:
        """One request."""
        name = call.path.strip("/").partition("/")[2]
        try:
            asked: dict[str, Any] = json.loads(call.body or b"{}")
        except ValueError:
            raise AwsError("ValidationException", "The request's body is not JSON.") from None
        match call.action:
            case "CreateExperimentTemplate":
                return _json({"experimentTemplate": self._create(call.region, asked)})
            case "GetExperimentTemplate":
                return _json({"experimentTemplate": self._template(call.region, name)})
            case "DeleteExperimentTemplate":
                template = self._template(call.region, name)
                del self._templates[call.region, name]
                return _json({"experimentTemplate": template})
            case "StartExperiment":
                return _json({"experiment": _row(self._start(call.region, asked))})
            case "GetExperiment" | "StopExperiment":
                experiment = self._experiment(call.region, name)
                if call.action == "StopExperiment" and experiment.status == "initiating":
                    experiment.status = "stopped"
                return _json({"experiment": _row(experiment)})
            case _:
                raise AwsError("ValidationException", f"The fake's FIS does not know {call.method} {call.path}.")

    def _create(self, region: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        actions, targets = asked.get("actions", {}), asked.get("targets", {})
        if not asked.get("roleArn") or not asked.get("stopConditions") or not actions:
            raise AwsError("ValidationException", "roleArn, stopConditions and actions are required.")
        for action in actions.values():
            if action.get("actionId") != _ACTION:
                raise AwsError("ValidationException", f"The fake's FIS knows the action {_ACTION} only.")
            _seconds(action.get("parameters", {}).get("durationBeforeInterruption", ""))
            for target in action.get("targets", {}).values():
                if targets.get(target, {}).get("resourceType") != _RESOURCE:
                    raise AwsError("ValidationException", f"The target {target} is missing, or is not of type {_RESOURCE}.")
        ident = f"EXT{digest(region, len(self._templates), asked.get('clientToken')):020d}"
        kept = {key: asked[key] for key in ("description", "roleArn", "stopConditions", "actions", "targets", "tags") if key in asked}
        template = kept | {"id": ident, "arn": f"arn:aws:fis:{region}:{self._world.account}:experiment-template/{ident}"}
        self._templates[region, ident] = template
        return template

    def _template(self, region: str, name: str) -> dict[str, Any]:
        if (region, name) not in self._templates:
            raise AwsError("ResourceNotFoundException", f"The experiment template {name} does not exist.", 404)
        return self._templates[region, name]

    def _experiment(self, region: str, name: str) -> _Experiment:
        if (region, name) not in self._experiments:
            raise AwsError("ResourceNotFoundException", f"The experiment {name} does not exist.", 404)
        return self._experiments[region, name]

    def _start(self, region: str, asked: Mapping[str, Any]) -> _Experiment:
        template = self._template(region, str(asked.get("experimentTemplateId")))
        now = self._world.fleet.clock.now()
        ident = f"EXP{digest(region, len(self._experiments), asked.get('clientToken')):020d}"
        experiment = _Experiment(ident, region, template, template["id"], now, tags=asked.get("tags", {}))
        self._experiments[region, ident] = experiment
        self._world.fleet.after(now, _INITIATING_S, lambda at: self._run(experiment, at))
        return experiment

    def _run(self, experiment: _Experiment, at: datetime) -> None:
        """The hint at once, the notice two minutes before the end."""
        if experiment.status != "initiating":
            return
        longest = 0.0
        for action in experiment.template["actions"].values():
            seconds = _seconds(action["parameters"]["durationBeforeInterruption"])
            longest = max(longest, seconds - _NOTICE_S)
            hit = {one.instance_id: one for target in action.get("targets", {}).values() for one in self._resolve(experiment, target)}
            if not hit:
                experiment.status, experiment.reason, experiment.ended_at = "failed", "Target resolution returned empty set", at
                return
            for instance in hit.values():
                plan = Reclaim(rebalance=True, rebalance_lead_s=seconds - _NOTICE_S, code="instance-terminated-by-experiment")
                self._reclaimer.begin(instance, plan, at)
        experiment.status = "running"

        def completed(then: datetime) -> None:
            experiment.status, experiment.ended_at = "completed", then

        self._world.fleet.agenda.at(at + timedelta(seconds=longest), completed)

    def _resolve(self, experiment: _Experiment, name: str) -> list[FakeInstance]:
        target = experiment.template["targets"][name]
        arns, tags = set(target.get("resourceArns", ())), target.get("resourceTags", {})
        found = [
            instance
            for instance in self._world.fleet.in_region(experiment.region)
            if instance.lifecycle is Market.SPOT
            and instance.state is State.RUNNING
            and (not arns or f"arn:aws:ec2:{instance.region}:{self._world.account}:instance/{instance.instance_id}" in arns)
            and all(instance.tags.get(key) == value for key, value in tags.items())
        ]
        if not arns and not tags:
            return []
        count = re.fullmatch(r"COUNT\((\d+)\)", target.get("selectionMode", "ALL"))
        return found[: int(count[1])] if count else found


def _seconds(duration: str) -> float:
    """An ISO duration of PT2M to PT15M."""
    match = _DURATION.fullmatch(duration)
    seconds = 60.0 * int(match[1] or 0) + int(match[2] or 0) if match else 0.0
    if not _NOTICE_S <= seconds <= _LONGEST_S:
        raise AwsError("ValidationException", f"durationBeforeInterruption is {duration!r}, not from PT2M to PT15M.")
    return seconds


def _row(experiment: _Experiment) -> dict[str, Any]:
    template = experiment.template
    state = {"status": experiment.status, "reason": experiment.reason or f"Experiment {experiment.status}."}
    row: dict[str, Any] = {
        "id": experiment.id,
        "experimentTemplateId": experiment.template_id,
        "roleArn": template["roleArn"],
        "state": state,
        "targets": template.get("targets", {}),
        "actions": {name: action | {"state": state} for name, action in template["actions"].items()},
        "stopConditions": template["stopConditions"],
        "creationTime": experiment.started_at.timestamp(),
        "startTime": experiment.started_at.timestamp(),
        "tags": dict(experiment.tags),
    }
    if experiment.ended_at is not None:
        row["endTime"] = experiment.ended_at.timestamp()
    return row


def _json(content: Mapping[str, object]) -> Answer:
    plain = answer_json(content)
    return Answer(plain.status, plain.body, {"Content-Type": "application/json"})
