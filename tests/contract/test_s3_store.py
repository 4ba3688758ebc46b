"""What is particular to S3: regions, credentials that end, and how its refusals are told."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import botocore.session
import pytest
from botocore.awsrequest import AWSResponse
from botocore.loaders import create_loader

from spotd.core.errors import InvalidRequest, NotAuthorized, ProviderError, ProviderUnavailable, Throttled
from spotd.core.object_key import InvalidKey
from spotd.ports import AlreadyExists, ObjectStore
from spotd.testing.fake_aws import FakeAws
from spotd_aws.store import S3Store, open_store
from tests.contract.aws_clients import client_of
from tests.contract.strict_s3 import StrictS3, error

#: botocore reads its models anew for each session; as many as are made here, that takes longer than all the rest.
_LOADER = functools.cache(create_loader)
_BUCKET, _ELSEWHERE = "here-with-us", "far-away"


@pytest.fixture(autouse=True)
def _quick_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(botocore.session, "create_loader", _LOADER)


@pytest.fixture(scope="module", name="account")
def _account() -> Iterator[FakeAws]:
    with FakeAws(regions=("us-east-1", "eu-west-1")) as aws:
        client_of(aws, "s3", "us-east-1").create_bucket(Bucket=_BUCKET)
        client_of(aws, "s3", "eu-west-1").create_bucket(Bucket=_ELSEWHERE, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        yield aws


@pytest.fixture(name="gate")
def _gate(account: FakeAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[StrictS3]:
    """S3 and all of AWS, by the environment: as for a daemon that is told of no endpoint."""
    for name, value in account.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with StrictS3(account) as gate:
        monkeypatch.setenv("AWS_ENDPOINT_URL", gate.endpoint)
        yield gate


@pytest.fixture(name="opened")
def _opened(gate: StrictS3, tmp_path: Path) -> Iterator[Callable[..., ObjectStore]]:
    stores = []

    def opened(bucket: str = _BUCKET, **settings: Any) -> ObjectStore:
        stores.append(open_store(f"s3://{bucket}/{tmp_path.name}", settings))
        return stores[-1]

    yield opened
    for store in stores:
        store.close()


def _soon() -> datetime:
    return datetime.now(UTC) + timedelta(hours=24)


def _scope(url: str) -> str:
    return parse_qs(urlsplit(url).query)["X-Amz-Credential"][0].split("/")[2]


@pytest.mark.parametrize(
    ("url", "settings", "says"),
    [
        ("s3://", {}, "store: '' is not the name of a bucket"),
        ("s3://Ab", {}, "'Ab' is not the name of a bucket"),
        ("s3://a..b", {}, "'a..b' is not the name"),
        ("gs://bucket", {}, "such as s3://bucket/prefix"),
        ("s3://bucket", {"regio": "x"}, "regio: is not a key of an s3:// store"),
        ("s3://bucket", {"profile": "nobody"}, "profile: .*nobody"),
    ],
)
def test_what_is_configured_wrongly_is_told_by_its_key(gate: StrictS3, url: str, settings: dict[str, object], says: str) -> None:
    """A ValueError whose sentence begins with the key, and no request."""
    with pytest.raises(ValueError, match=says):
        open_store(url, settings)
    assert gate.requests == []


def test_a_prefix_that_is_no_key_is_refused() -> None:
    """It would lead elsewhere."""
    with pytest.raises(InvalidKey):
        open_store("s3://bucket/../other", {})


def test_the_buckets_region_is_found(opened: Callable[..., ObjectStore]) -> None:
    """Addresses are signed for the region of the bucket, which need not be configured; nothing is asked twice."""
    assert _scope(opened().sign("GET", "k", _soon())) == "us-east-1"
    far = opened(_ELSEWHERE)
    assert _scope(far.sign("GET", "k", _soon())) == "eu-west-1"
    far.put("k", b"x")
    assert far.get("k") == b"x"


def test_a_wrong_region_is_told_with_the_right_one(opened: Callable[..., ObjectStore]) -> None:
    """boto3 would follow a redirect for the daemon, and every agent would be sent to a place that does not take it."""
    with pytest.raises(InvalidRequest, match=r"far-away is in region eu-west-1, not in us-east-1: set \[checkpoints\] region"):
        opened(_ELSEWHERE, region="us-east-1").put("k", b"x")


def test_a_region_that_cannot_be_found_out_now_is_found_later(gate: StrictS3, opened: Callable[..., ObjectStore]) -> None:
    """Nothing is signed for a guess."""
    store = opened(_ELSEWHERE)
    gate.instead = lambda *_: error(503, "ServiceUnavailable")
    with pytest.raises(ProviderUnavailable):
        store.sign("GET", "k", _soon())
    assert _scope(opened(_ELSEWHERE, region="eu-west-1").sign("GET", "k", _soon())) == "eu-west-1"
    gate.instead = lambda *_: None
    assert _scope(store.sign("GET", "k", _soon())) == "eu-west-1"


@pytest.mark.parametrize(
    ("status", "region", "bucket", "place"),
    [
        (200, "eu-west-1", "of-ours", "of-ours.s3.eu-west-1.amazonaws.com"),
        (403, "eu-west-1", "of-ours", "of-ours.s3.eu-west-1.amazonaws.com"),
        (200, "us-east-1", "of-ours", "of-ours.s3.us-east-1.amazonaws.com"),
        (200, "eu-west-1", "of.ours", "s3.eu-west-1.amazonaws.com/of.ours"),
        (200, "cn-north-1", "of-ours", "of-ours.s3.cn-north-1.amazonaws.com.cn"),
        (200, "us-gov-west-1", "of-ours", "of-ours.s3.us-gov-west-1.amazonaws.com"),
    ],
)
def test_addresses_at_aws_are_those_of_the_region(monkeypatch: pytest.MonkeyPatch, status: int, region: str, bucket: str, place: str) -> None:
    """HTTPS and the region's own host, never the global one, which redirects; also where the bucket may not be looked at, only used."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAFAKEFAKEFAKEFAKE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
    store = open_store(f"s3://{bucket}/spotd", {"region": region})
    assert isinstance(store, S3Store)

    def answer(request: Any, **_: Any) -> AWSResponse:
        return AWSResponse(request.url, status, {"x-amz-bucket-region": region}, _Raw())

    store._session.events.register("before-send.s3.HeadBucket", answer)
    url = urlsplit(store.sign("PUT", "jobs/j/0000", _soon(), create_only=True))
    query = parse_qs(url.query)
    assert f"{url.scheme}://{url.netloc}{url.path}" == f"https://{place}/spotd/jobs/j/0000"
    assert (query["X-Amz-Algorithm"], query["X-Amz-SignedHeaders"]) == (["AWS4-HMAC-SHA256"], ["host;if-none-match"])
    assert not [name for name in query if "checksum" in name.lower() or "sdk" in name.lower()]
    store.close()


class _Raw:
    """The body of an answer that has none."""

    def stream(self, **_: object) -> Iterator[bytes]:
        return iter(())


@pytest.mark.parametrize(
    ("status", "code", "kind", "says"),
    [
        (403, "AccessDenied", NotAuthorized, "may not do s3:PutObject on s3://here-with-us/.*: allow it"),
        (403, "InvalidAccessKeyId", NotAuthorized, "does not take the credentials"),
        (400, "ExpiredToken", NotAuthorized, "does not take the credentials"),
        (403, "RequestTimeTooSkewed", NotAuthorized, "clock is wrong"),
        (404, "NoSuchBucket", InvalidRequest, "there is no bucket here-with-us: create it"),
        (400, "AuthorizationHeaderMalformed", InvalidRequest, "not in region us-east-1"),
        (503, "SlowDown", Throttled, "fewer requests"),
        (500, "InternalError", ProviderUnavailable, "put_object"),
        (418, "Teapot", ProviderUnavailable, "put_object"),
    ],
)
def test_refusals_are_told_in_our_words(
    gate: StrictS3, opened: Callable[..., ObjectStore], status: int, code: str, kind: type[ProviderError], says: str
) -> None:
    """Each code of S3's has its meaning; what is not known proves nothing. No address with a signature is in the sentence."""
    store = opened(endpoint_url=gate.endpoint, region="us-east-1")
    store.put("k", b"x")
    gate.instead = lambda *_: error(status, code)
    with pytest.raises(kind, match=says) as caught:
        store.put("k", b"x")
    assert caught.value.code == code
    assert "Signature" not in str(caught.value)


@pytest.mark.parametrize("use", ["get", "head", "list", "delete", "put"])
def test_answers_that_are_none_are_no_answers(gate: StrictS3, opened: Callable[..., ObjectStore], use: str) -> None:
    """A proxy's page, a broken document, a missing bucket: never an empty list, never a missing object."""
    store = opened(endpoint_url=gate.endpoint, region="us-east-1")
    arguments = ("k", b"x") if use == "put" else ("k",)
    answers = [(502, b"<html>bad gateway</html>"), (500, b"<Error><Co")]
    if use != "head":  # a HEAD has no body: the status alone cannot tell a missing bucket from a missing object
        answers.append(error(404, "NoSuchBucket"))
    for said in answers:
        gate.instead = lambda *_, said=said: said
        with pytest.raises(ProviderError):
            getattr(store, use)(*arguments)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>hello</html>",
        b"<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>x/k</Key></Contents></ListBucketResult>",
        b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>other/k</Key></Contents></ListBucketResult>",
        b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Size>3</Size></Contents></ListBucketResult>",
        b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken></ListBucketResult>",
    ],
)
def test_a_list_is_whole_or_an_error(gate: StrictS3, body: bytes) -> None:
    """What is cut off, goes round in circles or speaks of something else is not taken for a list."""
    gate.instead = lambda *_: (200, b'<?xml version="1.0"?>' + body)
    store = open_store(f"s3://{_BUCKET}/x", {"endpoint_url": gate.endpoint, "region": "us-east-1"})
    with pytest.raises(ProviderUnavailable):
        store.list("")
    store.close()


def test_a_body_that_breaks_off_is_not_taken_for_whole(gate: StrictS3, opened: Callable[..., ObjectStore], account: FakeAws) -> None:
    """facts/known-faults.md: a download that succeeded and was 4 kB short."""
    store = opened(endpoint_url=gate.endpoint, region="us-east-1")
    store.put("k", b"x")
    account.lose_answer("us-east-1", "GetObject")
    with pytest.raises(ProviderUnavailable):
        store.get("k")
    assert store.get("k") == b"x"


@pytest.mark.parametrize(("conflicts", "expected"), [(1, None), (2, ProviderUnavailable)])
def test_a_write_at_the_same_moment_is_tried_once_more(
    gate: StrictS3, opened: Callable[..., ObjectStore], conflicts: int, expected: type[Exception] | None
) -> None:
    """409: the other write has ended by then, one way or the other; a second time is left to the caller."""
    store = opened(endpoint_url=gate.endpoint, region="us-east-1")
    left = [conflicts]

    def conflict(method: str, _path: str, _query: str) -> tuple[int, bytes] | None:
        if method == "PUT" and left[0]:
            left[0] -= 1
            return error(409, "ConditionalRequestConflict")
        return None

    gate.instead = conflict
    if expected is None:
        store.put("k", b"x", create_only=True)
        with pytest.raises(AlreadyExists):
            store.put("k", b"y", create_only=True)
    else:
        with pytest.raises(expected):
            store.put("k", b"x", create_only=True)


def test_a_checksum_that_s3_has_is_told(gate: StrictS3, opened: Callable[..., ObjectStore], account: FakeAws, tmp_path: Path) -> None:
    """S3's own sum before what is written beside an object; none at all for what agents put with a signed address."""
    store = opened(endpoint_url=gate.endpoint, region="us-east-1")
    client = client_of(account, "s3", "us-east-1")
    client.put_object(Bucket=_BUCKET, Key=f"{tmp_path.name}/a", Body=b"x", ChecksumAlgorithm="SHA256", Metadata={"sha256": "0" * 64})
    client.put_object(Bucket=_BUCKET, Key=f"{tmp_path.name}/b", Body=b"x", Metadata={"sha256": "nonsense"})
    assert store.head("a").sha256 == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    assert store.head("b").sha256 is None


def test_an_address_does_not_outlive_the_credentials(gate: StrictS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of a role end: addresses say so themselves. Lasting ones sign for seven days at most."""
    temporary = {"AccessKeyId": "ASIAFAKE", "SecretAccessKey": "s", "SessionToken": "t", "Version": 1}
    temporary["Expiration"] = (datetime.now(UTC) + timedelta(minutes=40)).strftime("%Y-%m-%dT%H:%M:%SZ")
    (tmp_path / "credentials.json").write_text(json.dumps(temporary))
    (tmp_path / "config").write_text(f"[profile role]\ncredential_process = cat {tmp_path}/credentials.json\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    for profile, wanted, least, most in (("role", 86400, 2340, 2400), (None, 86400, 86340, 86400), (None, 10**8, 604800, 604800), (None, -5, 1, 1)):
        store = open_store(f"s3://{_BUCKET}", {"endpoint_url": gate.endpoint, "region": "us-east-1", "profile": profile})
        url = store.sign("GET", "k", datetime.now(UTC) + timedelta(seconds=wanted))
        query = parse_qs(urlsplit(url).query)
        assert least <= int(query["X-Amz-Expires"][0]) <= most
        assert ("X-Amz-Security-Token" in query) == (profile == "role")
        store.close()


def test_no_credentials_is_a_sentence(gate: StrictS3, opened: Callable[..., ObjectStore], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is signed, nothing is called, and it says what to set."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    store = opened(endpoint_url=gate.endpoint, region="us-east-1")
    for use in (lambda: store.sign("GET", "k", _soon()), lambda: store.put("k", b"x")):
        with pytest.raises(NotAuthorized, match="no usable AWS credentials"):
            use()
    assert gate.requests == []
