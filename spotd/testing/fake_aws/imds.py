"""The metadata service of every instance, speaking IMDSv2, below `/imds/<instance-id>` (facts/reclaim.md §1.2, §1.3)."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta

from spotd.core.offer import Market
from spotd.testing.fake_aws.fleet import Fleet
from spotd.testing.fake_aws.instances import FakeInstance, State
from spotd.testing.fake_aws.wire import Answer

PREFIX = "/imds/"
_TTL = "x-aws-ec2-metadata-token-ttl-seconds"
_TOKEN = "x-aws-ec2-metadata-token"  # noqa: S105 - the name of a header
_MAX_TTL = 21_600
_PHRASES = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}


class NoMachine(Exception):
    """Nobody is there to ask: the instance does not run. Its connections break."""


def _error(status: int) -> Answer:
    """Errors are small pages of XHTML, never JSON."""
    title = f"{status} - {_PHRASES[status]}"
    page = (
        '<?xml version="1.0" encoding="iso-8859-1"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN"\n'
        '\t"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">\n<html xmlns="http://www.w3.org/1999/xhtml" '
        f'xml:lang="en" lang="en">\n <head>\n  <title>{title}</title>\n </head>\n <body>\n  <h1>{title}</h1>\n </body>\n</html>\n'
    )
    return Answer(status, page.encode(), {"Content-Type": "text/html"})


class MetadataService:
    """Answers for all instances. `region_failing`-like faults do not touch it: it is on the machine's own host."""

    def __init__(self, account: str, fleet: Fleet) -> None:
        self._account = account
        self._fleet = fleet
        self._tokens: dict[str, tuple[str, datetime]] = {}
        #: Instances whose metadata service gives HTTP 503.
        self.silent: set[str] = set()

    def respond(self, method: str, path: str, headers: Mapping[str, str]) -> Answer:
        """Answer one request; `path` begins with PREFIX, names of headers are in small letters. Raises NoMachine."""
        instance_id, _, rest = path.removeprefix(PREFIX).partition("?")[0].partition("/")
        instance, now = self._fleet.instances.get(instance_id), self._fleet.clock.now()
        if instance is None or instance.state not in (State.RUNNING, State.SHUTTING_DOWN, State.STOPPING):
            raise NoMachine
        if instance_id in self.silent:
            return Answer(503, b"", {"Content-Type": "text/html"})
        if instance.metadata_options["HttpEndpoint"] != "enabled":
            return _error(403)
        if method == "PUT":
            return self._issue(instance_id, rest, headers, now)
        if method not in {"GET", "HEAD"}:
            return _error(405)
        owner, until = self._tokens.get(headers.get(_TOKEN, ""), ("", now))
        left = int((until - now).total_seconds())
        if owner != instance_id or left <= 0:
            if _TOKEN in headers or instance.metadata_options["HttpTokens"] == "required":
                return _error(401)
            left = 0
        body = self._read(instance, rest)
        if body is None:
            return _error(404)
        return Answer(200, body, {"Content-Type": "text/plain"} | ({_TTL: str(left)} if left else {}))

    def _issue(self, instance_id: str, rest: str, headers: Mapping[str, str], now: datetime) -> Answer:
        if rest != "latest/api/token" or "x-forwarded-for" in headers:
            return _error(403)
        ttl = headers.get(_TTL, "")
        if not ttl.isascii() or not ttl.isdigit() or not 1 <= int(ttl) <= _MAX_TTL:
            return _error(400)
        token = secrets.token_urlsafe(42)
        self._tokens = {old: held for old, held in self._tokens.items() if held[1] > now}
        self._tokens[token] = (instance_id, now + timedelta(seconds=int(ttl)))
        return Answer(200, token.encode(), {"Content-Type": "text/plain", _TTL: ttl})

    def _read(self, instance: FakeInstance, rest: str) -> bytes | None:
        """The item at a path, or the names below it, or None."""
        parts = [part for part in rest.split("/") if part]
        if not parts or parts[0] != "latest":
            return None
        name = "/".join(parts[1:])
        if name == "user-data":
            return instance.user_data or None
        items = self._items(instance)
        if name in items:
            return items[name].encode()
        prefix = f"{name}/" if name else ""
        below = {key.removeprefix(prefix).partition("/")[::2] for key in items if key.startswith(prefix)}
        listing = "\n".join(sorted({head + ("/" if tail else "") for head, tail in below}))
        return listing.encode() or None

    def _items(self, instance: FakeInstance) -> dict[str, str]:
        meta = {
            "ami-id": instance.image_id,
            "instance-action": "none",  # unrelated to the spot item below
            "instance-id": instance.instance_id,
            "instance-life-cycle": "spot" if instance.lifecycle is Market.SPOT else "on-demand",
            "instance-type": instance.instance_type,
            "local-ipv4": instance.private_address,
            "placement/availability-zone": instance.zone,
            "placement/availability-zone-id": instance.zone_id,
            "placement/region": instance.region,
            "events/maintenance/history": "[]",
            "events/maintenance/scheduled": json.dumps(
                [
                    {
                        "NotBefore": f"{event.not_before:%d %b %Y %H:%M:%S} GMT",
                        "Code": event.code,
                        "Description": event.description,
                        "EventId": event.id,
                        "NotAfter": f"{event.not_after:%d %b %Y %H:%M:%S} GMT",
                        "State": "active",
                    }
                    for event in instance.maintenance
                ]
            ),
        }
        if instance.metadata_options["InstanceMetadataTags"] == "enabled":
            meta |= {f"tags/instance/{key}": value for key, value in instance.tags.items()}
        if instance.action is not None:
            action, when = instance.action
            meta["spot/instance-action"] = json.dumps({"action": action, "time": _utc(when)})
        if instance.termination_time is not None:
            meta["spot/termination-time"] = _utc(instance.termination_time)
        if instance.rebalance_at is not None:
            meta["events/recommendations/rebalance"] = json.dumps({"noticeTime": _utc(instance.rebalance_at)})
        document = {
            "accountId": self._account,
            "architecture": instance.architecture,
            "availabilityZone": instance.zone,
            "imageId": instance.image_id,
            "instanceId": instance.instance_id,
            "instanceType": instance.instance_type,
            "pendingTime": _utc(instance.launched_at),
            "privateIp": instance.private_address,
            "region": instance.region,
            "version": "2017-09-30",
        }
        items = {f"meta-data/{name}": value for name, value in meta.items()}
        items["dynamic/instance-identity/document"] = json.dumps(document)
        return items


def _utc(moment: datetime) -> str:
    """An approximate second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
