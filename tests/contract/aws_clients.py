"""boto3 clients for a fake account, which check that its answers hold nothing that botocore's model does not know."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any

import boto3
from botocore.config import Config

from spotd.testing.fake_aws import FakeAws

_SESSION = boto3.session.Session(aws_access_key_id="AKIAFAKEFAKEFAKEFAKE", aws_secret_access_key="not-a-secret")
_ONCE = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=25)


def client_of(aws: FakeAws, service: str, region: str = "us-west-2") -> Any:
    """A client that calls once and repeats nothing."""
    client = _SESSION.client(service, region_name=region, endpoint_url=aws.endpoint, config=_ONCE)
    if service == "ec2":
        client.meta.events.register("before-parse.ec2.*", _check)
    return client


def _check(operation_model: Any, response_dict: Mapping[str, Any], **_: object) -> None:
    """What botocore does not know it passes over, so a misspelt element would go missing without a word."""
    if response_dict["status_code"] == 200 and operation_model.output_shape is not None:
        root = ET.fromstring(response_dict["body"])  # noqa: S314 - the fake's own
        _check_structure(root, operation_model.output_shape, operation_model.name)


def _check_structure(element: ET.Element, shape: Any, path: str) -> None:
    known = {member.serialization.get("name", name): member for name, member in shape.members.items()}
    for child in element:
        name = child.tag.rpartition("}")[2]
        if name == "requestId" and "." not in path:
            continue
        assert name in known, f"{path}.{name} is not in botocore's model: {sorted(known)}"
        member = known[name]
        if member.type_name == "structure":
            _check_structure(child, member, f"{path}.{name}")
        elif member.type_name == "list":
            for item in child:
                assert item.tag.rpartition("}")[2] == "item", f"{path}.{name} has {item.tag}"
                if member.member.type_name == "structure":
                    _check_structure(item, member.member, f"{path}.{name}[]")
        else:
            assert len(child) == 0, f"{path}.{name} is a {member.type_name}"
