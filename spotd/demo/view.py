"""How it looks: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from spotd.cli.output import usd
from spotd.demo import scene

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from spotd.demo.story import Story

#: The journal gets what the rest leaves, at least this much; on a low terminal the table of attempts makes way for it.
_FEWEST_LINES = 4
_ROOM_FOR_ATTEMPTS = 34
_ARROWS = {1: "▲", -1: "▼", 0: " "}


class View(Protocol):
    """Where the story is told."""

    def open(self) -> AbstractContextManager[object]:
        """While this context is open the picture is kept."""
        ...

    def line(self, text: str) -> None:
        """Something happened."""
        ...

    def draw(self, story: Story) -> None:
        """Things stand like this now."""
        ...


@dataclass(frozen=True, slots=True)
class Plain:
    """One line for each event."""

    stream: TextIO

    def open(self) -> AbstractContextManager[object]:
        """Nothing to keep."""
        return nullcontext()

    def line(self, text: str) -> None:
        """Print it, at once."""
        print(text, file=self.stream, flush=True)

    def draw(self, story: Story) -> None:
        """The lines say it all."""


class Picture:
    """Market, job and money on one screen, drawn again four times a second."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live  # noqa: PLC0415 - half a second that a run without a terminal need not spend

        self._console = console
        self._live: Live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def open(self) -> AbstractContextManager[object]:
        """Rich restores the terminal however the context is left."""
        return self._live

    def line(self, text: str) -> None:
        """The picture has its own place for the newest lines."""

    def draw(self, story: Story) -> None:
        """Draw it anew."""
        self._live.update(picture(story, time.time(), self._console.height), refresh=True)


def choose(*, as_json: bool) -> View:
    """A picture where a person looks at standard output; with `--json` that belongs to the one object."""
    if as_json:
        return Plain(sys.stderr)
    if not sys.stdout.isatty():
        return Plain(sys.stdout)
    from rich.console import Console  # noqa: PLC0415 - see above

    return Picture(Console())


def picture(story: Story, now: float, height: int) -> RenderableType:
    """Everything known, as one picture of so many lines."""
    from rich.console import Group  # noqa: PLC0415 - see above
    from rich.panel import Panel  # noqa: PLC0415 - see above
    from rich.text import Text  # noqa: PLC0415 - see above

    title = (
        f"spotd demo  ·  recorded V100 market, {scene.SPEED} times faster  ·  notice {scene.NOTICE_S:g} s  ·  {now - story.began.timestamp():.0f} s"
    )
    shown = story.attempts if height >= _ROOM_FOR_ATTEMPTS else []
    # Two frames, the market with its head, step, money, two bars and a gap; the attempts with their head and a gap.
    used = 4 + 1 + len(_spots(story)) + 5 + (len(shown) + 2 if shown else 0)
    lines = list(story.lines)[-max(height - used - 1, _FEWEST_LINES) :]
    journal = Panel(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), title="journal", title_align="left")
    parts: list[RenderableType] = [_market(story, now), *_progress(story)]
    return Panel(Group(*parts, *([Text(), _attempts(story)] if shown else []), journal), title=title)


def _market(story: Story, now: float) -> RenderableType:
    from rich.table import Table  # noqa: PLC0415 - see above

    table = Table(expand=True, box=None, pad_edge=False)
    for head in ("zone", "spot $/h", "", "what is known of it"):
        table.add_column(head, justify="right" if head == "spot $/h" else "left", no_wrap=True)
    for offer in _spots(story):
        text, style = known(story, offer["zone"], now)
        table.add_row(offer["zone"], f"{float(offer['price_usd_per_hour']):.4f}", _ARROWS[story.trend.get(offer["zone"], 0)], text, style=style)
    return table


def _spots(story: Story) -> list[dict[str, Any]]:
    """Every zone's spot offer, in the policy's order of regions."""
    return sorted((o for o in story.offers if o["market"] == "spot"), key=lambda o: (scene.REGIONS.index(o["region"]), o["zone"]))


def known(story: Story, zone: str, now: float) -> tuple[str, str]:
    """What the daemon knows of a zone from what was tried there, newest first, and the style to show it in."""
    there = [i for i in story.shown.get("instances", ()) if i["offer"]["zone"] == zone]
    states = {a["number"]: a for a in story.attempts}
    for instance in sorted(there, key=lambda i: (i["attempt"], i["try"]), reverse=True):
        attempt = states.get(instance["attempt"])
        number = instance["attempt"]
        if instance["refusal"]:
            return f"down: no capacity for attempt {number}", "dim"
        if attempt is None or attempt["state"] == "ended" or instance["state"] == "gone":
            if attempt is not None and attempt["preempted_at"]:
                return f"down: took attempt {number}'s machine; left alone for 15 min", "red"
            continue
        notice = instance["notice"]
        if notice and notice["deadline"]:
            left = max(datetime.fromisoformat(notice["deadline"]).timestamp() - now, 0.0)
            return f"RECLAIM of attempt {number}: {left:.1f} s left  {'█' * round(left * 2)}", "bold red"
        market = "" if instance["offer"]["market"] == "spot" else " on demand"
        return f"up: attempt {number} {attempt['state']}{market}", "bold green"
    return "", ""


def _progress(story: Story) -> list[RenderableType]:
    from rich.progress_bar import ProgressBar  # noqa: PLC0415 - see above
    from rich.table import Table  # noqa: PLC0415 - see above
    from rich.text import Text  # noqa: PLC0415 - see above

    job: dict[str, Any] = story.shown.get("job", {})
    step, saved = int(job.get("step") or 0), int(job.get("checkpoint_step") or 0)
    losses = [a["loss"] for a in story.attempts if a["loss"] is not None]
    loss = f"loss {losses[-1]:.4f}" if losses else "loss –"
    spent = usd(story.shown.get("spend_usd") or 0)
    text = f"\nstep {step}/{scene.STEPS}   checkpoint {saved}   {loss}\nspent so far {spent} ({scene.SPEED} billed seconds per second)"
    bars = Table.grid(expand=True, padding=(0, 1))
    bars.add_column()
    bars.add_column(ratio=1)
    bars.add_row("trained", ProgressBar(total=scene.STEPS, completed=step))
    bars.add_row("saved", ProgressBar(total=scene.STEPS, completed=saved, complete_style="green"))
    return [Text(text), bars]


def _attempts(story: Story) -> RenderableType:
    from rich.table import Table  # noqa: PLC0415 - see above

    table = Table(expand=True, box=None, pad_edge=False)
    for head in ("attempt", "where", "market", "state", "steps", "cost"):
        table.add_column(head)
    for attempt in story.attempts:
        machine = story.machine(attempt["number"])
        state = attempt["reason"] or attempt["state"]
        steps = f"{attempt['resumed_step'] or 0}–{attempt['step']}" if attempt["step"] is not None else ""
        market = machine.get("offer", {}).get("market", "")
        table.add_row(str(attempt["number"]), story.zone_of(attempt["number"]), market, state, steps, usd(machine.get("spend_usd")))
    return table
