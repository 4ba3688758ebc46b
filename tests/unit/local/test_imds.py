"""The metadata server answers as AWS's does (facts/reclaim.md §1.2, §1.3)."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import pytest

from spotd.core.offer import Market
from spotd_local.imds import Metadata, Reply, serve
from spotd_local.record import Mark
from tests.unit.local.clouds import record

if TYPE_CHECKING:
    from collections.abc import Iterator

TTL = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN = "X-aws-ec2-metadata-token"


@dataclass
class Instance:
    """An instance asking its metadata server, with a clock to step."""

    now: float = 50.0
    metadata: Metadata = field(init=False)

    def __post_init__(self) -> None:
        self.metadata = Metadata(record(), now=lambda: self.now)

    def token(self, ttl: int = 60) -> str:
        """Fetch a token."""
        reply = self.metadata.respond("PUT", "/latest/api/token", {TTL: str(ttl)})
        assert reply.status == 200
        return reply.body

    def get(self, item: str, token: str | None = None) -> Reply:
        """Read an item, with a fresh token unless given one."""
        return self.metadata.respond("GET", f"/latest/meta-data/{item}", {TOKEN: token or self.token()})


@pytest.fixture
def instance() -> Instance:
    """A running spot instance."""
    return Instance()


def test_a_token_is_good_until_its_time_is_over(instance: Instance) -> None:
    """200 within its seconds, with what is left of them in the header; 401 from then on, and a new one helps at once."""
    token = instance.token(ttl=60)
    instance.now += 59
    reply = instance.get("instance-id", token)
    assert (reply.status, reply.body, reply.headers[TTL]) == (200, "local-0123456789ab", "1")
    instance.now += 1
    assert instance.get("instance-id", token).status == 401
    assert instance.get("instance-id").status == 200


@pytest.mark.parametrize("headers", [{}, {TOKEN: ""}, {TOKEN: "made-up"}])
def test_without_a_token_there_is_nothing(instance: Instance, headers: dict[str, str]) -> None:
    """IMDSv1 is off: 401 also for what is absent."""
    for path in ("/latest/meta-data/instance-id", "/latest/meta-data/no-such"):
        assert instance.metadata.respond("GET", path, headers).status == 401


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/latest/api/token", {}, 400),
        ("/latest/api/token", {TTL: "0"}, 400),
        ("/latest/api/token", {TTL: "21601"}, 400),
        ("/latest/api/token", {TTL: "an hour"}, 400),
        ("/latest/api/token", {TTL: "60", "X-Forwarded-For": "10.0.0.1"}, 403),
        ("/2021-07-15/api/token", {TTL: "60"}, 403),
        ("/latest/api/token", {TTL.lower(): "21600"}, 200),
    ],
)
def test_token_requests_are_checked(instance: Instance, path: str, headers: dict[str, str], status: int) -> None:
    """400 without a proper lifetime, 403 through a proxy or under a version's path."""
    assert instance.metadata.respond("PUT", path, headers).status == status


def test_not_being_reclaimed_is_404(instance: Instance) -> None:
    """The normal state of the instance action, of its parent and of the hint is absence; planned maintenance is an empty list."""
    for item in ("spot/instance-action", "spot/termination-time", "spot", "events/recommendations/rebalance"):
        assert instance.get(item).status == 404
    assert instance.get("events/maintenance/scheduled").body == "[]"


def test_a_mark_appears_as_an_instance_action(instance: Instance) -> None:
    """Action and time (a UTC second), until the mark goes away again."""
    marked = replace(record(), mark=Mark(marked_at=1_796_071_000.0, deadline=1_796_071_006.4))
    instance.metadata.record = marked
    assert json.loads(instance.get("spot/instance-action").body) == {"action": "terminate", "time": "2026-11-30T20:36:46Z"}
    assert instance.get("spot/termination-time").body == "2026-11-30T20:36:46Z"
    instance.metadata.record = record()
    assert instance.get("spot/instance-action").status == 404


def test_a_mark_that_only_the_control_plane_tells_of_is_not_here(instance: Instance) -> None:
    """Channels fail separately (facts/reclaim.md §0.1)."""
    instance.metadata.record = replace(record(), mark=Mark(1.0, 2.0, imds=False))
    assert instance.get("spot/instance-action").status == 404


def test_a_rebalance_hint_tells_when_it_was_emitted(instance: Instance) -> None:
    """It has no deadline."""
    instance.metadata.record = replace(record(), rebalance_at=1_796_071_000.0)
    assert json.loads(instance.get("events/recommendations/rebalance").body) == {"noticeTime": "2026-11-30T20:36:40Z"}


def test_an_instance_knows_what_and_where_it_is(instance: Instance) -> None:
    """The items that an agent reads once, and their directory."""
    read = {name: instance.get(name).body for name in ("placement/region", "placement/availability-zone", "instance-type")}
    assert read == {
        "placement/region": "east",
        "placement/availability-zone": "east-a",
        "instance-type": "p3.2xlarge",
    }
    assert instance.get("instance-life-cycle").body == "spot"
    instance.metadata.record = record(market=Market.ON_DEMAND)
    assert instance.get("instance-life-cycle").body == "on-demand"
    assert instance.get("").body.split("\n") == ["events/", "instance-id", "instance-life-cycle", "instance-type", "placement/"]


def test_user_data_is_not_served(instance: Instance) -> None:
    """It holds a credential, and every process of an instance can ask."""
    reply = instance.metadata.respond("GET", "/latest/user-data", {TOKEN: instance.token()})
    assert reply.status == 404


@pytest.fixture
def port(instance: Instance) -> Iterator[int]:
    """The same over a real socket."""
    server = serve(instance.metadata)
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def test_over_http_errors_are_pages_and_the_date_is_real(port: int) -> None:
    """One connection serves several requests; a 404 has an XHTML body; `Date` is now."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("PUT", "/latest/api/token", headers={TTL: "60"})
    answer = connection.getresponse()
    token = answer.read().decode()
    assert (answer.status, answer.headers[TTL]) == (200, "60")
    connection.request("GET", "/latest/meta-data/spot/instance-action", headers={TOKEN: token})
    missing = connection.getresponse()
    assert missing.status == 404
    assert b"<h1>404 - Not Found</h1>" in missing.read()
    assert abs(parsedate_to_datetime(missing.headers["Date"]).timestamp() - time.time()) < 5
    connection.request("HEAD", "/latest/meta-data/instance-id", headers={TOKEN: token})
    assert (connection.getresponse().status) == 200
    connection.close()
