"""AWS's own SSM parameters: the ids of public images. Parameters of the account are moto's."""

from __future__ import annotations

import json

from spotd.testing.fake_aws.wire import Answer, AwsError, Call, answer_json
from spotd.testing.fake_aws.world import World

_PREFIX = "/aws/service/"


def answer(world: World, call: Call) -> Answer | None:
    """GetParameter and GetParameters of public names; None for what is not ours."""
    if call.action not in {"GetParameter", "GetParameters"}:
        return None
    question = json.loads(call.body or b"{}")
    names = question.get("Names", []) if call.action == "GetParameters" else [question.get("Name", "")]
    if not all(str(name).startswith(_PREFIX) for name in names):
        return None
    found = {image.parameter: _row(call.region, image.parameter, image.id) for image in world.fleet.catalogue.images.get(call.region, ())}
    if call.action == "GetParameters":
        rows = [found[name] for name in names if name in found]
        return answer_json({"Parameters": rows, "InvalidParameters": [name for name in names if name not in found]})
    if names[0] not in found:
        raise AwsError("ParameterNotFound", f"The parameter {names[0]} does not exist.")
    return answer_json({"Parameter": found[names[0]]})


def _row(region: str, name: str, value: str) -> dict[str, object]:
    arn = f"arn:aws:ssm:{region}::parameter{name}"
    return {"Name": name, "Type": "String", "Value": value, "Version": 1, "ARN": arn, "DataType": "aws:ec2:image"}
