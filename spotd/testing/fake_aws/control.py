"""Levers over HTTP, for whoever plays with the fake from a shell: `curl -X POST $AWS_ENDPOINT_URL/fake/reclaim/i-…?notice_s=30`."""

from __future__ import annotations

import json
from dataclasses import fields
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from spotd.core.offer import Market
from spotd.testing.fake_aws.reclaim import Reclaim
from spotd.testing.fake_aws.wire import Answer, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spotd.testing.fake_aws.fake import FakeAws
    from spotd.testing.fake_aws.instances import FakeInstance

PREFIX = "/fake/"
HELP = """\
GET  /fake/instances                                 every instance that ever was
POST /fake/reclaim/ID?notice_s=120&imds=false&...    EC2 takes it back (the fields of Reclaim)
POST /fake/cancel-reclaim/ID                         and changes its mind
POST /fake/rebalance/ID                              a rebalance recommendation
POST /fake/end/ID                                    somebody else terminates it
POST /fake/power-off/ID                              it switches itself off
POST /fake/exhaust/REGION/ZONE/TYPE/MARKET           the pool is empty (MARKET: spot, on-demand)
POST /fake/restock/REGION/ZONE/TYPE/MARKET           and full again
POST /fake/price/REGION/ZONE/TYPE/USD                the spot price changes
"""


def respond(aws: FakeAws, method: str, path: str, query: str) -> Answer:
    """Do what is asked; JSON, or a sentence and what can be asked."""
    verb, *words = [unquote(part) for part in path.removeprefix(PREFIX).split("/")]
    if method == "GET" and verb == "instances":
        return _json([_row(instance) for instance in aws.instances])
    verbs: Mapping[str, tuple[int, Callable[..., object]]] = {
        "reclaim": (1, lambda ident: aws.reclaim(ident, _plan(query))),
        "cancel-reclaim": (1, aws.cancel_reclaim),
        "rebalance": (1, aws.rebalance),
        "end": (1, aws.end_by_hand),
        "power-off": (1, aws.power_off),
        "exhaust": (4, lambda region, zone, kind, market: aws.exhaust(region, zone, kind, Market(market))),
        "restock": (4, lambda region, zone, kind, market: aws.restock(region, zone, kind, Market(market))),
        "price": (4, aws.set_price),
    }
    if method != "POST" or verb not in verbs or len(words) != verbs[verb][0]:
        return Answer(HTTPStatus.NOT_FOUND, HELP.encode(), {"Content-Type": "text/plain"})
    try:
        verbs[verb][1](*words)
    except KeyError as error:
        return _sentence(f"There is no instance {error}.")
    except (ValueError, ArithmeticError) as error:
        return _sentence(f"{error}")
    return _json("done")


def _plan(query: str) -> Reclaim:
    kinds = {one.name: one.type for one in fields(Reclaim)}
    values: dict[str, object] = {}
    for name, text in parse_qsl(query):
        match kinds.get(name):
            case "float":
                values[name] = float(text)
            case "int":
                values[name] = int(text)
            case "bool":
                values[name] = text.lower() in {"1", "true", "yes"}
            case "str":
                values[name] = text
            case _:
                raise ValueError(f"A reclaim has no {name!r}; it has {', '.join(kinds)}.")
    return Reclaim(**values)  # type: ignore[arg-type] # converted to the types of its fields just above


def _row(instance: FakeInstance) -> dict[str, object]:
    return {
        "instance_id": instance.instance_id,
        "zone": instance.zone,
        "instance_type": instance.instance_type,
        "lifecycle": instance.lifecycle.value,
        "state": instance.state.value,
        "state_reason": instance.state_reason.code,
        "launched_at": timestamp(instance.launched_at),
        "tags": instance.tags,
    }


def _json(content: object) -> Answer:
    return Answer(HTTPStatus.OK, json.dumps(content, indent=1).encode() + b"\n", {"Content-Type": "application/json"})


def _sentence(text: str) -> Answer:
    return Answer(HTTPStatus.BAD_REQUEST, f"{text}\n".encode(), {"Content-Type": "text/plain"})
