"""botocore's description of EC2, cut down to what spotd calls.

The whole of it has 750 operations: 25 MB once for each session, and 1.4 MB more for each region's client, which with twenty regions is a third of
the daemon's memory. botocore takes another loader of models as a component of its session; this one leaves out what is not in `OPERATIONS`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

#: Every operation of EC2 that anything in this package calls; a test compares this with the code.
OPERATIONS = frozenset({
    "CreateSecurityGroup", "DescribeAvailabilityZones", "DescribeImages",
    "DescribeInstanceTypeOfferings", "DescribeInstanceTypes", "DescribeInstances", "DescribeRegions", "DescribeSecurityGroups",
    "DescribeSpotInstanceRequests", "DescribeSpotPriceHistory", "DescribeSubnets", "DescribeVpcs",
    "GetSpotPlacementScores", "RevokeSecurityGroupIngress", "RunInstances", "TerminateInstances",
})  # fmt: skip
_SERVICE, _KIND = "ec2", "service-2"


class LeanLoader:
    """A loader of models that gives out the short one of EC2 and is otherwise the session's own."""

    def __init__(self, loader: Any, data_path: str | None) -> None:
        self._loader = loader
        self._data_path = data_path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def load_service_model(self, service_name: str, type_name: str, api_version: str | None = None) -> Any:
        """As botocore's loader has it."""
        if (service_name, type_name) == (_SERVICE, _KIND):
            return _lean(self._data_path, api_version)
        return self._loader.load_service_model(service_name, type_name, api_version)


def make_lean(session: Any) -> None:
    """Let a botocore session make its clients from the short model."""
    data_path = session.get_config_variable("data_path")
    session.register_component("data_loader", LeanLoader(session.get_component("data_loader"), data_path))


@cache
def _lean(data_path: str | None, api_version: str | None) -> Any:
    from botocore.loaders import create_loader

    # By a loader of its own, which is thrown away together with the whole model.
    return cut(create_loader(data_path).load_service_model(_SERVICE, _KIND, api_version), OPERATIONS)


def cut(model: Any, operations: frozenset[str]) -> dict[str, Any]:
    """A service's model with these operations only, the shapes that they need, and no documentation."""
    kept = {name: _undocumented(operation) for name, operation in model["operations"].items() if name in operations}
    shapes: dict[str, Any] = {}
    wanted = [operation[side]["shape"] for operation in kept.values() for side in ("input", "output") if side in operation] + [
        error["shape"] for operation in kept.values() for error in operation.get("errors", ())
    ]
    while wanted:
        name = wanted.pop()
        if name not in shapes:
            shapes[name] = shape = _undocumented(model["shapes"][name])
            wanted += [reference["shape"] for reference in _references(shape)]
    return {**model, "operations": kept, "shapes": shapes}


def _references(shape: Any) -> list[Any]:
    members = shape.get("members", {})
    return [*members.values(), *(shape[side] for side in ("member", "key", "value") if isinstance(shape.get(side), dict))]


def _undocumented(value: Any) -> Any:
    """Without the text, at any depth."""
    if isinstance(value, dict):
        return {key: _undocumented(inner) for key, inner in value.items() if key != "documentation" or not isinstance(inner, str)}
    return [_undocumented(inner) for inner in value] if isinstance(value, list) else value
