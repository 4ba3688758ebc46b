"""The `[providers.local]` table: defaults that work, errors that name the key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spotd_local import build
from spotd_local.config import ConfigError, read
from tests.unit.local.clouds import cloud, market_document, request

if TYPE_CHECKING:
    from pathlib import Path


def test_a_root_is_all_that_must_be_said(tmp_path: Path) -> None:
    """With only a root, the shipped market is replayed 600 times faster with a notice of six real seconds."""
    provider = build({"root": str(tmp_path / "cloud")}, "dep")
    capabilities = provider.capabilities
    assert provider.regions() == ("us-east-1", "us-east-2", "us-west-2")
    assert (capabilities.billing_rule, capabilities.billing_speed) == ("aws", 600)
    assert capabilities.notice.total_seconds() == 6
    assert (capabilities.notice_channel, capabilities.remote) == (True, False)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("start", "77", "77' is not a duration"),
        ("notice", 6, "a duration with a unit"),
        ("notice", "six", "is not a duration"),
        ("speed", 0, "greater than or equal to 1"),
        ("speed", "fast", "integer"),
        ("metadata_poll", "0s", "greater than 0"),
        ("spede", 3, "Extra inputs"),
    ],
)
def test_a_wrong_key_is_named(key: str, value: Any, says: str) -> None:
    """Each wrong key gets a line that begins with the table and the key."""
    with pytest.raises(ConfigError) as refused:
        read({"root": "/nowhere", key: value})
    assert str(refused.value).startswith(f"[providers.local] {key}: ")
    assert says in str(refused.value)


def test_all_wrong_keys_are_named_at_once() -> None:
    """Nobody has to start the daemon twice to learn of two mistakes."""
    with pytest.raises(ConfigError) as refused:
        read({"speed": 0})
    assert [line.split(":")[0] for line in str(refused.value).splitlines()] == [
        "[providers.local] root",
        "[providers.local] speed",
    ]


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("6s", 6), ("1.5m", 90), ("77h", 277_200), ("1h30m", 5400), ("2d", 172_800)])
def test_durations_are_read_with_their_units(text: str, seconds: float) -> None:
    """From milliseconds to days, also joined."""
    assert read({"root": "/nowhere", "start": text}).start == pytest.approx(seconds)


def test_a_running_market_cannot_be_configured_away(tmp_path: Path) -> None:
    """Machines that run follow `market.json`; a daemon configured otherwise is told which key disagrees, and by how much."""
    provider = cloud(tmp_path, speed=10)
    with pytest.raises(Exception, match="no spot capacity"):
        provider.launch(request("west-b"), "")
    with pytest.raises(ConfigError, match=r"speed: 20 is configured, but the market in .* runs with 10"):
        cloud(tmp_path, speed=20)
    cloud(tmp_path, speed=10)


def test_a_market_that_cannot_be_read_is_the_configurations_fault(tmp_path: Path) -> None:
    """The key is named, and the place in the file."""
    document = market_document()
    document["gap_seconds"] = None
    with pytest.raises(ConfigError, match=r"\[providers.local\] market: .*market-file.json: gap_seconds"):
        cloud(tmp_path, document=document)
