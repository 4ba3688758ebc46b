"""What all tests of the AWS provider want."""

from __future__ import annotations

import functools

import botocore.session
import pytest
from botocore.loaders import create_loader

#: botocore reads its models anew for each session; as many as a test run makes, that takes longer than all the rest.
_LOADER = functools.cache(create_loader)


@pytest.fixture(autouse=True)
def _models_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions stay separate; only their models are shared."""
    monkeypatch.setattr(botocore.session, "create_loader", _LOADER)
