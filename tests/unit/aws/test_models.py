"""The short model of EC2: what is called is in it, and only that."""

from __future__ import annotations

import ast
from pathlib import Path

import botocore.loaders
import pytest
from botocore import xform_name

import spotd_aws
from spotd_aws.clients import Clients
from spotd_aws.config import read
from spotd_aws.models import OPERATIONS, cut

PACKAGE = Path(spotd_aws.__file__).parent


def _called() -> set[str]:
    """Every attribute that the package asks anything for, by name."""
    nodes = (node for path in PACKAGE.glob("*.py") for node in ast.walk(ast.parse(path.read_text())))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_every_operation_that_is_called_is_kept_and_no_other() -> None:
    """One that is missing would be missing on the client as well; one that nobody calls costs memory in every region."""
    whole = botocore.loaders.create_loader().load_service_model("ec2", "service-2")
    names = {xform_name(name): name for name in whole["operations"]}
    # Tags of other services' things go by the same word.
    called = {names[attribute] for attribute in _called() if attribute in names}
    assert called - OPERATIONS == set()
    assert OPERATIONS - called == set()


def test_a_client_is_made_from_the_short_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """In every region; other services are whole."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    clients = Clients(read({"endpoint_url": "http://127.0.0.1:1"}))
    for region in ("us-west-2", "eu-west-1"):
        ec2 = clients.get("ec2", region)
        assert set(ec2.meta.service_model.operation_names) == OPERATIONS
        assert not hasattr(ec2, "create_fleet")
    assert hasattr(clients.get("sqs", "us-west-2"), "receive_message")
    clients.close()


def test_shapes_are_kept_as_far_as_they_are_needed() -> None:
    """Lists, maps, structures that name themselves; a member called `documentation` is no documentation."""
    model = {
        "metadata": {"protocol": "ec2"},
        "operations": {"A": {"input": {"shape": "In"}, "documentation": "x"}, "B": {"input": {"shape": "Other"}}},
        "shapes": {
            "In": {"type": "structure", "members": {"documentation": {"shape": "Text"}, "Rows": {"shape": "Rows"}}, "documentation": "x"},
            "Rows": {"type": "list", "member": {"shape": "In"}},
            "Text": {"type": "string"},
            "Other": {"type": "structure", "members": {}},
        },
    }
    short = cut(model, frozenset({"A"}))
    assert short["operations"] == {"A": {"input": {"shape": "In"}}}
    assert set(short["shapes"]) == {"In", "Rows", "Text"}
    assert short["shapes"]["In"] == {"type": "structure", "members": {"documentation": {"shape": "Text"}, "Rows": {"shape": "Rows"}}}
