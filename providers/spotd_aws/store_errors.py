"""What S3's refusals mean. Its codes are not EC2's: they are looked up here first, and in the table of `errors` after that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spotd.core.errors import InvalidRequest, NotAuthorized, ProviderError, Throttled
from spotd_aws.errors import translate

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What a caller of an operation must be allowed to do.
PERMISSIONS = {
    "get_object": "s3:GetObject",
    "head_object": "s3:GetObject",
    "put_object": "s3:PutObject",
    "delete_object": "s3:DeleteObject",
    "list_objects_v2": "s3:ListBucket",
    "head_bucket": "s3:ListBucket",
}
#: An answer without a body (HEAD) has its status for a code.
_DENIED = frozenset({"AccessDenied", "AllAccessDisabled", "403", "Forbidden"})
_IDENTITY = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidSecurity", "NotSignedUp"}
)
_SLOW = frozenset({"SlowDown", "TooManyRequests", "ThrottlingException", "RequestLimitExceeded", "429"})
_ELSEWHERE = frozenset({"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "301", "307", "IllegalLocationConstraintException"})


def is_absent(error: Exception) -> bool:
    """Whether there is no such object (which is not: no such bucket)."""
    return _code(error) in {"NoSuchKey", "404", "NotFound"}


def is_taken(error: Exception) -> bool:
    """Whether a create-only write found an object."""
    return _code(error) in {"PreconditionFailed", "412"}


def is_conflict(error: Exception) -> bool:
    """Whether the same object was written at the same moment."""
    return _code(error) in {"ConditionalRequestConflict", "409"}


def translated(error: Exception, operation: str, name: str, region: str) -> ProviderError:
    """The error in our words. `name` is the object's address, without a signature."""
    if isinstance(error, ProviderError):
        return error
    code = _code(error)
    if operation == "head_bucket" and is_absent(error):
        code = "NoSuchBucket"
    if code in _SLOW:
        return Throttled(f"S3 asks for fewer requests about {name}", code)
    return _refusal(code, operation, name) or _misplaced(code, name, region) or translate(error, doing=f"{operation} of {name}", region=region)


def _refusal(code: str, operation: str, name: str) -> NotAuthorized | None:
    permission = PERMISSIONS.get(operation, "")
    if code in _DENIED:
        message = f"the credentials that the daemon uses may not do {permission or operation} on {name}: allow it in their policy and the bucket's"
    elif code in _IDENTITY:
        message = f"S3 does not take the credentials that the daemon uses for {name}: look at what boto3 finds"
    elif code == "RequestTimeTooSkewed":
        message = "S3 refuses what this host signs because its clock is wrong: set it (chronyd, systemd-timesyncd)"
    else:
        return None
    return NotAuthorized(message, code, permission)


def _misplaced(code: str, name: str, region: str) -> InvalidRequest | None:
    bucket = name.removeprefix("s3://").partition("/")[0]
    if code == "NoSuchBucket":
        return InvalidRequest(f"there is no bucket {bucket}: create it, or name another one", code, "store")
    if code == "InvalidBucketName":
        return InvalidRequest(f"{bucket} is not the name of a bucket", code, "store")
    if code in _ELSEWHERE:
        return InvalidRequest(f"bucket {bucket} is not in region {region}: set [checkpoints] region to its own", code, "region")
    return None


def _code(error: Exception) -> str:
    """S3's word for it; empty where the error is not an answer of S3."""
    response: Any = getattr(error, "response", None)
    if not isinstance(response, dict):
        return ""
    answer = response.get("Error")
    status = _mapping(response.get("ResponseMetadata")).get("HTTPStatusCode", "")
    return str(_mapping(answer).get("Code") or status)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
