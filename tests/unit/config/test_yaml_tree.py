"""What a YAML file may hold, and what is said about the rest."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from spotd.config.errors import ConfigError
from spotd.config.yaml_tree import MAX_BYTES, load, read_limited


def test_scalars_mean_what_they_look_like() -> None:
    """Whole numbers, decimals and truth values are such; `no`, dates and times of day are the text that was written."""
    tree = load("a: 3\nb: 40.00\nc: true\nd: no\ne: 2026-12-04\nf: 1:30\ng: '3'\nh: 0x1f\ni: .inf\nj: -7\n", "f.yaml")

    expected = {"a": 3, "b": Decimal("40.00"), "c": True, "d": "no", "e": "2026-12-04", "f": "1:30", "g": "3", "h": "0x1f", "i": ".inf", "j": -7}
    assert expected == tree.value
    assert str(tree.value["b"]) == "40.00"
    assert tree.problems == []


def test_text_stays_text_where_it_is_asked_for() -> None:
    """Below the keys named so, numbers keep their zeros and truth values their spelling."""
    tree = load("env: {N: 010, Y: yes, T: True}\nn: 010", "f.yaml", frozenset({"env"}))

    assert tree.value["env"] == {"N": "010", "Y": "yes", "T": "True"}


def test_every_key_knows_its_line() -> None:
    """Lines are those of the keys, also inside lists and blocks; what has no line of its own takes its block's."""
    tree = load("a: 1\nb:\n  - c: 2\n    d:\n      e: 3\n", "f.yaml")

    assert tree.line(("a",)) == 1
    assert tree.line(("b", 0, "c")) == 3
    assert tree.line(("b", 0, "d", "e")) == 5
    assert tree.line(("b", 0, "d", "missing")) == 4


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "is empty"),
        ("# only a comment\n", 1, "is empty"),
        ("null", 1, "is empty"),
        ("- a\n- b\n", 1, "holds a list"),
        ("just words", 1, "holds text"),
        ("a: 1\n\tb: 2\n", 2, "tab"),
        ("a:\n\t- 1\n", 2, "tab"),
        ("a: b: c\n", 1, "not valid YAML"),
        ("a: [1, 2\n", 2, "not valid YAML"),
        ('a: "open\n', 2, "not valid YAML"),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
        ("a: &x 1\nb: *x\n", 1, "anchor &x"),
        ("a: *x\n", 1, "alias *x"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "tag"),
        ("a: !secret b\n", 1, "tag"),
        ("a: \x07\n", 1, "control character"),
        ("[" * 5000, 1, "nested too deeply"),
        ("a: " + "{b: " * 200, 1, "nested too deeply"),
        ("- " * 30_000 + "x", 1, "nested too deeply"),
        ('a: "\\U99999999"\n', None, "not valid YAML"),
    ],
)
def test_what_cannot_be_read_is_one_clear_error(text: str, line: int | None, says: str) -> None:
    """A file that cannot be read is one error with its line, whatever is wrong with it."""
    with pytest.raises(ConfigError) as caught:
        load(text, "f.yaml")

    assert len(caught.value.problems) == 1
    assert says in caught.value.message
    if line is not None:
        assert line == caught.value.line


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "a", "given twice, first in line 1"),
        ("a: {b: 1, b: 2}\n", 1, "a.b", "given twice"),
        ("a:\n", 1, "a", "has no value"),
        ("a: ~\n", 1, "a", "has no value"),
        ("a: [1, ]\nb: [1, ~]\n", 2, "b[1]", "has no value"),
        ("? [x]\n: 1\n", 1, "", "a key that is not a word"),
        ("a: 1\n<<: {b: 2}\n", 2, "<<", "merge keys"),
        ('a: "\\0"\n', 1, "a", "control character"),
        ('a: "\\ud800"\n', 1, "a", "control character"),
        ('"\\e[31m": 1\n', 1, "", "control character"),
    ],
)
def test_lesser_problems_are_collected(text: str, line: int, key: str, says: str) -> None:
    """A problem with one key does not keep the rest from being read."""
    problem = load(text, "f.yaml").problems[0]

    assert (line, key) == (problem.line, problem.key)
    assert says in problem.message


def test_an_alias_bomb_costs_nothing() -> None:
    """Nested aliases are refused at the first one, before anything is expanded."""
    levels = "\n".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 40))
    with pytest.raises(ConfigError, match="anchor"):
        load("l0: &l0 lol\n" + levels, "f.yaml")


def test_a_file_with_too_many_values_is_refused() -> None:
    """The number of values is limited, not only the size."""
    with pytest.raises(ConfigError, match="more than 5000 values"):
        load("a: [" + "1," * 50_000 + "]", "f.yaml")


@pytest.mark.parametrize("content", [b"\x7fELF\x02\x01\x01\x00\xff", b"\xff\xfea\x00", b"a: \xe9\n"])
def test_binary_junk_is_not_text(content: bytes) -> None:
    """What is no UTF-8 is said to be none, and guessed to be binary."""
    with pytest.raises(ConfigError) as caught:
        load(content, "f.yaml")

    assert (caught.value.message, caught.value.hint) == ("is not UTF-8 text", "is it a binary file?")


def test_a_byte_order_mark_is_no_problem() -> None:
    """Editors on Windows write one."""
    assert load(b"\xef\xbb\xbfa: 1\r\n", "f.yaml").value == {"a": 1}


def test_files_that_are_none(tmp_path: Path) -> None:
    """A missing file, a directory and an endless device are one sentence each, and nothing is read without a limit."""
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (MAX_BYTES + 1))

    for path, says in ((tmp_path / "none.yaml", "does not exist"), (tmp_path, "is a directory"), (Path("/dev/zero"), "is not a file")):
        with pytest.raises(ConfigError, match=says):
            read_limited(path, str(path))
    with pytest.raises(ConfigError, match="larger than 128 KiB"):
        read_limited(large, "large.yaml")
    with pytest.raises(ConfigError, match="larger than 128 KiB"):
        load("#" * (MAX_BYTES + 1), "f.yaml")
