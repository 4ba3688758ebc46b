"""The working directory as an archive."""

from __future__ import annotations

import hashlib
import os
import tarfile
from pathlib import Path

import pytest

from spotd.cli.failure import Failure
from spotd.cli.pack import pack


def names(directory: Path) -> list[str]:
    """What the archive holds, in order."""
    archive = pack(directory)
    with archive.stream, tarfile.open(fileobj=archive.stream) as tar:
        return tar.getnames()


def fill(directory: Path) -> None:
    """A small project."""
    (directory / "src" / "deep").mkdir(parents=True)
    (directory / "train.py").write_text("print(1)\n")
    (directory / "run.sh").write_text("#!/bin/sh\n")
    (directory / "run.sh").chmod(0o755)
    (directory / "src" / "deep" / "a.py").write_text("a\n")
    (directory / "empty").mkdir()


def test_the_same_content_is_the_same_archive(tmp_path: Path) -> None:
    """Times, owners and the order of a directory change nothing, so that identical content is sent once."""
    one, two = tmp_path / "one", tmp_path / "two"
    for directory in (one, two):
        directory.mkdir()
        fill(directory)
    for path in two.rglob("*"):
        os.utime(path, (1, 1))
    first, second = pack(one), pack(two)
    with first.stream, second.stream:
        content = first.stream.read()

        assert first.sha256 == second.sha256 == hashlib.sha256(content).hexdigest()
        assert len(content) == first.size

    (two / "train.py").write_text("print(2)\n")
    third = pack(two)
    third.stream.close()
    assert third.sha256 != first.sha256


def test_modes_are_those_that_matter(tmp_path: Path) -> None:
    """What can be executed stays so; owners and times are nobody's."""
    fill(tmp_path)
    archive = pack(tmp_path)
    with archive.stream, tarfile.open(fileobj=archive.stream) as tar:
        found = {member.name: (member.mode, member.mtime, member.uid, member.uname) for member in tar}

    assert found["run.sh"] == (0o755, 0, 0, "")
    assert found["train.py"] == (0o644, 0, 0, "")
    assert found["empty"] == (0o755, 0, 0, "")


def test_what_is_never_the_jobs_is_left_out(tmp_path: Path) -> None:
    """Repositories, environments and caches stay at home, at every depth."""
    fill(tmp_path)
    for name in (".git", ".venv", "__pycache__", "src/__pycache__", "src/.git"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text("x")

    assert names(tmp_path) == ["empty", "run.sh", "src", "train.py", "src/deep", "src/deep/a.py"]


def test_spotdignore_leaves_out_what_it_names(tmp_path: Path) -> None:
    """A pattern fits a path or a last name; with a slash at its end, directories only."""
    fill(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("x")
    (tmp_path / "src" / "data").write_text("a file of that name")
    (tmp_path / "a.log").write_text("x")
    (tmp_path / "src" / "b.log").write_text("x")
    (tmp_path / ".spotdignore").write_text("# comment\n\n*.log\ndata/\nsrc/deep\n")

    assert names(tmp_path) == [".spotdignore", "empty", "run.sh", "src", "train.py", "src/data"]


def test_links_inside_stay_and_links_outside_are_told(tmp_path: Path) -> None:
    """A link within the directory is kept; one that leads out would mean nothing on an instance."""
    fill(tmp_path)
    (tmp_path / "src" / "up").symlink_to("../train.py")
    (tmp_path / "out").symlink_to("/etc/passwd")
    (tmp_path / "up").symlink_to("../x")
    os.mkfifo(tmp_path / "pipe")
    archive = pack(tmp_path)
    with archive.stream, tarfile.open(fileobj=archive.stream) as tar:
        assert tar.getmember("src/up").linkname == "../train.py"
        assert not {"out", "up", "pipe"} & set(tar.getnames())

    assert [note.split()[0] for note in archive.notes] == ["out", "pipe", "up"]


def test_too_much_is_told_with_what_is_large(tmp_path: Path) -> None:
    """The sentence names the largest entries and the way to leave them out."""
    fill(tmp_path)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "w.bin").write_bytes(bytes(3_000_000))

    with pytest.raises(Failure, match=r"3 MB, at most 1 MB are sent; the largest: weights \(3 MB\).*\.spotdignore"):
        pack(tmp_path, limit=1_000_000)


def test_what_is_no_directory_is_told(tmp_path: Path) -> None:
    """A workdir that does not exist is one sentence."""
    with pytest.raises(Failure, match="is not a directory"):
        pack(tmp_path / "none")


def test_an_ignore_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    """Junk in .spotdignore must not silently send everything."""
    (tmp_path / ".spotdignore").write_bytes(b"\xff\xfe")

    with pytest.raises(Failure, match="cannot be read"):
        pack(tmp_path)
