"""What AWS's errors mean to the loop."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
    UnauthorizedSSOTokenError,
)
from botocore.parsers import ResponseParserError

from spotd.core.errors import (
    InvalidRequest,
    Misconfigured,
    NoCapacity,
    NotAuthorized,
    PriceTooHigh,
    ProviderError,
    ProviderUnavailable,
    QuotaExceeded,
    Scope,
    Throttled,
)
from spotd_aws.errors import reads, translate

FACTS = Path(__file__).parent / "error_codes.json"
CLASSES: dict[str, tuple[type[ProviderError], ...]] = {
    "capacity": (NoCapacity,),
    "capacity_long": (NoCapacity,),
    "quota": (QuotaExceeded,),
    "price": (PriceTooHigh,),
    # A region's or an image's subscription is that region's trouble.
    "auth": (NotAuthorized, Misconfigured),
    # Whose fault it is decides: the job's, or that of what ops configured for a region.
    "config": (InvalidRequest, Misconfigured),
    "idempotency": (InvalidRequest,),
    "throttle": (Throttled,),
    "transient": (ProviderUnavailable,),
    "notfound": (ProviderUnavailable,),
}


def _said(code: str, message: str = "", status: int = 400, operation: str = "RunInstances") -> ProviderError:
    answer = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return translate(ClientError(answer, operation), doing="launching", region="us-west-2")


@pytest.mark.parametrize(("group", "code"), [(group, code) for group, codes in json.loads(FACTS.read_text()).items() for code in codes])
def test_every_known_code_has_its_class(group: str, code: str) -> None:
    """The table of the facts (facts/error_classes.json), code by code; with `Server.` before it as without."""
    assert isinstance(_said(code), CLASSES[group])
    assert type(_said(f"Server.{code}")) is type(_said(code))
    assert _said(code).code == code


@pytest.mark.parametrize("status", [400, 500, 503])
def test_the_code_decides_and_not_the_status(status: int) -> None:
    """An empty pool is an HTTP 500 (facts/cloud-api.md §0.1); an unknown code proves nothing, whatever its status."""
    assert isinstance(_said("InsufficientInstanceCapacity", status=status), NoCapacity)
    assert isinstance(_said("NeverHeardOf", status=status), ProviderUnavailable)


def test_how_far_an_empty_pool_reaches() -> None:
    """A subnet without addresses is short for every type of its zone."""
    assert _said("InsufficientInstanceCapacity").scope is Scope.OFFER
    assert _said("InsufficientFreeAddressesInSubnet").scope is Scope.ZONE
    assert _said("InsufficientAddressCapacity").scope is Scope.REGION


@pytest.mark.parametrize("code", ["InvalidAMIID.NotFound", "InvalidSubnetID.NotFound", "InvalidGroup.NotFound", "DefaultVpcDoesNotExist"])
def test_what_ops_configured_does_not_fail_a_job(code: str) -> None:
    """Another region may have the image or the subnet: the region is left out, and the job is not blamed."""
    assert isinstance(_said(code, "The image id '[ami-1]' does not exist"), Misconfigured)
    assert _said(code).scope is Scope.REGION


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("InvalidParameterValue", "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"),
        ("InvalidParameterValue", "The architecture 'arm64' of the specified instance type does not match the architecture 'x86_64' of the AMI."),
        ("InvalidParameterCombination", "The specified instance type is not eligible for Free Tier."),
    ],
)
def test_some_invalid_parameters_are_not_the_jobs_fault(code: str, message: str) -> None:
    """An instance profile (too new, or missing), an image, an account's plan: what ops chose, and the job is not to fail for it."""
    assert isinstance(_said(code, message), Misconfigured)
    assert isinstance(_said(code, "Invalid value 'x' for InstanceType."), InvalidRequest)


def test_a_region_that_an_organisation_forbids_does_not_stop_the_others() -> None:
    """A permission that is missing stops the provider; one that a policy takes away in one region makes only that region useless."""
    text = "User: arn:x is not authorized to perform: ec2:RunInstances on resource: y with an explicit deny in a service control policy"
    error = _said("UnauthorizedOperation", text)
    assert isinstance(error, Misconfigured)
    assert error.scope is Scope.REGION
    assert "leave us-west-2 out" in error.message
    assert isinstance(_said("UnauthorizedOperation", text.replace("service control", "session")), NotAuthorized)


@pytest.mark.parametrize(
    ("code", "message", "says"),
    [
        ("RequestExpired", "", "the clock of this host is wrong"),
        ("SignatureDoesNotMatch", "Signature expired: 2026 is now earlier than 2026", "the clock of this host is wrong"),
        ("ExpiredToken", "", "temporary credentials have expired"),
        ("UnrecognizedClientException", "", "this one is not enabled for the account"),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "", "create-service-linked-role --aws-service-name spot.amazonaws.com"),
        ("AccessDenied", "User: arn:x is not authorized to perform: sqs:ReceiveMessage on resource: y", "sqs:ReceiveMessage is not permitted"),
        (
            "UnauthorizedOperation",
            "You are not authorized to perform this operation. Encoded authorization failure message: abc",
            "RunInstances is not permitted",
        ),
    ],
)
def test_a_missing_permission_says_what_to_do(code: str, message: str, says: str) -> None:
    """Never disguised as no capacity (known-faults A.36), and never only "access denied"."""
    error = _said(code, message)
    assert isinstance(error, NotAuthorized)
    assert says in error.message
    assert "launching in us-west-2" in error.message


def test_limits_of_placement_scores_last_a_day() -> None:
    """They are about questions of the last 24 hours (facts/cloud-api.md §1.4)."""
    error = _said("MaxConfigLimitExceededException")
    assert isinstance(error, Throttled)
    assert error.retry_after == timedelta(days=1)


@pytest.mark.parametrize(
    "error",
    [
        EndpointConnectionError(endpoint_url="https://ec2"),
        ConnectTimeoutError(endpoint_url="https://ec2"),
        ReadTimeoutError(endpoint_url="https://ec2"),
        ResponseParserError("<html>"),
        KeyError("Instances"),
        ValueError("x"),
    ],
)
def test_no_answer_proves_nothing(error: Exception) -> None:
    """These have no code, some a `response` that is None (facts/cloud-api.md §1.9); and an answer that lacks what it must have is none."""
    with pytest.raises(ProviderUnavailable) as caught, reads("asking", "us-west-2"):
        raise error
    assert "asking in us-west-2" in caught.value.message


@pytest.mark.parametrize(
    "cause",
    [
        NoCredentialsError(),
        CredentialRetrievalError(provider="process", error_msg="of a secret"),
        UnauthorizedSSOTokenError(),
    ],
)
def test_no_credentials_is_a_sentence(cause: Exception) -> None:
    """Also where a login has run out; and nothing of what boto3 read is in it."""
    error = translate(cause, doing="asking")
    assert isinstance(error, NotAuthorized)
    assert "environment, profile or instance role" in error.message
    assert "secret" not in str(error)
