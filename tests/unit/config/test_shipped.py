"""What is shipped is right: policies to copy, and the reference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spotd.config.daemon import parse_daemon_config
from spotd.config.job import parse_job
from spotd.config.policy import parse_policy
from spotd.config.reference import reference


def test_every_shipped_policy_is_right(shipped: Path) -> None:
    """Policies to copy parse without a warning, and each begins with what it is for."""
    files = sorted((shipped / "policies").glob("*.yaml"))

    assert {"minimal", "h100-two-clouds", "budget-capped", "patient-spot", "local-demo"} <= {f.stem for f in files}
    for file in files:
        assert parse_policy(file.read_bytes(), str(file)).warnings == ()
        assert file.read_text("utf-8").startswith("# ")


def test_the_smallest_shipped_policy_has_four_keys(shipped: Path) -> None:
    """The first policy that somebody copies is the four-key block and nothing else."""
    text = (shipped / "policies" / "minimal.yaml").read_text("utf-8")
    keys = [line.split(":")[0].strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]

    assert keys == ["spot_handlers", "pre_reclaim_hook", "max_preemptions", "fallback_node", "region_failover"]


def test_the_reference_is_that_of_the_models() -> None:
    """docs/reference.md is what `python -m spotd.config.reference` prints."""
    page = Path(__file__).parents[3] / "docs" / "reference.md"

    assert page.read_text("utf-8") == reference(), "run: python -m spotd.config.reference > docs/reference.md"


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_examples_of_the_reference_parse(number: int) -> None:
    """What the reference shows can be copied: a job, a policy and a daemon file."""
    example = re.findall(r"```\w+\n(.*?)```", reference(), re.DOTALL)[number]
    parse = (
        lambda: parse_job(example, "job.yaml"),
        lambda: parse_policy(example, "policy.yaml"),
        lambda: parse_daemon_config(example),
    )[number]

    assert parse() is not None
