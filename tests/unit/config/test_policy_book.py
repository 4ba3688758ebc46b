"""The directory of policies: what is in force while people edit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spotd.config.policy_book import PolicyBook, PolicyState, unknown_policy

GOOD = "spot_handlers: {fallback_node: p5.48xlarge, region_failover: [us-west-2]}\n"
BETTER = "spot_handlers: {fallback_node: p5.48xlarge, region_failover: [us-west-2, us-east-1]}\n"
BROKEN = "spot_handlers: {fallback_nod: p5.48xlarge}\n"


@pytest.fixture(name="directory")
def _directory(tmp_path: Path) -> Path:
    path = tmp_path / "policies"
    path.mkdir()
    return path


def regions(book: PolicyBook, name: str) -> tuple[str, ...]:
    """What is in force, by one telling detail."""
    return book.policies()[name].candidates[0].regions


def test_all_files_are_read_once(directory: Path) -> None:
    """The first look takes every policy up and says so; a look at unchanged files says nothing."""
    (directory / "a.yaml").write_text(GOOD)
    (directory / "b.yml").write_text(GOOD)
    book = PolicyBook(directory)

    assert [(c.policy, c.problem) for c in book.refresh()] == [("a", ""), ("b", "")]
    assert sorted(book.policies()) == ["a", "b"]
    assert book.refresh() == ()


def test_a_changed_file_is_taken_up(directory: Path) -> None:
    """An edit is in force after the next look."""
    (directory / "a.yaml").write_text(GOOD)
    book = PolicyBook(directory)
    book.refresh()
    (directory / "a.yaml").write_text(BETTER)

    assert [(c.policy, c.problem) for c in book.refresh()] == [("a", "")]
    assert regions(book, "a") == ("us-west-2", "us-east-1")


def test_a_broken_edit_keeps_the_last_good_version_and_is_told_once(directory: Path) -> None:
    """While the file is wrong the old policy is in force, and what is wrong is there to be shown, with line and key."""
    (directory / "a.yaml").write_text(BETTER)
    book = PolicyBook(directory)
    book.refresh()
    (directory / "a.yaml").write_text(BROKEN)
    (change,) = book.refresh()

    assert "a.yaml:1: spot_handlers.fallback_nod:" in change.problem
    assert book.refresh() == ()
    (entry,) = book.entries()
    assert (PolicyState.BROKEN, change.problem) == (entry.state, entry.problem)
    assert regions(book, "a") == ("us-west-2", "us-east-1")

    (directory / "a.yaml").write_text(GOOD)
    assert [(c.policy, c.problem) for c in book.refresh()] == [("a", "")]
    assert PolicyState.OK is book.entries()[0].state


def test_a_file_that_was_never_right_is_unusable(directory: Path) -> None:
    """Without a last good version there is no policy, only its problem."""
    (directory / "a.yaml").write_text(BROKEN)
    book = PolicyBook(directory)
    book.refresh()

    assert dict(book.policies()) == {}
    assert (book.entries()[0].state, book.entries()[0].policy) == (PolicyState.UNUSABLE, None)


def test_a_broken_file_does_not_keep_others_from_being_read(directory: Path) -> None:
    """Junk, a directory and a dead link beside a good file are its neighbours' problem."""
    (directory / "junk.yaml").write_bytes(b"\x7fELF\x00\xff")
    (directory / "dir.yaml").mkdir()
    (directory / "dead.yaml").symlink_to(directory / "nowhere")
    (directory / "a.yaml").write_text(GOOD)
    book = PolicyBook(directory)
    book.refresh()

    assert list(book.policies()) == ["a"]
    assert [e.name for e in book.entries()] == ["a", "dead", "junk"]


def test_editors_droppings_are_not_policies(directory: Path) -> None:
    """Hidden files, backups and files of other kinds are left alone."""
    for name in (".a.yaml.swp", ".a.yaml", "a.yaml~", "a.yaml.bak", "#a.yaml", "notes.txt"):
        (directory / name).write_text(GOOD)
    book = PolicyBook(directory)

    assert book.refresh() == ()
    assert book.entries() == ()


def test_one_name_in_two_files_is_a_problem(directory: Path) -> None:
    """a.yaml and a.yml would be the same policy: neither is taken for the right one."""
    (directory / "a.yaml").write_text(GOOD)
    (directory / "a.yml").write_text(BETTER)
    (change,) = PolicyBook(directory).refresh()

    assert "a.yml is the same policy" in change.problem


def test_a_vanished_file_is_forgotten_unless_it_is_in_use(directory: Path) -> None:
    """A policy whose file is gone stays in force for the unfinished jobs that use it, and goes with the last of them."""
    (directory / "a.yaml").write_text(GOOD)
    (directory / "b.yaml").write_text(GOOD)
    book = PolicyBook(directory)
    book.refresh()
    (directory / "a.yaml").unlink()
    (directory / "b.yaml").unlink()

    assert {"a", "b"} == {c.policy for c in book.refresh({"a"})}
    assert [(e.name, e.state) for e in book.entries()] == [("a", PolicyState.VANISHED)]
    assert list(book.policies()) == ["a"]
    assert book.refresh({"a"}) == ()
    assert book.refresh(()) == ()
    assert dict(book.policies()) == {}


def test_a_file_that_comes_back_is_taken_up(directory: Path) -> None:
    """Editors that remove and write anew are no problem."""
    (directory / "a.yaml").write_text(GOOD)
    book = PolicyBook(directory)
    book.refresh()
    (directory / "a.yaml").unlink()
    book.refresh({"a"})
    (directory / "a.yaml").write_text(BETTER)

    assert [(c.policy, c.problem) for c in book.refresh({"a"})] == [("a", "")]
    assert regions(book, "a") == ("us-west-2", "us-east-1")


def test_a_restart_in_the_middle_of_a_broken_edit_changes_nothing(directory: Path, tmp_path: Path) -> None:
    """The last good text outlives the daemon: for a broken file, and for one that is gone but in use."""
    keep = tmp_path / "keep"
    (directory / "a.yaml").write_text(BETTER)
    (directory / "b.yaml").write_text(GOOD)
    PolicyBook(directory, keep).refresh()
    (directory / "a.yaml").write_text(BROKEN)
    (directory / "b.yaml").unlink()

    book = PolicyBook(directory, keep)
    book.refresh({"a", "b"})

    assert regions(book, "a") == ("us-west-2", "us-east-1")
    assert regions(book, "b") == ("us-west-2",)
    assert [e.state for e in book.entries()] == [PolicyState.BROKEN, PolicyState.VANISHED]


def test_a_directory_that_cannot_be_read_changes_nothing(directory: Path) -> None:
    """Not to be read is not the same as empty: everything stays in force, and the problem is told once."""
    (directory / "a.yaml").write_text(GOOD)
    book = PolicyBook(directory)
    book.refresh()
    away = directory.rename(directory.with_name("away"))

    (change,) = book.refresh()
    assert "cannot be read" in change.problem
    assert book.refresh() == ()
    assert list(book.policies()) == ["a"]
    assert book.problem == change.problem

    away.rename(directory)
    assert [(c.policy, c.problem) for c in book.refresh()] == [("*", "")]
    assert book.problem == ""


def test_an_edit_of_the_same_length_in_the_same_instant_is_seen(directory: Path) -> None:
    """A file that was replaced is read again even when its time and size are the old ones."""
    path = directory / "a.yaml"
    path.write_text(GOOD)
    book = PolicyBook(directory)
    book.refresh()
    status = path.stat()
    fresh = directory / "fresh"
    fresh.write_text(GOOD.replace("west-2", "east-1"))
    fresh.replace(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    book.refresh()

    assert regions(book, "a") == ("us-east-1",)


def test_an_unknown_policy_is_answered_with_the_known_ones() -> None:
    """Whoever misspells a policy sees what there is; where there is none, where to put one."""
    assert unknown_policy("h10", ["b", "a"]) == ('there is no policy "h10"', "known: a, b")
    assert "add a file" in unknown_policy("x", [])[1]
