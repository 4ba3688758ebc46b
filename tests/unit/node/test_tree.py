"""Scanning directories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spotd.node import tree


def test_the_signature_tells_every_change(tmp_path: Path) -> None:
    """Content, time, name, inode and links count; looking does not; an empty tree has none."""
    assert tree.scan(str(tmp_path)).signature == ""
    (tmp_path / "a").write_text("1")
    seen = {tree.scan(str(tmp_path)).signature}
    assert tree.scan(str(tmp_path)).signature in seen
    for change in (
        lambda: os.utime(tmp_path / "a", ns=(1, 1)),
        lambda: (tmp_path / "a").write_text("22"),
        lambda: (tmp_path / "a").rename(tmp_path / "b"),
        lambda: (tmp_path / "link").symlink_to("b"),
        lambda: os.link(tmp_path / "b", tmp_path / "c"),
    ):
        change()
        signature = tree.scan(str(tmp_path)).signature
        assert signature not in seen
        seen.add(signature)


def test_links_to_directories_are_not_followed(tmp_path: Path) -> None:
    """A loop is a link like any other."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d/up").symlink_to("..")
    found = tree.scan(str(tmp_path))

    assert (found.entries, found.links) == ((), (("d/up", ".."),))


@pytest.mark.parametrize(
    ("path", "target", "stays"),
    [
        ("a", "b", True),
        ("d/a", "../b", True),
        ("a", "../b", False),
        ("d/a", "../../b", False),
        ("a", "/etc", False),
        ("d/a", "..", True),
        ("a", "..", False),
        ("a", "..b", True),
    ],
)
def test_links_that_stay(path: str, target: str, stays: bool) -> None:
    """By its text, from where it stands."""
    assert tree.link_stays(path, target) is stays


def test_names_inside(tmp_path: Path) -> None:
    """Relative, absolute and linked names are resolved; what leads out is None."""
    (tmp_path / "real").mkdir()
    (tmp_path / "latest").symlink_to("real")
    root = str(tmp_path)
    expected = ["real", "real", "real", ".", None, None]

    names = ["real", "latest", f"{root}/real", ".", "..", "/etc"]
    assert expected == [tree.inside(root, name) for name in names]
