"""The local provider: instances are process trees on this machine, with real metadata servers and real reclaims."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotd.ports import Provider

__all__ = ["build"]


def build(config: Mapping[str, object], deployment: str) -> Provider:
    """The provider for this `[providers.local]` table. ValueError, one line per wrong key, when it is not right."""
    from spotd_local.config import read
    from spotd_local.provider import open_cloud

    return open_cloud(read(config), deployment)
