"""Every credential of a deployment, derived from one key file.

Nothing secret is stored but the key: a credential is HMAC-SHA256 of what it is for, so it can be computed again for a retry that must be
byte-identical (DESIGN §4 rule 1), while the database holds hashes that open nothing. The words before the first slash keep the kinds apart:
no credential of one kind is one of another.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path

from spotd.daemon.private_file import UnsafeFile, read_or_create

_KEY_BYTES = 32


def sha256_hex(text: str) -> str:
    """What the database keeps of a credential. Surrogates, which JSON can smuggle in, have a hash as well."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def same(left: str, right: str) -> bool:
    """Whether two secrets are equal, in a time that does not tell where they differ."""
    return hmac.compare_digest(left.encode("utf-8", "surrogatepass"), right.encode("utf-8", "surrogatepass"))


class Credentials:
    """Makes and checks credentials with one deployment key."""

    def __init__(self, key: bytes) -> None:
        if len(key) != _KEY_BYTES:
            raise ValueError(f"A deployment key has {_KEY_BYTES} bytes.")
        self._key = key

    def __repr__(self) -> str:
        return "Credentials(…)"

    def bootstrap(self, instance_id: str) -> str:
        """What an instance's agent shows at its first call."""
        return self._mac(f"bootstrap/{instance_id}")

    def is_bootstrap(self, instance_id: str, offered: str) -> bool:
        """Whether this is the instance's bootstrap credential."""
        return same(self.bootstrap(instance_id), offered)

    def session(self, instance_id: str, nonce: str) -> str:
        """What an instance's agent shows at every later call. The same nonce gives the same session: a lost answer can be given again."""
        return self._mac(f"session/{instance_id}/{nonce}")

    def signature(self, method: str, key: str, expires: int) -> str:
        """What makes a URL good for one method on one object until an epoch second."""
        return self._mac(f"url/{method}/{expires}/{key}")

    def is_signature(self, method: str, key: str, expires: int, offered: str) -> bool:
        """Whether this signature is for exactly that. Whether it has expired is for the caller's clock to say."""
        return same(self.signature(method, key, expires), offered)

    def _mac(self, message: str) -> str:
        return hmac.new(self._key, message.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def load_credentials(path: Path) -> Credentials:
    """The credentials of the deployment whose key file this is; the file is made at the first start. Raises UnsafeFile, OSError."""
    key = read_or_create(path, lambda: secrets.token_bytes(_KEY_BYTES))
    if len(key) != _KEY_BYTES:
        raise UnsafeFile(f"{path} has {len(key)} bytes where a deployment key has {_KEY_BYTES}: restore it from a backup.")
    return Credentials(key)
