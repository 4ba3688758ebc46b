"""No file that anybody can write gets anything out of a parser but a value or a ConfigError."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from spotd.config.daemon import parse_daemon_config
from spotd.config.errors import ConfigError
from spotd.config.job import parse_job, parse_job_mapping
from spotd.config.policy import parse_policy
from spotd.config.quantities import NotQuantity, duration, price, show_duration, size

JOB_KEYS = ("name", "policy", "owner", "labels", "run", "setup", "workdir", "env", "estimated_runtime", "checkpoint", "retries", "dir", "on_error")
POLICY_KEYS = (
    "candidates", "provider", "instance_types", "regions", "spot_handlers", "max_preemptions", "fallback_node", "region_failover",
    "pre_reclaim_hook", "return_to_spot", "after", "max_hourly_price", "max_wait", "replace_when_unreachable",
)  # fmt: skip
WORDS = (
    "never", "aws", "gcp", "us-west-2", "us-central1", "p5.48xlarge", "a3-highgpu-8g", "1h", "15 min", "40.00", "true", "~", "3", "-1", "a b", "",
    "*x", "&x",
)  # fmt: skip

_scalars = st.one_of(st.sampled_from(WORDS), st.integers(), st.floats(), st.booleans(), st.none(), st.text(max_size=20))
Parser = Callable[[Any], object]


def _job(content: Any) -> object:
    return parse_job(content, "job.yaml")


def _policy(content: Any) -> object:
    return parse_policy(content, "policy.yaml")


def _daemon(content: Any) -> object:
    return parse_daemon_config(content, "spotd.toml")


def _blocks(keys: tuple[str, ...]) -> st.SearchStrategy[Any]:
    """Trees of our own keys and likely values: near misses rather than noise."""
    names = st.one_of(st.sampled_from(keys), st.text(string.ascii_lowercase + "_", min_size=1, max_size=12))
    return st.recursive(_scalars, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(names, inner, max_size=5)), max_leaves=12)


def only_config_error(parse: Parser, content: Any) -> None:
    """Parse; whatever is wrong is told with a file, in words that one can print on one line."""
    try:
        parse(content)
    except ConfigError as error:
        for problem in error.problems:
            assert problem.file
            assert problem.message
            assert str(problem).isprintable()
            assert problem.line is None or problem.line >= 1


@given(st.binary(max_size=400))
@example(b"\xef\xbb\xbf")
@example(b"\x85")
@example("\u2028: 1".encode())
def test_any_bytes(content: bytes) -> None:
    """Binary junk is a ConfigError, or by luck a file."""
    only_config_error(_job, content)
    only_config_error(_policy, content)


@given(st.text(max_size=200))
@example('a: "\\U99999999"')
@example("? ? ?\n")
@example("- - - -\n")
@example("%YAML 9.9\n---\na: 1")
@example("%TAG ! !\n---\n!a b: 1")
@example("a: |\n")
@example("a: >9999999999\n b")
@example("'")
@example("...")
@example("---")
def test_any_text(content: str) -> None:
    """So is any text, for all three kinds of files."""
    only_config_error(_job, content)
    only_config_error(_policy, content)
    only_config_error(_daemon, content)


@given(st.text("abk:-[]{},&*!|>'\"%@`#? \n\t~<\\0", max_size=60))
def test_syntax_soup(content: str) -> None:
    """Text made of what YAML and TOML give a meaning to."""
    only_config_error(_job, content)
    only_config_error(_policy, content)
    only_config_error(_daemon, content)


@given(_blocks(POLICY_KEYS))
def test_policies_of_the_right_keys_in_the_wrong_places(value: Any) -> None:
    """Trees of known keys with values of any kind."""
    only_config_error(_policy, yaml.safe_dump(value))


@given(_blocks(JOB_KEYS))
def test_jobs_of_the_right_keys_in_the_wrong_places(value: Any) -> None:
    """The same for jobs, from a file and from JSON."""
    only_config_error(_job, yaml.safe_dump(value))
    if isinstance(value, dict):
        only_config_error(lambda mapping: parse_job_mapping(mapping, "request"), value)


_json = st.recursive(_scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))


@given(st.dictionaries(st.text(max_size=10), _json))
def test_any_json_as_a_job(value: dict[str, Any]) -> None:
    """A request may hold anything that JSON can."""
    only_config_error(lambda mapping: parse_job_mapping(mapping, "request"), value)


#: Pieces that a parser may go deep or far for, each repeated up to about half the largest size that is read.
PIECES = ("[", "{", "a: ", "- ", "? ", "a:\n", "'", "#", "&a ", "!", "a = [", "[a]\n", "a.", "[a.", "\n", " ", "| ", "0", "a: 1\n", "\u00e9")


@pytest.mark.parametrize("parse", [_job, _policy, _daemon], ids=["job", "policy", "daemon"])
@pytest.mark.parametrize("piece", PIECES, ids=repr)
def test_large_nonsense_is_over_soon(parse: Parser, piece: str) -> None:
    """Nothing of the largest size that is read takes long or deep: one error."""
    for length in (30_000, 120_000):
        only_config_error(parse, piece * (length // len(piece)))


@given(st.timedeltas(min_value=duration("0s"), max_value=duration("3650d")))
def test_a_shown_duration_reads_as_the_same(value: Any) -> None:
    """What spotd shows can be written in a file: the same to the millisecond."""
    rounded = value - value % duration("1ms")

    assert duration(show_duration(rounded)) == rounded


@given(st.one_of(st.text(max_size=30), st.integers(), st.floats(), st.none(), st.booleans(), st.lists(st.integers())))
def test_quantities_refuse_in_one_way(value: Any) -> None:
    """Anything that is no quantity is NotQuantity, with a hint."""
    for parse in (duration, price, size):
        refusal = None
        try:
            parse(value)
        except NotQuantity as error:
            refusal = error
        assert refusal is None or (refusal.hint and str(refusal).isprintable())
