"""What happened, for a person: who did what when. Collected only when somebody is going to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotd.sim.timeline import DAY, HOUR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spotd.sim.timeline import Timeline


class Story:
    """Lines in the order of time."""

    def __init__(self, timeline: Timeline, *, told: bool) -> None:
        self._timeline = timeline
        self.told = told
        self.lines: list[tuple[float, str, str]] = []

    def cloud(self, text: str) -> None:
        """What the cloud did."""
        self.say("cloud", text)

    def say(self, who: str, text: str) -> None:
        """What anybody did."""
        if self.told:
            self.lines.append((self._timeline.now_s, who, text))

    def printed(self) -> Iterator[str]:
        """The timeline as text."""
        for when, who, text in self.lines:
            yield f"{clock(when)}  {who:<8} {text}"


def clock(seconds: float) -> str:
    """Virtual time: day, hours, minutes, seconds."""
    day, rest = divmod(seconds, DAY)
    hours, rest = divmod(rest, HOUR)
    minutes, rest = divmod(rest, 60.0)
    return f"{int(day)}d {int(hours):02d}:{int(minutes):02d}:{rest:04.1f}"
