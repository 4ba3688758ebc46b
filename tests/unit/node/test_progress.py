"""The progress file, whatever a job does to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spotd.node.progress import Announcement, Progress, ProgressFile


@pytest.mark.parametrize(
    ("text", "step", "loss", "done", "latest"),
    [
        (b'{"step": 3, "loss": 0.5}\n', 3, 0.5, False, None),
        (b'{"step": 3}\n{"step": 4', 3, None, False, None),
        (b'rubbish\n[1]\n"x"\n{"step": 5}\n\xff\xfe\n', 5, None, False, None),
        (b'{"step": 1, "loss": NaN}\n', 1, None, False, None),
        (b'{"step": 1, "loss": 1e999}\n', 1, None, False, None),
        (b'{"step": "7", "loss": true}\n', None, None, False, None),
        (b'{"step": 7.0}\n', 7, None, False, None),
        (b'{"checkpoint": "a", "step": 2}\n', 2, None, False, Announcement(1, "a", 2)),
        (b'{"step": 9}\n{"checkpoint": "a"}\n', 9, None, False, Announcement(1, "a", 9)),
        (b'{"checkpoint": "a"}\n{"checkpoint": "b"}\n', None, None, False, Announcement(2, "b", None)),
        (b'{"checkpoint": 5}\n{"checkpoint": "a\\u0000b"}\n', None, None, False, None),
        (b'{"done": true}\n', None, None, True, None),
        (b'{"done": true}\n{"step": 8}\n', 8, None, False, None),
        (b'{"done": 1}\n', None, None, False, None),
        (b"[" * 60_000 + b'\n{"step": 6}\n', 6, None, False, None),
    ],
)
def test_lines_add_up(text: bytes, step: int | None, loss: float | None, done: bool, latest: Announcement | None) -> None:
    """Whole JSON objects count and everything else is passed over."""
    progress = Progress()
    progress.feed(text)

    assert (step, loss, done, latest) == (progress.step, progress.loss, progress.done, progress.latest)


def test_bytes_may_come_one_by_one() -> None:
    """How the file is cut into reads makes no difference."""
    progress = Progress()
    for byte in b'{"step": 3}\n{"checkpoint": "a", "step": 4}\n':
        progress.feed(bytes([byte]))

    assert (progress.step, progress.latest) == (4, Announcement(1, "a", 4))


def test_a_huge_line_is_dropped_in_bounded_memory() -> None:
    """Megabytes without a newline are neither kept nor taken for a report; the next line counts."""
    progress = Progress()
    for _ in range(50):
        progress.feed(b'{"step": 1, "x": "' + b"y" * 100_000)
        assert progress.pending <= 64 << 10
    progress.feed(b'"}\n{"step": 2}\n')

    assert progress.step == 2


def test_the_last_line_needs_no_newline_once_the_writer_is_gone() -> None:
    """`printf '{"done": true}'` at the very end is heard."""
    progress = Progress()
    progress.feed(b'{"done": true}')
    assert not progress.done
    progress.finish()

    assert progress.done


def test_a_file_is_read_on_where_the_last_agent_stopped(tmp_path: Path) -> None:
    """After a restart the next announcement has the next ordinal, and no line counts twice or is lost."""
    path = tmp_path / "progress"
    path.write_bytes(b'{"checkpoint": "a"}\n{"checkp')
    first = ProgressFile(str(path))
    first.poll()
    path.write_bytes(b'{"checkpoint": "a"}\n{"checkpoint": "b"}\n')
    os.utime(path)
    second = ProgressFile(str(path), first.export())
    second.poll()

    assert second.state.latest == Announcement(2, "b", None)


def test_truncation_and_replacement_start_over_but_ordinals_rise(tmp_path: Path) -> None:
    """A job that opens the file with "w" again, or renames another over it, is followed."""
    path = tmp_path / "progress"
    path.write_bytes(b'{"checkpoint": "a", "step": 100}\n{"ste')
    file = ProgressFile(str(path))
    file.poll()
    path.write_bytes(b'{"checkpoint": "b"}\n')
    file.poll()
    (tmp_path / "other").write_bytes(b'{"checkpoint": "c"}\n' + b'{"step": 1}\n' * 10)
    (tmp_path / "other").rename(path)
    file.poll()

    assert file.state.latest is not None
    assert (file.state.latest.ordinal, file.state.latest.name, file.state.step) == (3, "c", 1)


@pytest.mark.parametrize("kind", ["directory", "pipe", "absent"])
def test_what_is_no_file_is_no_reason_to_fail(tmp_path: Path, kind: str) -> None:
    """A directory or a pipe in its place is said and survived; an absent file is just silence."""
    path = tmp_path / "progress"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    file = ProgressFile(str(path))
    file.poll(final=True)

    assert (file.problem is None) == (kind == "absent")


def test_a_fast_writer_is_read_to_the_end_when_it_matters(tmp_path: Path) -> None:
    """One poll reads a bounded piece, the final one everything."""
    path = tmp_path / "progress"
    path.write_bytes(b'{"step": 1}\n' * 200_000 + b'{"step": 2}\n')
    file = ProgressFile(str(path))
    file.poll()
    assert file.state.step == 1
    file.poll(final=True)

    assert file.state.step == 2
