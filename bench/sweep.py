"""How long a price sweep of 17 regions takes when every call takes 300 ms: about as long as the slowest region, not as long as all of them."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from bench.figures import Figure
from spotd.ports import OfferQuery
from spotd.testing.fake_aws import FakeAws
from spotd_aws.clients import Clients
from spotd_aws.config import read
from spotd_aws.selling import Selling

REGIONS = (
    "ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1", "ap-southeast-1", "ap-southeast-2", "ca-central-1", "eu-central-1",
    "eu-north-1", "eu-west-1", "eu-west-2", "eu-west-3", "sa-east-1", "us-east-1", "us-east-2", "us-west-1", "us-west-2",
)  # fmt: skip
TYPES = frozenset({"g5.xlarge", "g6.xlarge", "p5.48xlarge"})
LATENCY_S, SLOWEST_S, ROUNDS = 0.3, 1.5, 5


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _seconds(selling: Selling, *queries: OfferQuery) -> float:
    begin = time.perf_counter()
    for query in queries:
        sheet = selling.offers(query)
        if sheet.failures or not sheet.offers:
            raise RuntimeError(f"the sweep failed: {dict(sheet.failures)}")
    return time.perf_counter() - begin


def measure() -> list[Figure]:
    """The first sweep, which learns zones, offerings, limits and the price list; later ones; one after the other; and with one slow region."""
    everywhere = OfferQuery(TYPES, frozenset(REGIONS))
    each = [OfferQuery(TYPES, frozenset({region})) for region in REGIONS]
    with FakeAws(regions=REGIONS) as aws, _environment(aws.environment()):
        clients = Clients(read({"endpoint_url": aws.endpoint}))
        # boto3's models and connections are made when they are first wanted, once in a daemon's life.
        _seconds(Selling(clients, read({})), everywhere)
        selling = Selling(clients, read({}))
        aws.latency("*", LATENCY_S)
        first = _seconds(selling, everywhere)
        together = statistics.median(_seconds(selling, everywhere) for _ in range(ROUNDS))
        one_by_one = _seconds(selling, *each)
        aws.latency(REGIONS[0], SLOWEST_S)
        slowest = statistics.median(_seconds(selling, everywhere) for _ in range(ROUNDS))
        selling.close()
        clients.close()
    what = f"price sweep of {len(REGIONS)} regions, {LATENCY_S * 1000:.0f} ms for each call"
    note = f"median of {ROUNDS}; one region after the other takes {one_by_one:.1f} s: {one_by_one / together:.1f} times as long"
    return [
        Figure("sweep", f"{what}: all at once", together, "s", aim="about one region's", note=note),
        Figure(
            "sweep", f"{what}: the first of a daemon", first, "s", note="zones, offerings, limits, sizes and the price list are asked for as well"
        ),
        Figure("sweep", f"{what}, {SLOWEST_S:g} s in one of them", slowest, "s", aim="about the slowest region's", note=f"median of {ROUNDS}"),
    ]
