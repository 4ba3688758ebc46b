"""Durations, prices and sizes as people write them. Each function raises `NotQuantity`, which says what is accepted."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal, InvalidOperation

from spotd.config.errors import printable


class NotQuantity(ValueError):
    """A value that is no duration, price or size: what is wrong, and what is accepted."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


_UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|d|h|m|s)", re.ASCII)
_WRITTEN = "a duration is written 30s, 15m, 2h, 7d or 1h30m"
_MAX_DURATION = timedelta(days=3650)
#: Other spellings that people try, so that the hint can name the right one.
_WORDS = {
    "second": "s", "seconds": "s", "sec": "s", "secs": "s",
    "minute": "m", "minutes": "m", "min": "m", "mins": "m",
    "hour": "h", "hours": "h", "hr": "h", "hrs": "h",
    "day": "d", "days": "d", "d": "d", "h": "h", "m": "m", "s": "s", "ms": "ms",
}  # fmt: skip


def duration(value: object) -> timedelta:
    """A duration with its unit: "30s", "15m", "2h", "7d", "1h30m"."""
    if isinstance(value, (int, Decimal, float)) and not isinstance(value, bool):
        text = str(value)[:12]
        raise NotQuantity(f"{text} has no unit", f"{_WRITTEN}; so {text}s or {text}m")
    if not isinstance(value, str):
        raise NotQuantity(f"is {kind_of(value)}, not a duration", _WRITTEN)
    text = value.strip()
    parts = _PART.findall(text) if len(text) <= 40 else []
    units = [unit for _, unit in parts]
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise NotQuantity(f"{printable(value)} is not a duration", _duration_hint(text))
    if units != [unit for unit in _UNITS if unit in units]:
        raise NotQuantity(f"{printable(value)} is not a duration", f"{_WRITTEN}: larger units first, each once")
    try:
        total = sum((_UNITS[unit] * float(number) for number, unit in parts), timedelta(0))
    except OverflowError:
        total = timedelta.max
    if total > _MAX_DURATION:
        raise NotQuantity(f"{printable(value)} is too long", "at most 3650d")
    return total


def _duration_hint(text: str) -> str:
    if re.fullmatch(r"\d{1,9}(\.\d{1,6})?", text, re.ASCII):
        return f"it has no unit; {_WRITTEN}; so {text}s or {text}m"
    words = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s*([A-Za-z]+)\.?", text, re.ASCII)
    unit = _WORDS.get(words[2].lower()) if words else None
    if words and unit:
        return f"did you mean {words[1]}{unit}? {_WRITTEN}"
    return _WRITTEN


def show_duration(value: timedelta) -> str:
    """The duration as it is written in a file."""
    rest = value
    out = ""
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        if count:
            out += f"{count}{unit}"
    return out or "0s"


_PRICE_WRITTEN = "a price is a number of US dollars per instance-hour, such as 40.00"
_MAX_PRICE = Decimal(100_000)


def price(value: object) -> Decimal:
    """US dollars per instance-hour: a number, or a number in quotes."""
    if isinstance(value, bool) or not isinstance(value, (int, str, Decimal, float)):
        raise NotQuantity(f"is {kind_of(value)}, not a price", _PRICE_WRITTEN)
    text = str(value).strip()
    if len(text) > 24 or not re.fullmatch(r"[-+]?(\d+(\.\d*)?|\.\d+)", text, re.ASCII):
        number = re.fullmatch(r"(?:USD|US\$|\$)?\s*(\d{1,9}(?:\.\d{1,6})?)\s*(?:USD|US\$|\$)?(?:\s*/\s*h(?:our|r)?)?", text, re.IGNORECASE)
        hint = f"did you mean {number[1]}? {_PRICE_WRITTEN}" if number else _PRICE_WRITTEN
        raise NotQuantity(f"{printable(str(value))} is not a price", hint)
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise NotQuantity(f"{printable(str(value))} is not a price", _PRICE_WRITTEN) from None
    if not 0 < amount <= _MAX_PRICE:
        raise NotQuantity(f"{printable(str(value))} is out of range", f"more than 0, at most {_MAX_PRICE}")
    if amount != amount.quantize(Decimal("0.000001")):
        raise NotQuantity(f"{printable(str(value))} has too many places", "at most six after the point")
    return amount


_SIZES = {
    "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
_SIZE_WRITTEN = "a size is written 500MB, 2GB or 512MiB"


def size(value: object) -> int:
    """Bytes: "500MB" (powers of ten) or "512MiB" (powers of two)."""
    if not isinstance(value, str):
        what = "has no unit" if isinstance(value, (int, Decimal, float)) and not isinstance(value, bool) else f"is {kind_of(value)}, not a size"
        raise NotQuantity(what, _SIZE_WRITTEN)
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)\s?([KMGT]?i?B)", value.strip(), re.IGNORECASE | re.ASCII)
    if match is None:
        raise NotQuantity(f"{printable(value)} is not a size", _SIZE_WRITTEN)
    return int(Decimal(match[1]) * _SIZES[match[2].upper()])


def show_size(value: int) -> str:
    """The size as it is written in a file, exact where a unit divides it."""
    for unit in ("TB", "GB", "MB", "TiB", "GiB", "MiB", "KB", "KiB"):
        factor = _SIZES[unit.upper()]
        if value and value % factor == 0:
            return f"{value // factor}{unit}"
    return f"{value}B"


def kind_of(value: object) -> str:
    """What a parsed value is, in a user's words."""
    match value:
        case None:
            return "empty"
        case bool():
            return "true or false"
        case int() | float() | Decimal():
            return "a number"
        case str():
            return "text"
        case list() | tuple():
            return "a list"
        case dict():
            return "a block of keys"
        case _:
            return "something else"
