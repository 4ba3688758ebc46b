"""EC2's front: which action is which function."""

from __future__ import annotations

from collections.abc import Mapping

from spotd.testing.fake_aws import describing, launching, places, selling
from spotd.testing.fake_aws.wire import Answer, AwsError, Call, Form, answer_xml
from spotd.testing.fake_aws.world import Action, World

ACTIONS: Mapping[str, Action] = {**places.ACTIONS, **selling.ACTIONS, **launching.ACTIONS, **describing.ACTIONS}
#: What is described is not paid for with DryRun; these check it themselves, after the parameters.
_OWN_DRY_RUN = frozenset({"RunInstances", "TerminateInstances", "CreateSecurityGroup", "DeleteSecurityGroup", "CreateTags"})


def answer(world: World, call: Call) -> Answer:
    """The answer to one request. Raises AwsError."""
    form = Form.parse(call.body or call.query.encode())
    action = ACTIONS.get(call.action)
    if action is None:
        raise AwsError("InvalidAction", f"The action {call.action} is not valid for this web service.")
    content = action(world, call.region, form)
    if form.flag("DryRun") and call.action not in _OWN_DRY_RUN:
        raise AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
    return answer_xml(call.action, content)
