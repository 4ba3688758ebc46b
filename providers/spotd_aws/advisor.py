"""The spot advisor's data: for each region and type, the band of how many instances were interrupted in the last month (facts/cloud-api.md §1.5)."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from spotd.core.errors import Misconfigured, ProviderError, ProviderUnavailable
from spotd_aws.keeping import Kept, Now, Terms

#: The data is made once a month.
_TERMS = Terms(fresh=timedelta(days=1), retry=timedelta(minutes=30))
_TIMEOUT_S = 15
_LARGEST = 64 << 20
_HERE = frozenset({"127.0.0.1", "localhost", "::1"})
_SYSTEM = "Linux"
#: Upper end of the band in per cent, by region and type.
Bands = Mapping[tuple[str, str], int]


class Advisor:
    """The bands, read once a day from a file or an https address. Without a source nothing is known."""

    def __init__(self, source: str | None, now: Now) -> None:
        self._source = source
        self._kept: Kept[str, Bands] = Kept(now, _TERMS)

    @property
    def due(self) -> bool:
        """Whether it is time to read."""
        return self._source is not None and self._kept.due(self._source)

    def refresh(self) -> None:
        """Read, if it is time. What goes wrong is kept for `problem`."""
        if self._source is not None:
            source = self._source
            self._kept.refresh(source, lambda: read_bands(source))

    def percent(self, region: str, instance_type: str) -> int | None:
        """How many of a hundred instances were interrupted in the month, at most; None where it is not known."""
        known = None if self._source is None else self._kept.known(self._source)
        return None if known is None else known.value.get((region, instance_type))

    def problem(self) -> ProviderError | None:
        """Why it could not be read."""
        return None if self._source is None else self._kept.error(self._source)


def read_bands(source: str) -> Bands:
    """The bands in a file or at an address. Raises ProviderError with a sentence for ops."""
    text = _fetch(source) if "://" in source else _load(Path(source))
    try:
        return parse(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise Misconfigured(f"spot_advisor: {shown(source)} is not the spot advisor's data: {error}; leave the key out to do without") from None


def shown(source: str) -> str:
    """The source without what may be a secret in an address: a password, a signature."""
    if "://" not in source:
        return source
    parts = urllib.parse.urlsplit(source)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def _load(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST)
    except OSError as error:
        raise Misconfigured(f"spot_advisor: {path} cannot be read ({error.strerror}): put the file there, or leave the key out") from None


def _fetch(address: str) -> bytes:
    parts = urllib.parse.urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _HERE):
        raise Misconfigured(f"spot_advisor: {shown(address)} is neither a file nor an https address")
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - its scheme was looked at
            return bytes(answer.read(_LARGEST))
    except (OSError, ValueError) as error:
        raise ProviderUnavailable(f"spot_advisor: {shown(address)} did not answer ({type(error).__name__}); it is tried again") from None


def parse(document: Any) -> Bands:
    """The bands of Linux. ValueError where the document is not what it should be; rows of it that are not are left out."""
    if not isinstance(document, Mapping) or not isinstance(document.get("spot_advisor"), Mapping) or not isinstance(document.get("ranges"), list):
        raise ValueError("it has no ranges or no spot_advisor")  # noqa: TRY004 - whatever is wrong with the text is this
    upper = {band.get("index"): band["max"] for band in document["ranges"] if isinstance(band, Mapping) and isinstance(band.get("max"), int)}
    found: dict[tuple[str, str], int] = {}
    for region, systems in document["spot_advisor"].items():
        types = systems.get(_SYSTEM) if isinstance(systems, Mapping) else None
        for kind, row in types.items() if isinstance(types, Mapping) else ():
            percent = upper.get(row.get("r")) if isinstance(row, Mapping) and isinstance(row.get("r"), int) else None
            if percent is not None:
                found[str(region), str(kind)] = percent
    if not found:
        raise ValueError("no band of it can be read")
    return found
