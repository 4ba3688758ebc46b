"""What training scripts import."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

import spotd.training
from spotd.node.progress import Progress


@pytest.fixture(name="inside")
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPOTD_NOTICE_FILE", str(tmp_path / "notice"))
    monkeypatch.setenv("SPOTD_PROGRESS_FILE", str(tmp_path / "progress"))
    return tmp_path


def test_outside_spotd_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variables there is no notice and no report, and no error either."""
    for name in [name for name in os.environ if name.startswith("SPOTD_")]:
        monkeypatch.delenv(name)
    spotd.training.report(step=1, loss=0.5)
    spotd.training.checkpoint("a", step=1)
    spotd.training.done()

    assert spotd.training.notice() is None


def test_the_agent_understands_what_is_reported(inside: Path) -> None:
    """Steps, losses that are none, announcements and the end arrive as they were said."""
    spotd.training.report(step=7, loss=float("nan"))
    spotd.training.report()
    spotd.training.report(loss=0.25)
    spotd.training.checkpoint("step-7", step=7)
    spotd.training.done()
    progress = Progress()
    progress.feed((inside / "progress").read_bytes())

    assert (progress.step, progress.loss, progress.done) == (7, 0.25, True)
    assert progress.latest is not None
    assert (progress.latest.name, progress.latest.step) == ("step-7", 7)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"source": "imds"}'])
def test_a_notice_that_cannot_be_read_is_none(inside: Path, content: str) -> None:
    """A training never ends because of its notice file."""
    assert spotd.training.notice() is None
    (inside / "notice").write_text(content)

    assert spotd.training.notice() is None


@pytest.mark.parametrize(("kind", "stops"), [("reclaim", True), ("move", True), ("shutdown", True), ("hint", False)])
def test_a_notice_says_what_and_how_long(inside: Path, kind: str, stops: bool) -> None:
    """Seconds left run down by the clock and do not go below zero."""
    value = {"kind": kind, "source": "imds", "deadline_epoch": time.time() + 100, "seconds_left": 100}
    (inside / "notice").write_text(json.dumps(value))
    notice = spotd.training.notice()

    assert notice is not None
    assert (notice.kind, notice.stops) == (kind, stops)
    assert notice.seconds_left is not None
    assert 95 < notice.seconds_left <= 100
    (inside / "notice").write_text(json.dumps({**value, "deadline_epoch": 5}))
    late = spotd.training.notice()
    assert late is not None
    assert late.seconds_left == 0.0


def test_a_report_that_cannot_be_written_ends_no_training(inside: Path) -> None:
    """A full disk, or a directory in the file's place."""
    (inside / "progress").mkdir()

    spotd.training.report(step=1)
