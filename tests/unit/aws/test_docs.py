"""The page about AWS knows every key."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotd_aws.config import AwsConfig

PAGE = Path(__file__).parents[3] / "docs" / "aws.md"


@pytest.mark.skipif(not PAGE.exists(), reason="The pages are not part of the wheel.")
def test_every_key_is_on_the_page() -> None:
    """A key that is not on the page does not exist for whoever needs it."""
    text = PAGE.read_text()
    assert [name for name in AwsConfig.model_fields if f"`{name}`" not in text and name != "places"] == []
    assert "[providers.aws.in." in text
