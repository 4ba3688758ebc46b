"""The AWS provider: EC2 spot and on-demand instances, reclaim warnings by EventBridge and SQS, checkpoints in S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotd.ports import Provider

__all__ = ["build"]


def build(config: Mapping[str, object], deployment: str) -> Provider:
    """The provider for this `[providers.aws]` table. ValueError, one line per wrong key, when it is not right."""
    from spotd_aws.config import read
    from spotd_aws.provider import open_account

    return open_account(read(config), deployment)
