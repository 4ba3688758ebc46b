"""Prices as AWS tells them: the spot price history, placement scores, and the price list with all the rows that are not meant."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from spotd.testing.fake_aws.catalogue import digest
from spotd.testing.fake_aws.describing import matching
from spotd.testing.fake_aws.wire import Answer, AwsError, Call, Form, Value, answer_json, page
from spotd.testing.fake_aws.world import Action, World

#: Other systems cost something else. Windows is the cheaper one here, so that taking its row shows (facts/cloud-api.md §6, 6).
_OTHER_PRODUCTS = (("Windows", Decimal("0.9")), ("SUSE Linux", Decimal("1.1")), ("Red Hat Enterprise Linux", Decimal("1.2")))
_MICRO = Decimal("0.000001")
_BEGINNING = datetime(2015, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
#: So many types at least, or every score is low (facts/cloud-api.md §1.4).
_POOL = 3
_PRICE_ROWS = 100

_Row = tuple[str, str, str, str, Decimal, datetime]


def describe_spot_price_history(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """Rows of the window and the last change before it, in no order that means anything (facts/cloud-api.md §0.4, §1.1)."""
    if form.text("AvailabilityZone") and form.text("AvailabilityZoneId"):
        raise AwsError("InvalidParameterCombination", "AvailabilityZone and AvailabilityZoneId cannot be used together.")
    known = {
        "availability-zone": lambda row: [row[0]],
        "availability-zone-id": lambda row: [row[1]],
        "instance-type": lambda row: [row[2]],
        "product-description": lambda row: [row[3]],
        "spot-price": lambda row: [f"{row[4]:.6f}"],
    }
    fits = matching(form, known, lambda _: {})
    rows = [row for row in _price_rows(world, region, form) if fits(row)]
    rows.sort(key=lambda row: digest(*row))
    part, token = page(form, rows, world.page_rows, low=1, high=100_000)
    shown: list[Value] = [
        {
            "instanceType": kind,
            "productDescription": product,
            "spotPrice": f"{usd:.6f}",
            "timestamp": since,
            "availabilityZone": zone,
            "availabilityZoneId": zone_id,
        }
        for zone, zone_id, kind, product, usd, since in part
    ]
    return {"spotPriceHistorySet": shown, "nextToken": token}


def _price_rows(world: World, region: str, form: Form) -> Iterator[_Row]:
    now = world.fleet.clock.now()
    begin, end = form.time("StartTime") or _BEGINNING, form.time("EndTime") or max(now, form.time("StartTime") or now)
    types, products = form.listed("InstanceType"), form.listed("ProductDescription")
    where = form.text("AvailabilityZone") or form.text("AvailabilityZoneId")
    for zone in world.fleet.catalogue.zones(region, local=True):
        if where and where not in (zone.name, zone.id):
            continue
        for kind in world.fleet.catalogue.types.values():
            if types and kind.name not in types:
                continue
            for since, usd in world.market.changes(zone.name, kind.name, begin, min(end, now)):
                every = [(name, Decimal(1)) for name in kind.products] + list(_OTHER_PRODUCTS)
                for product, factor in every:
                    if not products or product in products:
                        yield zone.name, zone.id, kind.name, product, (usd * factor).quantize(_MICRO), since


def get_spot_placement_scores(world: World, region: str, form: Form) -> Mapping[str, Value]:
    """Scores from 1 to 10; the ten best places."""
    del region
    types, regions = form.listed("InstanceType"), form.listed("RegionName")
    form.number("TargetCapacity", 1, 2_000_000_000, 1)
    if not types or len(types) > 1000 or len(regions) > 10:
        raise AwsError("InvalidParameterValue", "Name up to 1000 instance types, and up to 10 regions.")
    now = world.fleet.clock.now()
    asked, configuration = world.scores_asked, frozenset(types)
    fresh = {key: at for key, at in asked.items() if at > now - _DAY}
    if configuration not in fresh and len(fresh) >= world.score_configurations:
        raise AwsError(
            "MaxConfigLimitExceeded", "You have exceeded your maximum allowed Spot placement configurations. You can retry configurations."
        )
    world.scores_asked = fresh | {configuration: fresh.get(configuration, now)}
    rows: list[tuple[int, str, str]] = []
    for name in regions or world.fleet.catalogue.regions:
        zones = world.fleet.catalogue.zones(name) if form.flag("SingleAvailabilityZone") else (None,)
        for zone in zones:
            zone_id = zone.id if zone is not None else ""
            score = world.scores.get((name, zone_id), 1 + digest("score", name, zone_id) % 9) if len(configuration) >= _POOL else 1
            rows.append((score, name, zone_id))
    rows.sort(key=lambda row: (-row[0], row[1:]))
    shown: list[Value] = [{"region": name, "availabilityZoneId": zone_id or None, "score": score} for score, name, zone_id in rows[:10]]
    part, token = page(form, shown, world.page_rows, low=10)
    return {"spotPlacementScoreSet": part, "nextToken": token or None}


ACTIONS: Mapping[str, Action] = {
    "DescribeSpotPriceHistory": describe_spot_price_history,
    "GetSpotPlacementScores": get_spot_placement_scores,
}


def price_list(world: World, call: Call) -> Answer:
    """GetProducts of the price list service (facts/cloud-api.md §1.3)."""
    if call.action != "GetProducts":
        raise AwsError("UnknownOperationException", f"The fake's price list does not know {call.action}.")
    question = json.loads(call.body or b"{}")
    if question.get("ServiceCode") != "AmazonEC2":
        raise AwsError("NotFoundException", "The fake's price list is that of AmazonEC2.")
    size = min(int(question.get("MaxResults", _PRICE_ROWS)), _PRICE_ROWS, world.page_rows)
    try:
        begin = int(question.get("NextToken") or 0)
    except ValueError:
        raise AwsError("InvalidNextTokenException", "The token is not one of ours.") from None
    rows = [row for row in _products(world) if all(_passes(row, one) for one in question.get("Filters", []))]
    answer: dict[str, object] = {"FormatVersion": "aws_v1", "PriceList": [json.dumps(row) for row in rows[begin : begin + size]]}
    if begin + size < len(rows):
        answer["NextToken"] = str(begin + size)
    return answer_json(answer)


def _passes(row: Mapping[str, Mapping[str, Mapping[str, str]]], one: Mapping[str, str]) -> bool:
    attributes, name, value = row["product"]["attributes"], one["Field"], one["Value"]
    has = "AmazonEC2" if name == "serviceCode" else str(row["product"]["productFamily"]) if name == "productFamily" else attributes.get(name, "")
    match one.get("Type", "TERM_MATCH"):
        case "TERM_MATCH" | "EQUALS":
            return has.lower() == value.lower()
        case "CONTAINS":
            return value.lower() in has.lower()
        case "ANY_OF":
            return has in value.split(",")
        case "NONE_OF":
            return has not in value.split(",")
        case other:
            raise AwsError("InvalidParameterException", f"{other} is no type of filter.")


def _products(world: World) -> Iterator[dict[str, dict[str, dict[str, str]]]]:
    """Every row of every type: what is meant, and what a filter that was forgotten lets through (facts/cloud-api.md §1.3)."""
    for (region, name), usd in sorted(world.fleet.catalogue.on_demand.items()):
        yield _product(world, region, name, usd)
        yield _product(world, region, name, Decimal(0), capacitystatus="AllocatedCapacityReservation")
        yield _product(world, region, name, usd, capacitystatus="UnusedCapacityReservation")
        yield _product(world, region, name, usd * 2, tenancy="Dedicated")
        yield _product(world, region, name, Decimal(0), tenancy="Host")
        yield _product(world, region, name, usd * Decimal("1.5"), operatingSystem="Windows", licenseModel="No License required")
        yield _product(world, region, name, usd * 3, preInstalledSw="SQL Web")
        if name.startswith("p"):
            yield _product(world, region, name, Decimal(0), marketoption="CapacityBlock")


def _product(world: World, region: str, name: str, usd: Decimal, **changes: str) -> dict[str, dict[str, dict[str, str]]]:
    kind = world.fleet.catalogue.types[name]
    attributes = {
        "instanceType": name,
        "regionCode": region,
        "location": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "licenseModel": "No License required",
        "marketoption": "OnDemand",
        "servicecode": "AmazonEC2",
        "vcpu": str(kind.vcpus),
        "memory": f"{kind.memory_mib // 1024} GiB",
        "gpu": str(kind.gpus),
    } | changes
    sku = f"{digest(region, name, *sorted(changes.items())):016X}"
    price = {"unit": "Hrs", "beginRange": "0", "endRange": "Inf", "description": f"per On Demand {name}", "pricePerUnit": {"USD": f"{usd:.10f}"}}
    term = {"sku": sku, "offerTermCode": "JRTCKXETXF", "priceDimensions": {f"{sku}.JRTCKXETXF.6YS6EN2CT7": price}}
    row: dict[str, object] = {
        "product": {"productFamily": "Compute Instance", "sku": sku, "attributes": attributes},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": term}},
        "version": "20260101000000",
    }
    return row  # type: ignore[return-value] # the depth that filters read is as typed
