"""The bounded log."""

from __future__ import annotations

from pathlib import Path

from spotd.node.outputs import BoundedLog


def test_the_log_stops_at_its_limit_and_says_so(tmp_path: Path) -> None:
    """What fits is kept, one line tells where it stops, the rest is dropped without harm."""
    path = tmp_path / "log"
    log = BoundedLog(str(path), 100, 1000, "run")
    for _ in range(100):
        log.write(b"0123456789abcdef")

    text = path.read_text()
    assert text.startswith("0123456789abcdef" * 6 + "0123\n")
    assert text.endswith("spotd: the log limit is reached; further output of run is dropped\n")
    assert text.count("spotd:") == 1


def test_one_task_cannot_fill_the_log_of_all(tmp_path: Path) -> None:
    """A hook that floods is cut off at its own limit; the job writes on."""
    path = tmp_path / "log"
    hook, run = BoundedLog(str(path), 10_000, 50, "hook"), BoundedLog(str(path), 10_000, 10_000, "run")
    hook.write(b"x" * 500)
    run.write(b"job\n")

    assert path.read_text().count("x") == 50
    assert path.read_text().endswith("job\n")


def test_a_full_disk_loses_output_and_nothing_else() -> None:
    """Writing never raises."""
    log = BoundedLog("/dev/full", 1 << 20, 1 << 20, "run")
    log.write(b"lost")
    log.write(b"lost too")
