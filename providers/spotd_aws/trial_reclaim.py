"""How a self-test has its instance taken away: by AWS itself, through its Fault Injection Service, or else by ending it (facts/reclaim.md §1.13)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import TYPE_CHECKING, Any

from spotd.core.errors import ProviderError
from spotd_aws.errors import reads
from spotd_aws.tags import DEPLOYMENT
from spotd_aws.trial_pace import Pace
from spotd_aws.trial_report import Failed

if TYPE_CHECKING:
    from spotd_aws.clients import Clients
    from spotd_aws.wiring import Account

_ACTION = "aws:ec2:send-spot-instance-interruptions"
_RESOURCE = "aws:ec2:spot-instance"
#: The least that FIS takes: the rebalance recommendation and the notice then come together.
_NOTICE = "PT2M"
#: So long FIS may take to begin.
_BEGIN_S = 90.0
_SHOWS = "which shows a loss without AWS's notice, and no reclaim"
_BEGUN = frozenset({"running", "completing", "completed"})
_OVER = frozenset({"failed", "stopped", "stopping", "cancelled"})


@unique
class How(StrEnum):
    """By what the instance was taken away."""

    #: As AWS does it: a notice of two minutes by every channel, then the end.
    FIS = "fis"
    #: TerminateInstances: none of AWS's channels says a word, only the machine's own shutdown; and it looks as if somebody else had ended it.
    BY_HAND = "terminate"


@dataclass(frozen=True, slots=True)
class Target:
    """The instance that is to go."""

    region: str
    instance_id: str


class Reclaimer:
    """Takes instances of one deployment away. `fis_role` is the ARN of a role that FIS may use; empty: there is none."""

    def __init__(self, clients: Clients, account: Account, deployment: str, fis_role: str, pace: Pace) -> None:
        self._clients = clients
        self._account = account
        self._deployment = deployment
        self._fis_role = fis_role
        self._pace = pace

    def reclaim(self, target: Target, saw: Callable[[str], None]) -> How:
        """Have it reclaimed; how it was done. Raises ProviderError where neither way is open."""
        if not self._fis_role:
            saw(f"no --fis-role was given: the instance is ended by TerminateInstances, {_SHOWS}")
        else:
            try:
                self._by_fis(target, saw)
            except (ProviderError, Failed) as error:
                saw(f"AWS FIS did not do it ({error}): the instance is ended by TerminateInstances, {_SHOWS}")
            else:
                return How.FIS
        with reads(f"ending {target.instance_id}", target.region):
            self._clients.get("ec2", target.region).terminate_instances(InstanceIds=[target.instance_id])
        return How.BY_HAND

    def _by_fis(self, target: Target, saw: Callable[[str], None]) -> None:
        region = target.region
        try:
            fis = self._clients.get("fis", region)
        except Exception as error:
            raise Failed(f"there is no client for FIS in {region}: {error}") from error
        with reads("making a FIS experiment template", region):
            template = str(fis.create_experiment_template(**self._template(target))["experimentTemplate"]["id"])
        try:
            with reads("starting the FIS experiment", region):
                started = fis.start_experiment(experimentTemplateId=template, tags={DEPLOYMENT: self._deployment})
                experiment = str(started["experiment"]["id"])
            self._follow(fis, region, experiment)
        finally:
            self._delete(fis, region, template, saw)
        saw(f"AWS FIS interrupted the instance ({_ACTION}, {_NOTICE})")

    def _template(self, target: Target) -> dict[str, Any]:
        arn = f"arn:{self._account.partition}:ec2:{target.region}:{self._account.id}:instance/{target.instance_id}"
        return {
            "description": f"spotd selftest {self._deployment}",
            "roleArn": self._fis_role,
            "stopConditions": [{"source": "none"}],
            "targets": {"one": {"resourceType": _RESOURCE, "resourceArns": [arn], "selectionMode": "ALL"}},
            "actions": {
                "interrupt": {"actionId": _ACTION, "parameters": {"durationBeforeInterruption": _NOTICE}, "targets": {"SpotInstances": "one"}}
            },
            "tags": {DEPLOYMENT: self._deployment},
        }

    def _follow(self, fis: Any, region: str, experiment: str) -> None:
        try:
            self._pace.until(lambda: self._begun(fis, region, experiment), "the FIS experiment has begun", _BEGIN_S)
        except Failed:
            # Only one of the two ways may be under way.
            with contextlib.suppress(ProviderError), reads("stopping the FIS experiment", region):
                fis.stop_experiment(id=experiment)
            raise

    def _begun(self, fis: Any, region: str, experiment: str) -> bool:
        try:
            with reads("following the FIS experiment", region):
                state = fis.get_experiment(id=experiment)["experiment"]["state"]
                status, reason = str(state["status"]), str(state.get("reason") or "")
        except ProviderError:
            # It is under way, whether we see it or not: asked again.
            return False
        if status in _OVER:
            raise Failed(f"the FIS experiment {status}: {reason}")
        return status in _BEGUN

    def _delete(self, fis: Any, region: str, template: str, saw: Callable[[str], None]) -> None:
        """A running experiment goes on without its template."""
        for last in (False, True):
            try:
                with reads("deleting the FIS experiment template", region):
                    fis.delete_experiment_template(id=template)
            except ProviderError as error:
                if last:
                    saw(f"the FIS experiment template stays ({error}): aws fis delete-experiment-template --region {region} --id {template}")
            else:
                return
