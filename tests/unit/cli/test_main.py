"""The command line by itself: help, speed, and what it says when there is no daemon."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from spotd.cli import run
from spotd.cli.main import build_parser, main

VERBS = ("submit", "run", "jobs", "show", "logs", "explain", "cancel", "offers", "prices", "savings", "events", "policy", "status", "daemon", "demo")
#: Each verb that talks to a daemon, with what it needs.
TALKING = (
    ("jobs",),
    ("show", "x"),
    ("logs", "x"),
    ("logs", "-f", "x"),
    ("explain", "x"),
    ("cancel", "x"),
    ("offers",),
    ("prices",),
    ("savings",),
    ("events",),
    ("events", "-f"),
    ("policy", "list"),
    ("status",),
    ("run", "--policy", "p", "--no-workdir", "--", "true"),
)
HEAVY = ("pydantic", "pydantic_settings", "yaml", "rich", "sqlalchemy", "aiohttp", "alembic", "asyncio", "cryptography")


def test_every_verb_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    """`spotd --help` names every verb, and each verb's own help shows how it is used."""
    for words in ((), *((verb,) for verb in VERBS), ("policy", "check"), ("policy", "list")):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--help"])

        assert ended.value.code == 0
        text = capsys.readouterr().out
        if words:
            assert f"spotd {' '.join(words)}" in text.partition("examples:")[2]
        else:
            assert all(f"    {verb} " in text for verb in VERBS)


def test_every_verb_can_print_json() -> None:
    """`--json` is there for all of them."""
    parser = build_parser()
    needs = {"submit": ["f"], "show": ["j"], "logs": ["j"], "explain": ["j"], "cancel": ["j"], "run": ["--policy", "p", "--", "true"]}
    for verb in VERBS:
        words = ["policy", "list"] if verb == "policy" else [verb]

        assert parser.parse_args([*words, "--json", *needs.get(verb, [])]).json is True


def test_it_starts_without_anything_heavy() -> None:
    """`spotd --help` and the verbs that only ask import the standard library and nothing slow."""
    code = (
        "import sys; from spotd.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "main(['jobs', '--socket', '/nonexistent/s'])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("words", TALKING, ids=" ".join)
def test_without_a_daemon_there_is_one_sentence(words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and how to start it; with --json the same as one document."""
    path = str(tmp_path / "none.sock")
    at = 1 if words[0] != "policy" else 2
    placed = [*words[:at], "--socket", path, *words[at:]]

    assert main(placed) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"spotd: spotd daemon is not running at {path}: start it with `systemctl start spotd` or `spotd daemon --config …`")
    assert said.out == ""
    assert main([*placed[:at], "--json", *placed[at:]]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "not_running"


def test_the_socket_can_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """SPOTD_SOCKET is taken when --socket is not given."""
    monkeypatch.setenv("SPOTD_SOCKET", str(tmp_path / "env.sock"))

    assert main(["jobs"]) == 2
    assert str(tmp_path / "env.sock") in capsys.readouterr().err


def test_what_answers_but_is_not_spotd_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that hangs up, and a path that is too long for one, are sentences."""
    monkeypatch.chdir("/tmp")
    name = f"spotd-test-{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(name)
        try:
            assert main(["jobs", "--socket", name]) == 2
        finally:
            Path(name).unlink()
    assert "not running" in capsys.readouterr().err
    assert main(["jobs", "--socket", "/" + "x" * 200]) == 2
    assert "too long" in capsys.readouterr().err


def test_a_reader_that_went_away_is_no_error() -> None:
    """`spotd policy check … | head` says nothing about its pipe."""
    code = "import sys; from spotd.cli.main import main; sys.exit(main(['policy', 'check', *['/none.yaml'] * 20000, '--json']))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()

    assert process.wait() == 0
    assert errors == b""


def test_policy_check_needs_no_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """OK or each problem with file, line and key; exit code 2 when a file is wrong, warnings beside it."""
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("spot_handlers: {fallback_node: p5.48xlarge, region_failover: [us-west-2], pre_reclaim_hook: 'cp x s3://y'}\n")
    bad.write_text("max_wiat: 1h\nmax_price_age: 3\n")

    assert main(["policy", "check", str(good)]) == 0
    said = capsys.readouterr()
    assert said.out == f"{good}: OK\n"
    assert said.err.startswith(f"warning: {good}:1: spot_handlers.pre_reclaim_hook: writes to s3://")
    assert main(["policy", "check", str(good), str(bad), str(tmp_path / "none.yaml")]) == 2
    said = capsys.readouterr()
    assert f"{bad}:1: max_wiat: is not a key that spotd knows (did you mean max_wait?)" in said.err
    assert f"{bad}:2: max_price_age: 3 has no unit" in said.err
    assert f"{tmp_path / 'none.yaml'}: does not exist" in said.err
    assert main(["policy", "check", "--json", str(bad)]) == 2
    (result,) = json.loads(capsys.readouterr().out)["files"]
    assert (result["ok"], [p["line"] for p in result["problems"]]) == (False, [1, 2])


def test_a_broken_job_file_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """File, line, key and remedy, exit code 2, also from standard input; no daemon is needed for that."""
    file = tmp_path / "job.yaml"
    file.write_text("name: a\npolicy: b\nrun: c\npolcy: x\n")

    assert main(["submit", str(file)]) == 2
    assert capsys.readouterr().err == f"spotd: {file}:4: polcy: is not a key that spotd knows (did you mean policy?)\n"
    assert main(["submit", "--json", str(file)]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["line"], error["key"], error["hint"]) == (4, "polcy", "did you mean policy?")
    assert main(["submit", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml: does not exist" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\x00\xff\xfe")))
    assert main(["submit", "-"]) == 2
    assert "standard input:1: is not UTF-8 text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "says"),
    [(None, "does not exist"), ("tick_interval = 5s\n", "stand in quotes"), ('log_levl = "x"\n', "did you mean log_level?")],
    ids=["missing", "syntax", "key"],
)
def test_a_daemon_that_cannot_start_says_why(config: str | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong configuration is a sentence with file, line and key, exit code 2."""
    file = tmp_path / "spotd.toml"
    if config is not None:
        file.write_text(config)

    assert main(["daemon", "--config", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"spotd: {file}")
    assert says in error


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["python", "train.py", "--x"], "train"),
        (["python -m train"], "python"),
        (["/usr/bin/env", "x"], "env"),
        (["cd src && python deep/go.py"], "go"),
        (["$(x)"], "x"),
        (["…"], "job"),
    ],
    ids=str,
)
def test_run_makes_a_name_from_the_command(words: list[str], name: str) -> None:
    """A script's name, or the program's, with nothing in it that a name may not have."""
    assert run._name(words) == name


@pytest.mark.parametrize(
    ("outcome", "codes", "expected"),
    [
        ("succeeded", [0], 0),
        ("succeeded", [None, 0], 0),
        ("failed", [7], 7),
        ("failed", [3, None, 9, None], 9),
        ("failed", [None], 1),
        ("failed", [], 1),
        ("failed", [-9], 137),
        ("failed", [0], 1),
        ("cancelled", [143], 1),
    ],
    ids=str,
)
def test_runs_exit_code_is_the_jobs(outcome: str, codes: list[int | None], expected: int) -> None:
    """As a shell would have it: the command's own code, 128 plus a signal's number, 1 where there is none."""
    assert run.exit_code({"job": {"outcome": outcome}, "attempts": [{"exit_code": code} for code in codes]}) == expected
