"""The daemon's own certificate for the agents' API.

Agents pin this certificate and look at nothing else in it (docs/agent-protocol.md): no name, no date. So it is self-signed, and valid for
longer than any deployment, whatever an instance's clock says.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from spotd.daemon.private_file import UnsafeFile, read_or_create

_VALID_FROM = datetime(2020, 1, 1, tzinfo=UTC)
_VALID_UNTIL = datetime(2120, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Tls:
    """What the API is served with, and what agents are told to expect."""

    certificate_pem: str
    context: ssl.SSLContext


def load_tls(path: Path) -> Tls:
    """Certificate and key from one private file, made at the first start. Raises UnsafeFile, OSError."""
    pem = read_or_create(path, _make)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        context.load_cert_chain(path)
    except (ValueError, ssl.SSLError) as error:
        raise UnsafeFile(f"{path} holds no usable certificate and key: restore it from a backup.") from error
    return Tls(certificate.public_bytes(serialization.Encoding.PEM).decode("ascii"), context)


def _make() -> bytes:
    """A new private key with its certificate, as PEM. P-256: understood by every TLS library an instance may have."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "spotd")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_VALID_FROM)
        .not_valid_after(_VALID_UNTIL)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("spotd")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()) + certificate.public_bytes(
        serialization.Encoding.PEM
    )
