"""The keys of objects: what every object store takes, on disk as in a cloud, and what cannot lead out of its root."""

from __future__ import annotations

_KEY_LIMIT = 1024  # characters; as S3
_NAME_LIMIT = 255  # of one segment; as file systems


class InvalidKey(ValueError):
    """Not the key of an object."""


def check_key(key: str) -> str:
    """The key, if it is one: segments of printable ASCII, none empty, none beginning with a dot. Raises InvalidKey."""
    segments = key.split("/")
    printable = all(" " <= character <= "~" for character in key) and "\\" not in key
    named = all(segment and not segment.startswith(".") and len(segment) <= _NAME_LIMIT for segment in segments)
    if not printable or not named or len(key) > _KEY_LIMIT:
        raise InvalidKey("a key is a relative path of printable ASCII whose segments do not begin with a dot")
    return key
