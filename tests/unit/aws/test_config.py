"""The `[providers.aws]` table: what holds in a region, and what is said of a table that is wrong."""

from __future__ import annotations

import pytest

from spotd_aws.config import DEFAULT_IMAGE, ConfigError, read


def test_an_empty_table_is_a_good_one() -> None:
    """Everything has a default that works in an account as AWS makes it."""
    place = read({}).place("us-west-2")
    assert place.image == DEFAULT_IMAGE
    assert (place.subnets, place.security_groups, place.instance_profile, place.public_address, place.root_disk) == ({}, (), None, None, None)


def test_a_regions_own_keys_come_first() -> None:
    """And those for all hold where it has none."""
    config = read(
        {"image": "ami-00000000", "root_disk": "100GB", "key_name": "ops", "in": {"eu-west-1": {"image": "ami-11111111", "root_disk": "1TB"}}}
    )
    here, there = config.place("eu-west-1"), config.place("us-west-2")
    assert (here.image, here.root_disk, here.key_name) == ("ami-11111111", 1000, "ops")
    assert (there.image, there.root_disk, there.key_name) == ("ami-00000000", 100, "ops")


def test_an_address_can_be_refused_in_one_region() -> None:
    """`false` is an answer, and not the absence of one."""
    config = read({"public_address": True, "in": {"eu-west-1": {"public_address": False}}})
    assert config.place("eu-west-1").public_address is False
    assert config.place("us-west-2").public_address is True


def test_subnets_may_be_named_once_for_all_regions() -> None:
    """A zone's name says whose it is. Groups of the whole table hold where a region has none of its own."""
    config = read(
        {
            "subnets": {"us-west-2a": "subnet-0", "eu-west-1a": "subnet-1"},
            "security_groups": ["sg-0"],
            "in": {"eu-west-1": {"subnets": {"eu-west-1b": "subnet-2"}, "security_groups": ["sg-1"]}},
        }
    )
    assert config.place("us-west-2").subnets == {"us-west-2a": "subnet-0"}
    assert config.place("eu-west-1").subnets == {"eu-west-1a": "subnet-1", "eu-west-1b": "subnet-2"}
    assert config.place("us-west-2").security_groups == ("sg-0",)
    assert config.place("eu-west-1").security_groups == ("sg-1",)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"imagee": "ami-00000000"}, r"\[providers.aws\] imagee"),
        ({"image": "ubuntu"}, "neither an image's id"),
        ({"regions": ["us-west"]}, "regions.0: 'us-west' is not the name of a region"),
        ({"in": {"us-west-2": {"root_disk": 100}}}, 'in.us-west-2.root_disk: a size with a unit is wanted, such as "100GB"'),
        ({"boot_timeout": 900}, 'boot_timeout: a duration with a unit is wanted, such as "2s" or "15m"'),
        ({"queue_wait": "21s"}, "queue_wait"),
        ({"metadata_poll": "soon"}, "metadata_poll: 'soon' is not a duration"),
        ({"endpoint_url": "localhost:5000"}, "endpoint_url: 'localhost:5000' is not an http"),
        ({"score_pools": [["g5.xlarge", "g5.xlarge", "g6.xlarge"]]}, "fewer than three types"),
    ],
)
def test_what_is_wrong_is_said_by_key(table: dict[str, object], says: str) -> None:
    """One line for each key, with what is wanted instead."""
    with pytest.raises(ConfigError, match=says):
        read(table)
