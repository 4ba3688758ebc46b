"""The deployment key, what is derived from it, and the agents' certificate."""

from __future__ import annotations

import os
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from spotd.daemon.credentials import Credentials, load_credentials, same, sha256_hex
from spotd.daemon.private_file import UnsafeFile, read_or_create
from spotd.daemon.tls import load_tls

CREDENTIALS = Credentials(bytes(range(32)))


def test_key_is_made_once_and_private(tmp_path: Path) -> None:
    """The first start makes a key of 32 bytes that only its owner can read; later starts find the same."""
    path = tmp_path / "deployment.key"
    first = load_credentials(path)
    assert path.stat().st_mode & 0o7777 == 0o600
    assert len(path.read_bytes()) == 32
    assert load_credentials(path).bootstrap("i") == first.bootstrap("i")
    assert [p.name for p in tmp_path.iterdir()] == ["deployment.key"]


def test_two_deployments_share_no_credential(tmp_path: Path) -> None:
    """Another key file is another deployment."""
    assert load_credentials(tmp_path / "a").bootstrap("i") != load_credentials(tmp_path / "b").bootstrap("i")


def test_starts_that_race_agree_on_one_key(tmp_path: Path) -> None:
    """However many daemons start at once, all of them use the key of the first."""
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: read_or_create(tmp_path / "key", lambda: os.urandom(32)), range(32)))
    assert len(keys) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o700 | 0o001, 0o644])
def test_key_that_others_may_have_read_is_refused(tmp_path: Path, mode: int) -> None:
    """A key with any right for group or world is not used, and the sentence says what to do."""
    path = tmp_path / "key"
    load_credentials(path)
    path.chmod(mode)
    with pytest.raises(UnsafeFile, match=rf"has mode {mode:04o}.*chmod 600 {path}"):
        load_credentials(path)


def test_key_through_a_link_is_refused(tmp_path: Path) -> None:
    """A symbolic link in the key's place is refused, whatever it points to."""
    load_credentials(tmp_path / "real")
    (tmp_path / "key").symlink_to(tmp_path / "real")
    with pytest.raises(UnsafeFile, match="symbolic link"):
        load_credentials(tmp_path / "key")


@pytest.mark.parametrize("size", [0, 31, 33])
def test_damaged_key_is_refused_and_kept(tmp_path: Path, size: int) -> None:
    """A key of another length is never replaced: that would lock every running agent out."""
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_bytes(b"x" * size)
    with pytest.raises(UnsafeFile, match="restore it from a backup"):
        load_credentials(path)
    assert path.read_bytes() == b"x" * size


def test_credentials_do_not_show_their_key() -> None:
    """What is printed of credentials tells nothing."""
    assert repr(CREDENTIALS) == "Credentials(…)"


@given(st.text(), st.text())
def test_kinds_of_credentials_never_coincide(instance: str, nonce: str) -> None:
    """A bootstrap credential opens no session, a session signs no address, for any instance and nonce."""
    made = {
        CREDENTIALS.bootstrap(f"{instance}/{nonce}"),
        CREDENTIALS.session(instance, nonce),
        CREDENTIALS.signature(instance, nonce, 0),
    }
    assert len(made) == 3


@given(st.text(), st.text())
def test_only_the_very_credential_is_accepted(instance: str, offered: str) -> None:
    """Whatever text is offered, only the instance's own credential is good."""
    assert CREDENTIALS.is_bootstrap(instance, CREDENTIALS.bootstrap(instance))
    assert not CREDENTIALS.is_bootstrap(instance, offered)
    assert same(offered, offered)
    assert len(sha256_hex(offered)) == 64


@pytest.mark.parametrize(("method", "key", "expires"), [("PUT", "a/b", 100), ("GET", "a/c", 100), ("GET", "a/b", 101)])
def test_signature_is_for_one_method_one_object_one_time(method: str, key: str, expires: int) -> None:
    """A signature is worth nothing for another method, object or time."""
    signature = CREDENTIALS.signature("GET", "a/b", 100)
    assert CREDENTIALS.is_signature("GET", "a/b", 100, signature)
    assert not CREDENTIALS.is_signature(method, key, expires, signature)


def test_certificate_is_made_once_and_outlives_deployments(tmp_path: Path) -> None:
    """One private file holds the agents' certificate: P-256, the same at every start, valid whatever an instance's clock says."""
    path = tmp_path / "agents.pem"
    first = load_tls(path)
    assert load_tls(path).certificate_pem == first.certificate_pem
    assert path.stat().st_mode & 0o7777 == 0o600
    certificate = x509.load_pem_x509_certificate(first.certificate_pem.encode())
    assert certificate.not_valid_after_utc.year - certificate.not_valid_before_utc.year == 100
    assert "PRIVATE" not in first.certificate_pem
    assert first.context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_damaged_certificate_is_refused(tmp_path: Path) -> None:
    """A certificate file that holds none is a sentence, not a stack of library errors."""
    path = tmp_path / "agents.pem"
    path.touch(0o600)
    with pytest.raises(UnsafeFile, match="no usable certificate"):
        load_tls(path)
