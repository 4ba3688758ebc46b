"""AWS's error codes as the loop's vocabulary (DESIGN §5), in one table. Messages are looked at only to refine what a code leaves open.

`InsufficientInstanceCapacity` is an HTTP 500 (facts/cloud-api.md §0.1), so the code is looked at before the status. What is not in the table is
ProviderUnavailable, after which nothing is concluded.
"""

from __future__ import annotations

import contextlib
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: From here on codes by class, as in facts/cloud-api.md §2.4 and facts/error_classes.json.
_CAPACITY = frozenset({
    "InsufficientInstanceCapacity", "UnfulfillableCapacity", "InsufficientCapacity", "InsufficientHostCapacity",
    "InsufficientReservedInstanceCapacity", "InsufficientVolumeCapacity", "ReservationCapacityExceeded",
    # The type is not sold in the zone. The cooldown grows with each failure, up to an hour.
    "Unsupported", "VolumeTypeNotAvailableInZone",
})  # fmt: skip
#: Empty as well, but not of one type only.
_CAPACITY_SCOPES = {"InsufficientFreeAddressesInSubnet": Scope.ZONE, "InsufficientAddressCapacity": Scope.REGION}
_QUOTA = frozenset({
    "MaxSpotInstanceCountExceeded", "VcpuLimitExceeded", "InstanceLimitExceeded", "VolumeLimitExceeded", "MaxIOPSLimitExceeded",
    "AddressLimitExceeded", "NetworkInterfaceLimitExceeded", "ResourceLimitExceeded", "ResourceCountExceeded", "RequestResourceCountExceeded",
    "MaxSpotFleetRequestCountExceeded", "MaxFleetCountExceeded", "PlacementGroupLimitExceeded", "SecurityGroupLimitExceeded",
    "MaxTemplateLimitExceeded", "MaxTemplateVersionLimitExceeded",
})  # fmt: skip
_PRICE = frozenset({"SpotMaxPriceTooLow", "LimitPriceExceeded"})
_AUTH = frozenset({
    "UnauthorizedOperation", "AuthFailure", "AccessDenied", "AccessDeniedException", "InvalidClientTokenId", "SignatureDoesNotMatch",
    "MissingAuthenticationToken", "IncompleteSignature", "RequestExpired", "InvalidSecurity.RequestHasExpired", "ExpiredToken",
    "ExpiredTokenException", "Blocked", "PendingVerification", "AccountDisabled", "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
    "TagPolicyViolation", "OperationNotPermitted", "UnrecognizedClientException",
})  # fmt: skip
#: What ops configured for a region is not there or not allowed there: no fault of the job, and other regions may take it.
_REGION_CONFIG = frozenset({
    "InvalidAMIID.NotFound", "InvalidAMIID.Malformed", "InvalidAMIID.Unavailable", "InvalidSubnet", "InvalidSubnetID.NotFound",
    "InvalidSubnetId.NotFound", "InvalidGroup.NotFound", "InvalidGroupId.Malformed", "InvalidSecurityGroupID.NotFound",
    "InvalidKeyPair.NotFound", "InvalidBlockDeviceMapping", "InvalidPlacementGroup.Unknown", "InvalidLaunchTemplateId.NotFound",
    "InvalidLaunchTemplateId.VersionNotFound", "InvalidLaunchTemplateName.NotFoundException", "InvalidSnapshot.NotFound",
    "InvalidIamInstanceProfileArn.Malformed", "InvalidFleetConfiguration", "UnsupportedOperation", "UnsupportedInstanceAttribute",
    "DefaultVpcDoesNotExist", "VPCIdNotSpecified", "CustomerKeyHasBeenRevoked", "EncryptedVolumesNotSupported", "OptInRequired",
    "ParameterNotFound",
})  # fmt: skip
_REQUEST = frozenset({
    "InvalidParameter", "InvalidParameterValue", "InvalidParameterCombination", "InvalidParameterDependency", "MissingParameter",
    "UnknownParameter", "ValidationError", "InvalidInput", "InvalidRequest", "InvalidUserData.Malformed", "InvalidInstanceType",
    "InvalidAvailabilityZone", "InvalidZone.NotFound", "IdempotentParameterMismatch", "InvalidClientToken", "TagLimitExceeded",
    "InvalidTagKey.Malformed", "IdempotentInstanceTerminated",
})  # fmt: skip
_THROTTLE = frozenset({
    "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException",
    "EC2ThrottledException", "TooManyRequestsException", "SlowDown", "BandwidthLimitExceeded",
})  # fmt: skip
#: Placement scores only: nothing more is told for a day (facts/cloud-api.md §1.4).
_SCORE_LIMITS = frozenset({"MaxConfigLimitExceeded", "MaxConfigLimitExceededException", "TargetCapacityLimitExceededException"})
_TRANSIENT = frozenset({
    "InternalError", "InternalFailure", "ServerInternal", "ServiceUnavailable", "Unavailable", "RetryableError", "RequestTimeout",
})  # fmt: skip
#: Codes that somebody who asked for one thing wants to tell from others; the outcome of a launch they leave unknown like every unmapped one.
NOT_FOUND = frozenset(
    {"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed", "InvalidSpotInstanceRequestID.NotFound", "InvalidVolume.NotFound"}
)

_SKEWED = "the clock of this host is wrong, and AWS refuses what it signs: set it (chronyd, systemd-timesyncd)"
_EXPIRED = "the temporary credentials have expired: renew them, or give spotd a role or keys that last"
_KEYS = "AWS does not know the credentials that boto3 finds here: check the environment, the profile and the instance role"
_KEYS_THERE = f"{_KEYS}; if other regions take them, this one is not enabled for the account"
_SENTENCES = {
    "RequestExpired": _SKEWED,
    "InvalidSecurity.RequestHasExpired": _SKEWED,
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "InvalidClientTokenId": _KEYS_THERE,
    "UnrecognizedClientException": _KEYS_THERE,
    "SignatureDoesNotMatch": _KEYS,
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": (
        "the account lacks the service role for spot instances: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
    ),
    "AuthFailure": "AWS refuses the credentials there; if other regions take them, this one is not enabled for the account",
    "OptInRequired": "the region, or the image's product, needs a subscription of the account first",
    "Blocked": "AWS has blocked the account: ask AWS support",
    "PendingVerification": "AWS is still verifying the account: wait, or ask AWS support",
    "DefaultVpcDoesNotExist": "there is no default VPC: name subnets under [providers.aws], or make one (aws ec2 create-default-vpc)",
    "VPCIdNotSpecified": "there is no default VPC: name subnets under [providers.aws], or make one (aws ec2 create-default-vpc)",
}
#: botocore's own exceptions, by the names of their classes and bases: importing them would cost whoever only reads this table the SDK.
_NO_CREDENTIALS = frozenset({
    "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound", "TokenRetrievalError", "NoAuthTokenError",
    "SSOError", "LoginError",
})  # fmt: skip
_NO_ANSWER = frozenset({"HTTPClientError", "ConnectionError"})
#: What EC2 says InvalidParameterValue or InvalidParameterCombination to although nothing is wrong with the job: an instance profile that is
#: missing, or so new that it is not known everywhere (facts/cloud-api.md §2.4); an image of another architecture; an account on the free plan.
_NOT_THE_JOBS_FAULT = ("instance profile", "architecture", "free tier")
#: Organisations forbid whole regions so. Other regions take the job: no reason to leave the provider alone, as for a permission that is missing.
_FORBIDDEN = "explicit deny in a service control policy"
_ACTION = re.compile(r"not authorized to perform:? ([a-zA-Z0-9-]+:[A-Za-z0-9]+)")
#: How much of AWS's own text is passed on.
_MOST = 300


def translate(error: Exception, *, doing: str, region: str = "") -> ProviderError:
    """Whatever came out of botocore as one of the loop's errors. `doing` says in words what was under way, for the sentence."""
    if isinstance(error, ProviderError):
        return error
    response = getattr(error, "response", None) or {}
    said = response.get("Error") if isinstance(response, dict) else None
    if isinstance(said, dict) and said.get("Code"):
        code, text = _plain(str(said["Code"])), " ".join(str(said.get("Message") or "").split())
        if code in _AUTH and region and _FORBIDDEN in text.lower():
            return Misconfigured(f"{_where(doing, region)}: {_by_policy(region)}", code)
        return _by_code(code, text[:_MOST], error, _where(doing, region))
    return _without_code(error, _where(doing, region))


@contextlib.contextmanager
def reads(doing: str, region: str = "") -> Iterator[None]:
    """Translate what the body raises: botocore's errors, and answers that lack what they must have."""
    try:
        yield
    except ProviderError:
        raise
    except Exception as error:
        raise translate(error, doing=doing, region=region) from error


def _by_policy(region: str) -> str:
    return f"an organisation's policy forbids it: leave {region} out of `regions` in [providers.aws], or have the policy changed"


def _where(doing: str, region: str) -> str:
    return f"{doing} in {region}" if region else doing


def _plain(code: str) -> str:
    # Reasons of state carry these, errors do not (facts/cloud-api.md §2.4).
    return code.removeprefix("Client.").removeprefix("Server.")


def _by_code(code: str, text: str, error: Exception, where: str) -> ProviderError:
    message = f"{where}: {_SENTENCES.get(code) or text or 'AWS gives no reason'}"
    if code in _CAPACITY_SCOPES:
        return NoCapacity(message, code, _CAPACITY_SCOPES[code])
    if code in _AUTH:
        return _not_authorized(code, text, error, where)
    if code in _REQUEST:
        return _request(code, text, message)
    if code in _THROTTLE:
        return Throttled(message, code)
    if code in _SCORE_LIMITS:
        return Throttled(message, code, timedelta(days=1))
    made: Callable[[str, str], ProviderError] = _SIMPLE.get(code, ProviderUnavailable)
    return made(message, code)


_SIMPLE: dict[str, Callable[[str, str], ProviderError]] = {
    **dict.fromkeys(_CAPACITY, NoCapacity),
    **dict.fromkeys(_QUOTA, QuotaExceeded),
    **dict.fromkeys(_PRICE, PriceTooHigh),
    **dict.fromkeys(_REGION_CONFIG, Misconfigured),
    **dict.fromkeys(_TRANSIENT, ProviderUnavailable),
}


def _not_authorized(code: str, text: str, error: Exception, where: str) -> NotAuthorized:
    found = _ACTION.search(text)
    action = found[1] if found else str(getattr(error, "operation_name", "") or "")
    skewed = code == "SignatureDoesNotMatch" and "expired" in text.lower()
    sentence = _SKEWED if skewed else _SENTENCES.get(code, "")
    needed = f"{action} is not permitted: add it (spotd aws iam-policy prints what is needed)" if action else "it is not permitted"
    return NotAuthorized(f"{where}: {sentence or needed}", code, action)


def _request(code: str, text: str, message: str) -> ProviderError:
    if code in {"InvalidParameterValue", "InvalidParameterCombination"} and any(words in text.lower() for words in _NOT_THE_JOBS_FAULT):
        return Misconfigured(message, code)
    return InvalidRequest(message, code, _field(code, text))


def _field(code: str, text: str) -> str:
    named = re.search(r"\b[Pp]arameter (?:named )?'?([A-Za-z.]+)'?", text) or re.search(r"for '?([A-Za-z.]+)'?", text)
    known = {"InvalidInstanceType": "instance_type", "InvalidAvailabilityZone": "zone", "InvalidZone.NotFound": "zone", "InvalidClientToken": "token"}
    return known.get(code) or (named[1] if named else "")


def _without_code(error: Exception, where: str) -> ProviderError:
    kind = type(error).__name__
    kinds = {base.__name__ for base in type(error).__mro__}
    if kinds & _NO_CREDENTIALS:
        # The text of some of these quotes files; the class says enough.
        return NotAuthorized(f"{where}: boto3 finds no usable AWS credentials: set them by environment, profile or instance role", kind)
    if kind == "ParamValidationError":
        return InvalidRequest(f"{where}: {_first_line(error)}", kind, "")
    if kinds & _NO_ANSWER:
        return ProviderUnavailable(f"{where}: AWS did not answer", kind)
    if kind == "ResponseParserError":
        return ProviderUnavailable(f"{where}: what came back is no answer of AWS", kind)
    # Only the class: a message of an unexpected error may hold anything.
    return ProviderUnavailable(f"{where}: unexpected {kind}", kind)


def _first_line(error: Any) -> str:
    return " ".join(str(error).split())[:_MOST]
