"""What verbs print: tables, times with their age, money, one JSON document. Text from elsewhere cannot steer the terminal."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    """One line of JSON, at once: for what is followed."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def note(text: str) -> None:
    """Something for a person, beside the output."""
    print(plain(text), file=sys.stderr, flush=True)


def plain(text: object) -> str:
    """Text with nothing in it that a terminal would obey; line ends and tabs stay."""
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in shown)


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> None:
    """Columns, wide enough for what is in them; those named in `right` are numbers."""
    cells = [[plain(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max([len(title), *(len(row[i]) for row in cells)]) for i, title in enumerate(head)]
    numbers = {i for i, title in enumerate(head) if title in set(right)}
    for row in [list(head), *cells]:
        parts = [cell.rjust(widths[i]) if i in numbers else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        print("  ".join(parts).rstrip())


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values, one a line; what has no value is left out."""
    known = [(name, value) for name, value in pairs if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        first, *rest = plain(value).split("\n")
        print(f"{name.ljust(width)}  {first}")
        for line in rest:
            print(" " * (width + 2) + line)


def _parsed(value: str | None) -> datetime | None:
    if not value:
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


def age(value: str | None, now: datetime | None = None) -> str:
    """How long ago (or how soon): `3m ago`, `in 2h`."""
    then = _parsed(value)
    if then is None:
        return "-"
    seconds = ((now or datetime.now(UTC)) - then).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{length(seconds)} ago" if seconds > 0 else f"in {length(-seconds)}"


def when(value: str | None, now: datetime | None = None) -> str:
    """Local time with its age: `14:03:11 (3m ago)`, or with the date when it is another day."""
    then = _parsed(value)
    if then is None:
        return "-"
    current = (now or datetime.now(UTC)).astimezone()
    local = then.astimezone()
    clock = local.strftime("%H:%M:%S" if local.date() == current.date() else "%Y-%m-%d %H:%M:%S")
    return f"{clock} ({age(value, now)})"


def length(seconds: float | None) -> str:
    """A length of time in its two largest units: `2h 5m`."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f}s" if seconds < 10 and seconds != whole else f"{whole}s"
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, secs = divmod(rest, 60)
    for large, small, names in ((days, hours, "dh"), (hours, minutes, "hm"), (minutes, secs, "ms")):
        if large:
            return f"{large}{names[0]} {small}{names[1]}" if small else f"{large}{names[0]}"
    return f"{whole}s"


def usd(value: object) -> str:
    """Money, to four places."""
    if value is None:
        return "-"
    try:
        return f"${float(str(value)):.4f}"
    except ValueError:
        return plain(value)


def size(value: float | None) -> str:
    """Bytes in the unit that fits."""
    if value is None:
        return "-"
    amount = float(value)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def offer(value: dict[str, Any] | None) -> str:
    """An offer on one line: `aws us-west-2a p5.48xlarge spot`."""
    if not value:
        return "-"
    zone = value["zone"] if str(value["zone"]).startswith(str(value["region"])) else f"{value['region']}/{value['zone']}"
    return f"{value['provider']} {zone} {value['instance_type']} {value['market']}"


def or_dash(value: object) -> str:
    """A value, or a dash where there is none."""
    return "-" if value is None or value == "" else plain(value)


def rate(value: float | None) -> str:
    """Reclaims per hour, or a dash where nobody says."""
    return "-" if value is None else f"{value:.3f}"


def print_speeds(answer: dict[str, Any]) -> None:
    """Where a market is replayed faster than the clock, every answer about it says so."""
    for provider, factor in (answer.get("speeds") or {}).items():
        print(f"\n{provider}: a recorded market, replayed {factor} times faster than the clock; prices and bills are counted in its time.")
