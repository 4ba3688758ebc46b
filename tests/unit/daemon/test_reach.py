"""Whether a provider's instances can work for this daemon."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from spotd.daemon.reach import blocked, firewall_rule
from spotd.ports import Capabilities, MetadataKind

CLOUD = Capabilities(
    notice=timedelta(minutes=2),
    boot_timeout=timedelta(minutes=15),
    heartbeat=timedelta(seconds=15),
    metadata_poll=timedelta(seconds=2),
    metadata=MetadataKind.IMDS,
    listing_lag=timedelta(minutes=1),
    billing_rule="aws",
)
STORE = "s3://bucket/spotd"


@pytest.mark.parametrize(
    ("advertise", "store", "says"),
    [
        (None, STORE, "have no address of this daemon: set [agent_api]"),
        ("127.0.0.1:7443", STORE, "cannot reach 127.0.0.1:7443: set [agent_api]"),
        ("localhost:7443", STORE, "cannot reach localhost:7443"),
        ("[::1]:7443", STORE, "cannot reach [::1]:7443"),
        ("0.0.0.0:7443", STORE, "cannot reach 0.0.0.0:7443"),
        ("spotd.example.com:7443", None, "no place for checkpoints: set [checkpoints] store"),
    ],
)
def test_what_keeps_a_cloud_from_being_used_is_a_sentence_with_the_next_step(advertise: str | None, store: str | None, says: str) -> None:
    """A machine elsewhere that cannot call home, or whose checkpoints nobody will find, is not started at all."""
    assert says in blocked("aws", CLOUD, advertise, store)


def test_a_cloud_that_is_configured_is_not_kept_from_anything() -> None:
    """With an address and a store there is nothing to say but which port must be let in."""
    assert blocked("aws", CLOUD, "203.0.113.5:7443", STORE) == ""
    assert "allow TCP 7443" in firewall_rule("203.0.113.5:7443", "0.0.0.0:7443")


def test_this_host_reaches_itself() -> None:
    """The local provider's instances need neither."""
    assert blocked("local", replace(CLOUD, remote=False), None, None) == ""
