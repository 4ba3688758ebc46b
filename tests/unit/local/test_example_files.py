"""The example's job and policy are files that spotd takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotd.config.job import parse_job
from spotd.config.policy import parse_policy
from spotd_local.market import load

EXAMPLE = Path(__file__).parents[3] / "examples" / "numpy"


@pytest.mark.parametrize(("name", "parse"), [("job.yaml", parse_job), ("policy.yaml", parse_policy)])
def test_the_files_beside_the_example_are_valid(name: str, parse: object) -> None:
    """Whoever copies them gets no complaint, not even a warning."""
    path = EXAMPLE / name
    assert callable(parse)
    assert parse(path.read_bytes(), str(path)).warnings == ()


def test_the_policy_names_what_the_shipped_market_has() -> None:
    """Its regions are the recording's."""
    path = EXAMPLE / "policy.yaml"
    policy = parse_policy(path.read_bytes(), str(path)).policy
    regions = {region for candidate in policy.candidates for region in candidate.regions}
    assert regions == set(load("v100-2023-02").regions)
