"""The service-quotas service, for EC2's vCPU limits (facts/cloud-api.md §1.7)."""

from __future__ import annotations

import json

from spotd.core.offer import Market
from spotd.testing.fake_aws.market import QUOTAS, Quota
from spotd.testing.fake_aws.wire import Answer, AwsError, Call, answer_json
from spotd.testing.fake_aws.world import World

_CLASSES = {
    "L-3819A6DF": "G/Spot",
    "L-7212CCBC": "P/Spot",
    "L-C4BD4855": "P5/Spot",
    "L-34B43A08": "Standard/Spot",
    "L-DB2E81BA": "G/OnDemand",
    "L-417A185B": "P/OnDemand",
    "L-1216C47A": "Standard/OnDemand",
}


def service_quotas(world: World, call: Call) -> Answer:
    """One question."""
    question = json.loads(call.body or b"{}")
    if question.get("ServiceCode") != "ec2":
        raise AwsError("NoSuchResourceException", "The request failed because the specified service does not exist.")
    if call.action in {"ListServiceQuotas", "ListAWSDefaultServiceQuotas"}:
        default = call.action == "ListAWSDefaultServiceQuotas"
        rows = [
            _row(world, call.region, quota, default=default) for quota in QUOTAS if default or world.market.applied(call.region, quota) is not None
        ]
        size = min(int(question.get("MaxResults", 100)), world.page_rows)
        begin = int(question.get("NextToken") or 0)
        answer: dict[str, object] = {"Quotas": rows[begin : begin + size]}
        if begin + size < len(rows):
            answer["NextToken"] = str(begin + size)
        return answer_json(answer)
    quota = next((quota for quota in QUOTAS if quota.code == question.get("QuotaCode")), None)
    default = call.action == "GetAWSDefaultServiceQuota"
    if call.action not in {"GetServiceQuota", "GetAWSDefaultServiceQuota"}:
        raise AwsError("UnknownOperationException", f"The fake's service-quotas does not know {call.action}.")
    if quota is None or (not default and world.market.applied(call.region, quota) is None):
        raise AwsError("NoSuchResourceException", "The request failed because the specified quota does not exist.")
    return answer_json({"Quota": _row(world, call.region, quota, default=default)})


def _row(world: World, region: str, quota: Quota, *, default: bool) -> dict[str, object]:
    value = quota.default if default else world.market.limit(region, quota)
    kind = "OnDemand" if quota.market is Market.ON_DEMAND else "Spot"
    dimensions = {"Class": _CLASSES[quota.code], "Resource": "vCPU", "Service": "EC2", "Type": "Resource"}
    return {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaArn": f"arn:aws:servicequotas:{region}:{world.account}:ec2/{quota.code}",
        "QuotaCode": quota.code,
        "QuotaName": quota.name,
        "Value": float(value),
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
        "Description": f"vCPUs of {kind} instances",
        "UsageMetric": {
            "MetricNamespace": "AWS/Usage",
            "MetricName": "ResourceCount",
            "MetricDimensions": dimensions,
            "MetricStatisticRecommendation": "Maximum",
        },
    }
