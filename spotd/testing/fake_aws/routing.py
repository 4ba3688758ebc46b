"""Who a request is for: service and region stand in the scope of its credentials, the action in the form, a header or the path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qs

from spotd.testing.fake_aws.wire import AwsError, Call, Form

_SCOPE = re.compile(r"Credential=[^/,\s]+/\d{8}/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request")
_JSON_PREFIXES = {
    "AmazonSSM": "ssm",
    "AmazonSQS": "sqs",
    "AWSEvents": "events",
    "AWSPriceListService": "pricing",
    "ServiceQuotasV20190624": "servicequotas",
}
_FIS = {
    ("POST", "experimentTemplates"): "CreateExperimentTemplate",
    ("GET", "experimentTemplates"): "GetExperimentTemplate",
    ("DELETE", "experimentTemplates"): "DeleteExperimentTemplate",
    ("POST", "experiments"): "StartExperiment",
    ("GET", "experiments"): "GetExperiment",
    ("DELETE", "experiments"): "StopExperiment",
}
_OBJECT = {"GET": "GetObject", "HEAD": "HeadObject", "PUT": "PutObject", "DELETE": "DeleteObject", "POST": "PostObject"}
_BUCKET = {"GET": "ListObjects", "HEAD": "HeadBucket", "PUT": "CreateBucket", "DELETE": "DeleteBucket", "POST": "DeleteObjects"}


def route(method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Call:
    """The request with its service, region and action. Raises AwsError where it carries no credentials; names of headers are in small letters."""
    scope = _SCOPE.search(headers.get("authorization", ""))
    presigned = parse_qs(query)
    if scope is None and "X-Amz-Credential" in presigned:
        scope = _SCOPE.search("Credential=" + presigned["X-Amz-Credential"][0])
    if scope is not None:
        region, service = scope[1], scope[2]
    elif "AWSAccessKeyId" in presigned and "Signature" in presigned:
        region, service = "", "s3"  # the older signature of addresses names no region
    else:
        call = Call(_guess(headers, body), "", "", method, path, query, headers, body)
        raise Unsigned(call)
    return Call(service, region, _action(service, method, path, query, headers, body), method, path, query, headers, body)


class Unsigned(AwsError):
    """There are no credentials in it."""

    def __init__(self, call: Call) -> None:
        self.call = call
        match call.service:
            case "ec2":
                super().__init__("AuthFailure", "AWS was not able to validate the provided access credentials", 401)
            case "s3":
                super().__init__("AccessDenied", "Access Denied", 403)
            case _:
                super().__init__("MissingAuthenticationToken", "Missing Authentication Token", 403)


def _guess(headers: Mapping[str, str], body: bytes) -> str:
    """Which service an unsigned request was meant for, so that it is refused in its language."""
    if "x-amz-target" in headers:
        return _JSON_PREFIXES.get(headers["x-amz-target"].partition(".")[0], "json")
    if "x-www-form-urlencoded" in headers.get("content-type", ""):
        return {"2011-06-15": "sts", "2010-05-08": "iam"}.get(Form.parse(body).text("Version"), "ec2")
    return "s3"


def _action(service: str, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> str:
    if "x-amz-target" in headers:
        return headers["x-amz-target"].rpartition(".")[2]
    if service == "fis":
        return _FIS.get((method, path.strip("/").partition("/")[0]), "")
    if service == "s3":
        return _s3_action(method, path, query)
    return Form.parse(body or query.encode()).text("Action")


def _s3_action(method: str, path: str, query: str) -> str:
    bucket, _, key = path.strip("/").partition("/")
    names = parse_qs(query, keep_blank_values=True)
    if not bucket:
        return "ListBuckets"
    if not key:
        return "ListObjectsV2" if "list-type" in names else _BUCKET.get(method, "")
    if "uploads" in names:
        return "CreateMultipartUpload"
    if "uploadId" in names:
        return {"PUT": "UploadPart", "POST": "CompleteMultipartUpload", "DELETE": "AbortMultipartUpload", "GET": "ListParts"}.get(method, "")
    return _OBJECT.get(method, "")
