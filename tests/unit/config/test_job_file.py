"""The job file."""

from __future__ import annotations

from datetime import timedelta

import pytest

from spotd.config.errors import ConfigError
from spotd.config.job import parse_job, parse_job_mapping
from spotd.core.job import JobSpec, Retries

FULL = """\
name: llama-ft
policy: h100
owner: alice
labels: {project: legal, model: 7}
run: python train.py
setup: pip install -r requirements.txt
workdir: .
env: {WANDB_MODE: offline, EPOCHS: 010}
estimated_runtime: 40h
checkpoint: {dir: ckpt}
retries: {on_error: 2, retry_on_exit_codes: [33, 34]}
"""
SMALL = "name: a\npolicy: b\nrun: c\n"


def test_every_key_arrives() -> None:
    """A job file with every key becomes the spec that core wants, owner and workdir beside it."""
    parsed = parse_job(FULL, "job.yaml", workdir_sha256="0" * 64)

    expected = JobSpec(
        name="llama-ft",
        policy="h100",
        run="python train.py",
        setup="pip install -r requirements.txt",
        labels={"project": "legal", "model": "7"},
        env={"WANDB_MODE": "offline", "EPOCHS": "010"},
        workdir_sha256="0" * 64,
        estimated_runtime=timedelta(hours=40),
        checkpoint_dir="ckpt",
        retries=Retries(2, (33, 34)),
    )
    assert expected == parsed.spec
    assert (parsed.owner, parsed.workdir, parsed.warnings) == ("alice", ".", ())


def test_three_keys_are_enough() -> None:
    """Name, policy and command make a job; the rest has defaults."""
    parsed = parse_job(SMALL, "job.yaml")

    assert JobSpec("a", "b", "c") == parsed.spec
    assert (parsed.owner, parsed.workdir) == (None, None)


def test_plain_values_parse_as_files_do() -> None:
    """`spotd run` sends the same keys as JSON."""
    parsed = parse_job_mapping({"name": "a", "policy": "b", "run": "c", "env": {"X": "1"}}, "command line")

    assert JobSpec("a", "b", "c", env={"X": "1"}) == parsed.spec


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        (SMALL + "polcy: x\n", 4, "polcy", "did you mean policy?"),
        (SMALL + "resources: {disk: 200}\n", 4, "resources.disk", "has no unit"),
        (SMALL + "resources: {disk: 2GB}\n", 4, "resources.disk", "from 8GB to 16TB"),
        (SMALL + "resources: {gpus: 8}\n", 4, "resources.gpus", "is not a key that spotd knows"),
        (SMALL + "deadline: 2026-12-04T08:00Z\n", 4, "deadline", "is not a key that spotd knows"),
        (SMALL + "on_error: 2\n", 4, "on_error", "it belongs under retries"),
        (SMALL + "retries: {on_eror: 2}\n", 4, "retries.on_eror", "did you mean on_error?"),
        (SMALL + "retries: {on_error: two}\n", 4, "retries.on_error", "a whole number is wanted"),
        (SMALL + "retries: {on_error: -1}\n", 4, "retries.on_error", "at least 0"),
        (SMALL + "retries: {on_error: 1000}\n", 4, "retries.on_error", "at most 100"),
        (SMALL + "retries: {retry_on_exit_codes: [33, 0]}\n", 4, "retries.retry_on_exit_codes[1]", "1 to 255"),
        (SMALL + "retries: {retry_on_exit_codes: [33, 33]}\n", 4, "retries.retry_on_exit_codes", "twice"),
        (SMALL + "retries: {retry_on_exit_codes: 33}\n", 4, "retries.retry_on_exit_codes", "a list is wanted"),
        (SMALL + "estimated_runtime: 40\n", 4, "estimated_runtime", "40s or 40m"),
        (SMALL + "estimated_runtime: 0s\n", 4, "estimated_runtime", "more than nothing"),
        (SMALL + "checkpoint: {dir: /ckpt}\n", 4, "checkpoint.dir", "inside the workdir"),
        (SMALL + "checkpoint: {dir: ../ckpt}\n", 4, "checkpoint.dir", "inside the workdir"),
        (SMALL + "checkpoint: {dir: .}\n", 4, "checkpoint.dir", "inside the workdir"),
        (SMALL + "checkpoint: ckpt\n", 4, "checkpoint", "a block of keys is wanted"),
        (SMALL + "env: [A=1]\n", 4, "env", "a block of `NAME: value` is wanted"),
        (SMALL + "env: {1A: x}\n", 4, "env", "not beginning with a digit"),
        (SMALL + "env: {SPOTD_JOB_ID: x}\n", 4, "env", "a name that spotd sets itself"),
        (SMALL + "env: {A: {b: c}}\n", 4, "env", "text is wanted"),
        (SMALL + "labels: {Project: x}\n", 4, "labels", "lower-case"),
        (SMALL + "labels: {project: " + "x" * 64 + "}\n", 4, "labels", "at most 63"),
        (SMALL + "workdir: {git: x}\n", 4, "workdir", "a path is wanted"),
        (SMALL + "owner: 'a b'\n", 4, "owner", "cannot be used here"),
        ("name: 3\npolicy: b\nrun: c\n", 1, "name", 'write it in quotes: "3"'),
        ("name: a/b\npolicy: b\nrun: c\n", 1, "name", "letters, digits"),
        ("name: a\npolicy: b\nrun: ''\n", 3, "run", "is empty"),
        ("name: a\npolicy: b\nrun: [a, b]\n", 3, "run", "a shell command is wanted"),
        ("name: a\nrun: c\n", 1, "policy", "is missing"),
        ("name: a\npolicy: b\nruns: c\n", 3, "runs", "did you mean run?"),
    ],
)
def test_what_is_wrong_is_told_with_line_and_key(text: str, line: int, key: str, says: str) -> None:
    """Each mistake is one problem that names its line, its key, and what is accepted."""
    with pytest.raises(ConfigError) as caught:
        parse_job(text, "job.yaml")

    problems = caught.value.problems
    assert [("job.yaml", line, key)] == [(p.file, p.line, p.key) for p in problems]
    assert says in str(problems[0])


def test_every_problem_of_a_file_is_told_in_its_order() -> None:
    """One run of the check shows all that is wrong, from the top of the file to its end."""
    text = "name: a b\npolicy: b\nrunn: c\nestimated_runtime: 15 min\nname: c\nenv:\nretries: {on_error: x}\n"
    with pytest.raises(ConfigError) as caught:
        parse_job(text, "job.yaml")

    expected = [(1, "name"), (3, "runn"), (4, "estimated_runtime"), (5, "name"), (6, "env"), (7, "retries.on_error")]
    assert expected == [(p.line, p.key) for p in caught.value.problems]


def test_a_thousand_problems_are_cut_short() -> None:
    """Of one file at most fifty problems are told, and how many more there are."""
    with pytest.raises(ConfigError) as caught:
        parse_job(SMALL + "".join(f"k{i}: 1\n" for i in range(1000)), "job.yaml")

    assert len(caught.value.problems) == 50
    assert str(caught.value).endswith("job.yaml: … and 950 more")


def test_a_secret_in_env_is_a_warning() -> None:
    """What looks like a secret is taken, with a warning that names its line: env is stored and shown."""
    parsed = parse_job(SMALL + "env:\n  A: 1\n  HF_TOKEN: abc\n", "job.yaml")

    assert [(w.line, w.key) for w in parsed.warnings] == [(6, "env.HF_TOKEN")]
    assert "abc" not in str(parsed.warnings[0])


def test_an_archive_needs_a_workdir() -> None:
    """An archive for a job that names no workdir is a mistake of the caller, not to be swallowed."""
    with pytest.raises(ConfigError, match="archive"):
        parse_job(SMALL, "job.yaml", workdir_sha256="0" * 64)


def test_messages_cannot_steer_a_terminal() -> None:
    """Text of a file is quoted in messages without what a terminal would obey."""
    with pytest.raises(ConfigError) as caught:
        parse_job(SMALL + '"a\u202eb": 1\nestimated_runtime: "\u009b31m"\n', "job.yaml")

    assert str(caught.value).replace("\n", "").isprintable()
