"""Checkpoints in S3, or in whatever speaks its protocol: `s3://bucket/prefix` and, for the latter, the address of an endpoint.

The daemon itself only looks (`head`, `list`, a manifest now and then); what moves gigabytes is agents with signed addresses. An address must be
for the bucket's own region: one for another region is a redirect, which an agent does not follow, because its signature is for a host.

Signed addresses end with the credentials that signed them. Those of an instance role or an assumed role live for some hours at most, whatever is
asked for, so the expiry is cut to theirs; boto3 renews such credentials a quarter of an hour before they end, and agents are given new
addresses with their heartbeats. Credentials that were pasted into the environment with a session token do not say when they end.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from spotd.core.errors import InvalidRequest, ProviderUnavailable
from spotd.core.object_key import check_key
from spotd.ports import AlreadyExists, ObjectInfo
from spotd_aws.store_errors import is_absent, is_conflict, is_taken, translated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spotd.ports import ObjectStore

#: As in clients.py: botocore's own are 60 s each.
_CONNECT_S, _READ_S = 5, 15
#: The most that signature version 4 takes.
_LONGEST_S = 7 * 86400
_DEFAULT_REGION = "us-east-1"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
_AWS_HOSTS = re.compile(r"\.amazonaws\.(?:com|com\.cn|eu)$", re.ASCII)
_KEYS = frozenset({"region", "endpoint_url", "profile"})
_OPERATIONS = {"GET": "get_object", "HEAD": "head_object", "PUT": "put_object"}


def open_store(url: str, settings: Mapping[str, object]) -> ObjectStore:
    """The store of `s3://bucket/prefix`. Settings: `region`, `endpoint_url`, `profile`. Asks nobody yet. ValueError, with the key, if wrong."""
    scheme, _, place = url.partition("://")
    bucket, _, prefix = place.strip("/").partition("/")
    if scheme != "s3":
        raise ValueError(f"store: {url!r} is not the address of a bucket, such as s3://bucket/prefix")
    if not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise ValueError(f"store: {bucket!r} is not the name of a bucket: 3 to 63 lower-case letters, digits, dots and dashes")
    unknown = sorted(set(settings) - _KEYS)
    if unknown:
        raise ValueError(f"{unknown[0]}: is not a key of an s3:// store (known: {', '.join(sorted(_KEYS))})")
    words = {key: str(value) for key, value in settings.items() if value is not None}
    return S3Store(bucket, check_key(prefix) if prefix else "", **words)


class S3Store:
    """Objects below one prefix of one bucket. Thread-safe; connects when it is first used."""

    def __init__(self, bucket: str, prefix: str, region: str = "", endpoint_url: str | None = None, profile: str | None = None) -> None:
        import boto3
        from botocore.exceptions import ProfileNotFound

        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._region = region
        self._endpoint_url = endpoint_url
        try:
            self._session = boto3.session.Session(profile_name=profile)
        except ProfileNotFound as error:
            raise ValueError(f"profile: {error}") from error
        self._lock = threading.Lock()
        self._made: Any = None

    def put(self, key: str, body: bytes, *, create_only: bool = False) -> None:
        """Write a small object whole. With `create_only`, AlreadyExists when there is one."""
        params = {**self._object(key), "Body": body, "Metadata": {"sha256": hashlib.sha256(body).hexdigest()}}
        if not create_only:
            self._call("put_object", key, **params)
            return
        try:
            self._create(key, params)
        except _Conflict:
            # Another write of it was under way: by now it has succeeded or failed.
            self._create(key, params)

    def get(self, key: str) -> bytes:
        """Read a small object whole. KeyError where there is none."""
        answer = self._call("get_object", key, **self._object(key))
        try:
            return bytes(answer["Body"].read())
        except Exception as error:
            raise translated(error, "get_object", self._name(key), self._region) from error

    def head(self, key: str) -> ObjectInfo:
        """Whether and how large it is. KeyError where there is none. The sha256 where S3 has it, or `put` wrote it down."""
        answer = self._call("head_object", key, **self._object(key), ChecksumMode="ENABLED")
        size = answer.get("ContentLength")
        if not isinstance(size, int):
            raise ProviderUnavailable(f"S3 does not say how large {self._name(key)} is")
        return ObjectInfo(key, size, _sha256(answer))

    def list(self, prefix: str) -> Sequence[str]:
        """Every key that begins with `prefix`, sorted; all of them, or ProviderError."""
        found: list[str] = []
        page: dict[str, str] = {}
        while True:
            answer = self._call("list_objects_v2", prefix, Bucket=self._bucket, Prefix=self._prefix + prefix, **page)
            more = answer.get("IsTruncated")
            if not isinstance(more, bool):
                raise ProviderUnavailable(f"what came back is no list of {self._name(prefix)}")
            for item in answer.get("Contents") or ():
                name = item.get("Key")
                if not isinstance(name, str) or not name.startswith(self._prefix + prefix):
                    raise ProviderUnavailable(f"the list of {self._name(prefix)} names something else")
                found.append(name.removeprefix(self._prefix))
            if not more:
                return sorted(found)
            token = answer.get("NextContinuationToken")
            if not isinstance(token, str) or token == page.get("ContinuationToken"):
                raise ProviderUnavailable(f"the list of {self._name(prefix)} does not go on where it says that it does")
            page = {"ContinuationToken": token}

    def delete(self, key: str) -> None:
        """Remove it; absent is success."""
        self._call("delete_object", key, **self._object(key))

    def sign(self, method: str, key: str, expires_at: datetime, *, create_only: bool = False) -> str:
        """A URL with which a holder may do `method` on exactly this object until then, or until the credentials end, or for seven days.

        With `create_only` the header `If-None-Match: *` is part of what is signed: without it S3 takes the address for a forgery.
        """
        operation = _OPERATIONS.get(method)
        if operation is None or (create_only and method != "PUT"):
            raise ValueError(f"{method} cannot be signed{' create-only' if create_only else ''}")
        params: dict[str, Any] = self._object(key)
        if create_only:
            params["IfNoneMatch"] = "*"
        client = self._client()
        try:
            seconds = self._seconds(expires_at)
            return str(client.generate_presigned_url(operation, Params=params, ExpiresIn=seconds))
        except Exception as error:
            raise translated(error, "sign", self._name(key), self._region) from error

    def _seconds(self, expires_at: datetime) -> int:
        """How long an address can be good for."""
        wanted = (expires_at - datetime.now(UTC)).total_seconds()
        credentials = self._session.get_credentials()
        if credentials is not None:
            credentials.get_frozen_credentials()  # renews them where they are about to end
            end = getattr(credentials, "_expiry_time", None)
            if isinstance(end, datetime):
                wanted = min(wanted, (end - datetime.now(UTC)).total_seconds())
        return max(1, min(int(wanted), _LONGEST_S))

    def _create(self, key: str, params: Mapping[str, Any]) -> None:
        try:
            self._client().put_object(**params, IfNoneMatch="*")
        except Exception as error:
            if is_taken(error):
                raise AlreadyExists(key) from None
            if is_conflict(error):
                raise _Conflict(f"{self._name(key)} is being written by somebody else at this moment", "ConditionalRequestConflict") from error
            raise translated(error, "put_object", self._name(key), self._region) from error

    def _call(self, operation: str, key: str, **params: Any) -> Mapping[str, Any]:
        client = self._client()
        try:
            answer = getattr(client, operation)(**params)
        except Exception as error:
            if is_absent(error) and operation in {"get_object", "head_object"}:
                raise KeyError(key) from None
            raise translated(error, operation, self._name(key), self._region) from error
        if not isinstance(answer, dict):
            raise ProviderUnavailable(f"S3 gives no answer for {self._name(key)}")
        return answer

    def _object(self, key: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._prefix + check_key(key)}

    def _name(self, key: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{key}"

    # The client -----------------------------------------------------------------------------------------------------------

    def _client(self) -> Any:
        """The client of the bucket's region. Raises ProviderError while that cannot be found out."""
        with self._lock:
            if self._made is None:
                region = self._settled_region()
                self._made = self._make(region)
                self._region = region
            return self._made

    def _settled_region(self) -> str:
        """The configured region, made sure of where that can be: boto3 would follow a redirect, and agents would be sent to the wrong place."""
        if self._region and self._endpoint_url is not None:
            return self._region
        try:
            found = self._find_region()
        except ProviderUnavailable:
            if not self._region:
                raise
            return self._region
        if self._region and found != self._region:
            message = f"bucket {self._bucket} is in region {found}, not in {self._region}: set [checkpoints] region to that, or leave it out"
            raise InvalidRequest(message, field="region")
        return found

    def _make(self, region: str) -> Any:
        style = "virtual" if self._endpoint_url is None and "." not in self._bucket else "path"
        client = self._made_so(region, style)
        if style == "virtual" and not _AWS_HOSTS.search(urlsplit(client.meta.endpoint_url).hostname or ""):
            # An endpoint by the environment or the profile.
            client.close()
            return self._made_so(region, "path")
        return client

    def _made_so(self, region: str, style: str) -> Any:
        from botocore.config import Config

        settings = Config(
            connect_timeout=_CONNECT_S,
            read_timeout=_READ_S,
            retries={"mode": "standard", "total_max_attempts": 1},
            max_pool_connections=32,
            user_agent_extra="spotd",
            signature_version="s3v4",
            # boto3's own choice signs for the global host, which redirects for hours where a bucket is new. A name with dots would not fit
            # the certificate of a host that begins with it.
            s3={"addressing_style": style, "us_east_1_regional_endpoint": "regional"},
            # The default adds a checksum to what is signed, of a body that only the agent knows; and not every compatible store has them.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        try:
            return self._session.client("s3", region_name=region, endpoint_url=self._endpoint_url, config=settings)
        except Exception as error:
            raise translated(error, "connect", self._name(""), region) from error

    def _find_region(self) -> str:
        """Ask any region of S3 where the bucket is: also the one that redirects or refuses says so in a header."""
        asked = self._region or self._session.region_name or _DEFAULT_REGION
        client = self._make(asked)
        try:
            try:
                answer = client.head_bucket(Bucket=self._bucket)
            except Exception as error:
                answer = getattr(error, "response", None) or {}
                if not _region_in(answer):
                    raise translated(error, "head_bucket", self._name(""), asked) from error
            # Compatible stores have no such header, mostly, and take any region that is signed for.
            return _region_in(answer) or asked
        finally:
            client.close()

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            if self._made is not None:
                self._made.close()
                self._made = None


class _Conflict(ProviderUnavailable):
    """Somebody wrote the same object at the same moment; nothing of ours was stored."""


def _region_in(answer: Mapping[str, Any]) -> str:
    metadata = answer.get("ResponseMetadata")
    headers = metadata.get("HTTPHeaders") if isinstance(metadata, dict) else None
    region = headers.get("x-amz-bucket-region") if isinstance(headers, dict) else None
    return region if isinstance(region, str) and re.fullmatch(r"[A-Za-z0-9-]{1,63}", region, re.ASCII) else ""


def _sha256(answer: Mapping[str, Any]) -> str | None:
    """Of the whole object. S3's own sum, where it has one that is not made of those of parts (`…-3`), else what `put` wrote beside it."""
    try:
        own = base64.b64decode(str(answer.get("ChecksumSHA256") or ""), validate=True)
    except binascii.Error:
        own = b""
    if len(own) == hashlib.sha256().digest_size and answer.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT":
        return own.hex()
    metadata = answer.get("Metadata")
    written = metadata.get("sha256") if isinstance(metadata, dict) else None
    return written if isinstance(written, str) and re.fullmatch(r"[0-9a-f]{64}", written, re.ASCII) else None
