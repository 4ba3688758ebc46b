"""The policy file, and the four keys that are a whole one."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from spotd.config.errors import ConfigError
from spotd.config.policy import parse_policy
from spotd.core.policy import Candidate, Policy, SpotHandlers

FOUR_KEYS = """\
spot_handlers:
  pre_reclaim_hook: "python save_checkpoint.py --output $SPOTD_CHECKPOINT_DIR"
  max_preemptions: 3
  fallback_node: p5.48xlarge
  region_failover: [us-west-2, eu-west-1, ap-southeast-1]
"""
FAILOVER = "spot_handlers: {region_failover: [us-west-2]}\n"
AWS = "candidates: [{provider: aws, instance_types: [p5.48xlarge], regions: [us-west-2]}]\n"


def test_four_keys_are_a_complete_policy() -> None:
    """The type comes from fallback_node, the provider from the region names, the rest from defaults."""
    policy = parse_policy(FOUR_KEYS, "dir/h100.yaml").policy

    regions = ("us-west-2", "eu-west-1", "ap-southeast-1")
    hook = "python save_checkpoint.py --output $SPOTD_CHECKPOINT_DIR"
    expected = Policy("h100", (Candidate("aws", ("p5.48xlarge",), regions),), SpotHandlers(hook, 3, None, "p5.48xlarge", regions))
    assert expected == policy


def test_gcp_is_known_by_its_region_names() -> None:
    """The same four keys with GCP's names mean GCP."""
    policy = parse_policy("spot_handlers: {fallback_node: a3-highgpu-8g, region_failover: [us-central1, europe-west4]}", "h100.yaml").policy

    assert (Candidate("gcp", ("a3-highgpu-8g",), ("us-central1", "europe-west4")),) == policy.candidates


def test_every_key_arrives() -> None:
    """A policy file with every key becomes the value that core wants."""
    text = AWS + (
        "spot_handlers: {pre_reclaim_hook: save, max_preemptions: 5, preemption_window: 6h, fallback_node: p4d.24xlarge}\n"
        "return_to_spot: {after: 30m}\nmax_hourly_price: 40.00\nmax_price_age: 6h\nmax_wait: 1h30m\nmax_run_duration: 3d\n"
        "idle_timeout: 5m\nreplace_when_unreachable: {after: 30m}\n"
    )
    parsed = parse_policy(text, "p.yaml")

    expected = Policy(
        name="p",
        candidates=(Candidate("aws", ("p5.48xlarge",), ("us-west-2",)),),
        spot_handlers=SpotHandlers("save", 5, timedelta(hours=6), "p4d.24xlarge", ()),
        return_to_spot_after=timedelta(minutes=30),
        max_hourly_price_usd=Decimal("40.00"),
        max_price_age=timedelta(hours=6),
        max_wait=timedelta(minutes=90),
        max_run_duration=timedelta(days=3),
        idle_timeout=timedelta(minutes=5),
        replace_when_unreachable=timedelta(minutes=30),
    )
    assert (expected, ()) == (parsed.policy, parsed.warnings)


def test_defaults_are_those_of_core() -> None:
    """What a file leaves out is what core's own value would have."""
    assert Policy("p", (Candidate("aws", ("p5.48xlarge",), ("us-west-2",)),)) == parse_policy(AWS, "p.yaml").policy


def test_never_is_a_word() -> None:
    """`never` is allowed where a time after something is wanted."""
    policy = parse_policy(AWS + "return_to_spot: never\nreplace_when_unreachable: never\n", "p.yaml").policy

    assert (policy.return_to_spot_after, policy.replace_when_unreachable) == (None, None)


def test_candidates_share_the_regions_of_failover() -> None:
    """region_failover is the region set of the candidates that name none, each provider taking its own, in order."""
    text = """\
candidates:
  - {provider: aws, instance_types: [p5.48xlarge]}
  - {provider: gcp, instance_types: [a3-highgpu-8g]}
  - {provider: aws, instance_types: [p4d.24xlarge]}
spot_handlers: {region_failover: [us-west-2, us-central1, us-east-1]}
"""
    aws = ("us-west-2", "us-east-1")
    expected = (
        Candidate("aws", ("p5.48xlarge",), aws),
        Candidate("gcp", ("a3-highgpu-8g",), ("us-central1",)),
        Candidate("aws", ("p4d.24xlarge",), aws),
    )
    assert expected == parse_policy(text, "p.yaml").policy.candidates


def test_one_candidate_may_name_regions_while_another_providers_leaves_them() -> None:
    """Naming regions for one provider and leaving the other's to region_failover is clear, so it is taken."""
    text = """\
candidates:
  - {provider: aws, instance_types: [p5.48xlarge], regions: [eu-north-1]}
  - {provider: gcp, instance_types: [a3-highgpu-8g]}
spot_handlers: {region_failover: [us-central1]}
"""
    assert [c.regions for c in parse_policy(text, "p.yaml").policy.candidates] == [("eu-north-1",), ("us-central1",)]


def test_a_provider_of_ones_own_may_call_its_regions_anything() -> None:
    """Names of regions say nothing about a provider that is no cloud known here."""
    text = "candidates: [{provider: local, instance_types: [p3.2xlarge]}]\nspot_handlers: {region_failover: [us-west-2, cellar]}\n"

    assert (Candidate("local", ("p3.2xlarge",), ("us-west-2", "cellar")),) == parse_policy(text, "p.yaml").policy.candidates


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("max_wait: 1h\n", "candidates", "no fallback_node says which"),
        ("spot_handlers: {fallback_node: p5.48xlarge}\n", "candidates", "no region_failover says where"),
        (
            "spot_handlers: {fallback_node: p5.48xlarge, region_failover: [us-west-2, us-central1]}\n",
            "spot_handlers.region_failover",
            "mixes regions of two providers (aws: us-west-2; gcp: us-central1)",
        ),
        ("spot_handlers: {fallback_node: t, region_failover: [moon-1]}\n", "spot_handlers.region_failover", "the candidates must be named"),
        (AWS + "spot_handlers: {region_failover: [us-west-2]}\n", "spot_handlers.region_failover", "say it once"),
        (AWS + "spot_handlers: {region_failover: [us-central1]}\n", "spot_handlers.region_failover", "say it once"),
        ("candidates: [{provider: aws, instance_types: [p5.48xlarge]}]\n", "candidates[0]", "names no regions"),
        (
            "candidates: [{provider: aws, instance_types: [p5.48xlarge]}]\nspot_handlers: {region_failover: [us-west2]}\n",
            "spot_handlers.region_failover",
            "aws regions look like us-west-2",
        ),
        (
            "candidates: [{provider: aws, instance_types: [a.b]}]\nspot_handlers: {region_failover: [us-west-2, us-central1]}\n",
            "spot_handlers.region_failover",
            "no candidate is of gcp",
        ),
        (
            "candidates: [{provider: aws, instance_types: [a.b]}, {provider: gcp, instance_types: [c-d]}]\n" + FAILOVER,
            "candidates[1]",
            "region_failover has none of gcp",
        ),
        (
            "candidates: [{provider: aws, instance_types: [a.b], regions: [us-east-1]}, {provider: aws, instance_types: [c.d]}]\n" + FAILOVER,
            "candidates[0].regions",
            "regions for every candidate of it, or for none",
        ),
        (AWS + "max_preemptions: 3\n", "max_preemptions", "it belongs under spot_handlers"),
        (AWS + "max_preemption: 3\n", "max_preemption", "did you mean max_preemptions, under spot_handlers?"),
        (AWS + "max_wiat: 3h\n", "max_wiat", "did you mean max_wait?"),
        (AWS + "strategy: expected_cost\n", "strategy", "is not a key that spotd knows"),
        (AWS + "stall: {no_step_for: 15m}\n", "stall", "is not a key that spotd knows"),
        (AWS + "instance_profile: a/b\n", "instance_profile", "the name or the ARN of an IAM instance profile"),
        (AWS + "max_hourly_price: $40\n", "max_hourly_price", "did you mean 40?"),
        (AWS + "max_hourly_price: 40/h\n", "max_hourly_price", "US dollars per instance-hour"),
        (AWS + "max_wait: 15 min\n", "max_wait", "did you mean 15m?"),
        (AWS + "return_to_spot: 1h\n", "return_to_spot", "write {after: 1h}, or never"),
        (AWS + "return_to_spot: yes\n", "return_to_spot", "or never"),
        (AWS + "return_to_spot: 3\n", "return_to_spot", "or never"),
        (AWS + "return_to_spot: {after: 3}\n", "return_to_spot.after", "3s or 3m"),
        (AWS + "return_to_spot:\n", "return_to_spot", "has no value"),
        (AWS + "spot_handlers: {max_preemptions: '3'}\n", "spot_handlers.max_preemptions", "a whole number is wanted"),
        (AWS + "spot_handlers: {max_preemptions: 2.5}\n", "spot_handlers.max_preemptions", "a whole number is wanted"),
        (AWS + "spot_handlers: {max_preemptions: true}\n", "spot_handlers.max_preemptions", "a whole number is wanted"),
        (AWS + "spot_handlers: []\n", "spot_handlers", "a block of keys is wanted"),
        ("candidates: []\n", "candidates", "at least 1"),
        ("candidates: {provider: aws}\n", "candidates", "a list is wanted"),
        ("candidates: [aws]\n", "candidates[0]", "a block of keys is wanted"),
        ("candidates: [{provider: aws, regions: [us-west-2]}]\n", "candidates[0].instance_types", "is missing"),
        ("candidates: [{provider: AWS, instance_types: [a.b], regions: [us-west-2]}]\n", "candidates[0].provider", "lower-case"),
        ("candidates: [{provider: aws, instance_types: [a.b], regions: [x, x]}]\n", "candidates[0].regions", "twice"),
        ("candidates: [{provider: aws, instance_types: a.b, regions: [x]}]\n", "candidates[0].instance_types", "a list is wanted"),
    ],
)
def test_what_is_wrong_is_told_with_key_and_remedy(text: str, key: str, says: str) -> None:
    """Each mistake is one problem with its key, and words that lead out of it."""
    with pytest.raises(ConfigError) as caught:
        parse_policy(text, "p.yaml")

    assert [key] == [p.key for p in caught.value.problems]
    assert says in str(caught.value)
    assert caught.value.line is not None


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        (AWS + "spot_handlers: {pre_reclaim_hook: 'aws s3 cp x s3://b'}\n", "spot_handlers.pre_reclaim_hook", "s3://"),
        (AWS + "spot_handlers: {pre_reclaim_hook: 'gsutil cp x gs://b'}\n", "spot_handlers.pre_reclaim_hook", "gs://"),
        (AWS + "spot_handlers: {max_preemptions: 0}\n", "spot_handlers.max_preemptions", "save nothing"),
        (AWS + "max_price_age: 30d\n", "max_price_age", "at most 7d"),
        (AWS + "replace_when_unreachable: {after: 1m}\n", "replace_when_unreachable", "second copy"),
        (AWS + "idle_timeout: 8d\n", "idle_timeout", "longer than max_run_duration"),
        ("candidates: [{provider: aws, instance_types: [a3-highgpu-8g], regions: [us-west-2]}]\n", "candidates[0].instance_types", "a type of gcp"),
        ("spot_handlers: {fallback_node: p5.48xlarge, region_failover: [us-central1]}\n", "spot_handlers.fallback_node", "a type of aws"),
        (AWS + "spot_handlers: {fallback_node: a3-highgpu-8g}\n", "spot_handlers.fallback_node", "any candidate's provider"),
    ],
)
def test_what_is_doubtful_is_a_warning(text: str, key: str, says: str) -> None:
    """A doubtful policy is taken, with one warning that names the line and the key."""
    (warning,) = parse_policy(text, "p.yaml").warnings

    assert key == warning.key
    assert says in str(warning)
    assert warning.line is not None


@pytest.mark.parametrize("file", ["a b.yaml", ".yaml", "-x.yaml", "ä.yaml", "x" * 64 + ".yaml"])
def test_the_files_name_must_be_a_name(file: str) -> None:
    """A policy is called by its file's name, so that must be one."""
    with pytest.raises(ConfigError, match="cannot be a policy's name"):
        parse_policy(AWS, file)
