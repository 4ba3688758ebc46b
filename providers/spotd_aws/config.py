"""The `[providers.aws]` table of `spotd.toml`. What is left out has a default that works in an account as AWS makes it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Deep Learning base image with the NVIDIA driver: resolved by SSM in each region at launch (facts/cloud-api.md §2.1).
DEFAULT_IMAGE = "ssm:/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
#: The name of the queue, the rules and the security group that `spotd aws setup` makes in each region, with the deployment behind it.
PREFIX = "spotd"

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(GB|TB)")
_REGION = re.compile(r"[a-z]{2,4}(?:-[a-z]+)+-\d{1,2}")


class ConfigError(ValueError):
    """What is wrong with the table, one line per key."""


def _seconds(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError('a duration with a unit is wanted, such as "2s" or "15m"')  # noqa: TRY004 - pydantic reports it
    if not isinstance(value, str):
        return value
    parts = _DURATION.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value.strip():
        raise ValueError(f'{value!r} is not a duration: write "500ms", "2s", "15m" or "24h"')
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _gigabytes(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError('a size with a unit is wanted, such as "100GB"')  # noqa: TRY004 - pydantic reports it
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError(f'{value!r} is not a size: write "100GB" or "1TB"')
    return int(float(match[1]) * (1000 if match[2] == "TB" else 1))


def region_name(value: str) -> str:
    """The value, if it can be the name of a region. ValueError otherwise."""
    if not _REGION.fullmatch(value):
        raise ValueError(f"{value!r} is not the name of a region, such as us-west-2")
    return value


def _image(value: str) -> str:
    if not re.fullmatch(r"ami-[0-9a-f]{8,17}|ssm:/[A-Za-z0-9_./-]{1,1000}", value):
        raise ValueError(f"{value!r} is neither an image's id (ami-…) nor a public SSM parameter (ssm:/…)")
    return value


def _url(value: str) -> str:
    if not re.fullmatch(r"https?://[A-Za-z0-9.\[\]:-]+(?:/[!-~]*)?", value):
        raise ValueError(f"{value!r} is not an http(s) address")
    return value.rstrip("/")


Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0)]
Gigabytes = Annotated[int, BeforeValidator(_gigabytes), Field(ge=8, le=16_384)]
Region = Annotated[str, AfterValidator(region_name)]
Image = Annotated[str, AfterValidator(_image)]
Url = Annotated[str, AfterValidator(_url)]


class Place(BaseModel):
    """How machines are started; the same keys for all regions and for one (`[providers.aws.in.us-west-2]`), which then win there."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    image: Annotated[Image | None, Field(description="Image: an id, or a public SSM parameter as ssm:/….")] = None
    subnets: Annotated[
        dict[str, str], Field(description="Subnet by zone name; zones that are not named are not used. Silent: the default VPC's.")
    ] = {}
    security_groups: Annotated[
        tuple[str, ...], Field(description="Ids of security groups. Silent: the one that `spotd aws setup` made, else the VPC's default group.")
    ] = ()
    public_address: Annotated[bool | None, Field(description="Whether machines get a public address. Silent: as the subnet says.")] = None
    root_disk: Annotated[Gigabytes | None, Field(description="Size of the root disk where the job asks for none.")] = None
    instance_profile: Annotated[str | None, Field(description="Instance profile where the policy names none. Silent: no credentials.")] = None
    key_name: Annotated[str | None, Field(description="Name of an SSH key pair, for people.")] = None


class AwsConfig(Place):
    """An AWS account, by the credentials that boto3 finds (environment, profile, instance role)."""

    regions: Annotated[tuple[Region, ...], Field(description="Regions in use. Silent: every region enabled for the account.")] = ()
    profile: Annotated[str | None, Field(description="Profile of the AWS configuration files.")] = None
    endpoint_url: Annotated[Url | None, Field(description="Address of something that speaks AWS's APIs in place of AWS, for every service.")] = None
    places: Annotated[dict[Region, Place], Field(alias="in", description="What is different in one region.")] = {}
    queue: Annotated[bool, Field(description="Whether reclaim warnings are read from the queue that `spotd aws setup` made in each region.")] = True
    queue_wait: Annotated[Seconds, Field(le=20, description="How long one question to the queue waits for a message.")] = 20.0
    score_pools: Annotated[
        tuple[tuple[str, ...], ...],
        Field(description="Pools of three or more interchangeable types for which placement scores are asked. Silent: none."),
    ] = ()
    spot_advisor: Annotated[
        str | None, Field(description="File or https address of the spot advisor's data, as a prior for reclaim rates. Silent: not used.")
    ] = None
    price_timeout: Annotated[Seconds, Field(description="How long one region may take to tell its prices.")] = 60.0
    metadata_poll: Annotated[Seconds, Field(description="How often agents ask the metadata service.")] = 2.0
    heartbeat: Annotated[Seconds, Field(description="How often agents call the daemon.")] = 15.0
    boot_timeout: Annotated[Seconds, Field(description="A machine whose agent has not called by then is given up.")] = 900.0

    @model_validator(mode="after")
    def _pools_are_pools(self) -> AwsConfig:
        for pool in self.score_pools:
            if len(set(pool)) < 3:
                raise ValueError(f"score_pools: {list(pool)} has fewer than three types; AWS then scores every place low, whatever is there")
        return self

    def place(self, region: str) -> Place:
        """What holds in a region: its own keys before those for all."""
        own = self.places.get(region, Place())
        # Checked already, and a size is no longer as it was written.
        return Place.model_construct(
            image=own.image or self.image or DEFAULT_IMAGE,
            # A zone's name begins with its region's.
            subnets={zone: subnet for zone, subnet in self.subnets.items() if zone.startswith(region)} | own.subnets,
            security_groups=own.security_groups or self.security_groups,
            public_address=own.public_address if own.public_address is not None else self.public_address,
            root_disk=own.root_disk or self.root_disk,
            instance_profile=own.instance_profile or self.instance_profile,
            key_name=own.key_name or self.key_name,
        )


def read(table: Mapping[str, object]) -> AwsConfig:
    """The checked table. ConfigError with a line for every wrong key."""
    try:
        return AwsConfig.model_validate(dict(table))
    except ValidationError as error:
        lines = [f"[providers.aws] {_key(e['loc'])}: {e['msg'].removeprefix('Value error, ')}" for e in error.errors()]
        raise ConfigError("\n".join(lines)) from error


def _key(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) or "(table)"
