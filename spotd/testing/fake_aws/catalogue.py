"""What the fake sells and where: instance types, regions with their zones, images, and who offers what."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from decimal import Decimal

#: Zone id by zone letter. It differs between accounts, so that the letter says nothing (facts/cloud-api.md §0.5).
_ID_NUMBERS = {"a": 6, "b": 1, "c": 2, "d": 4, "e": 3, "f": 5}
_LOCAL_ZONES = {"us-west-2": ("us-west-2-lax-1a", "usw2-lax1-az1"), "us-east-1": ("us-east-1-bos-1a", "use1-bos1-az1")}
#: Regions that an account has without asking; of others it must first ask for. Only those that are wanted are enabled.
KNOWN_REGIONS = (
    "af-south-1", "ap-east-1", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1", "ap-southeast-1", "ap-southeast-2",
    "ca-central-1", "eu-central-1", "eu-north-1", "eu-south-1", "eu-west-1", "eu-west-2", "eu-west-3", "me-south-1", "sa-east-1",
    "us-east-1", "us-east-2", "us-west-1", "us-west-2",
)  # fmt: skip


def digest(*parts: object) -> int:
    """A number that is always the same for the same parts: dice that need no seed."""
    return int.from_bytes(hashlib.sha256("\0".join(map(str, parts)).encode()).digest()[:8], "big")


def made_up_id(prefix: str, *parts: object) -> str:
    """An id of the shape EC2's have: `i-0123456789abcdef0`."""
    return f"{prefix}-{digest(prefix, *parts):016x}0"


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A type as sold everywhere. Sizes of disks in GB, of memory in MiB."""

    name: str
    vcpus: int
    memory_mib: int
    gpu: str = ""
    gpus: int = 0
    gpu_memory_mib: int = 0
    disk_gb: int = 0
    disks: int = 0
    #: Spot price as a share of the on-demand price, about.
    spot_share: Decimal = Decimal("0.4")
    #: Under which names spot prices are listed: newer types know only the second on accounts of the classic era (facts/cloud-api.md §1.1).
    products: tuple[str, ...] = ("Linux/UNIX",)


_VPC = "Linux/UNIX (Amazon VPC)"
#: Sizes after facts/cloud-api.md §1.6, on-demand prices after §1.3.
TYPES = (
    (InstanceType("g4dn.xlarge", 4, 16384, "T4", 1, 16384, 125, 1, Decimal("0.42"), ("Linux/UNIX", _VPC)), Decimal("0.526")),
    (InstanceType("g5.xlarge", 4, 16384, "A10G", 1, 22888, 250, 1, Decimal("0.45")), Decimal("1.006")),
    (InstanceType("g5.12xlarge", 48, 196608, "A10G", 4, 22888, 3800, 1, Decimal("0.48")), Decimal("5.672")),
    (InstanceType("g6.xlarge", 4, 16384, "L4", 1, 22888, 250, 1, Decimal("0.40")), Decimal("0.8048")),
    (InstanceType("g6e.xlarge", 4, 32768, "L40S", 1, 45776, 250, 1, Decimal("0.47"), (_VPC,)), Decimal("1.861")),
    (InstanceType("p4d.24xlarge", 96, 1179648, "A100", 8, 40960, 1000, 8, Decimal("0.50"), ("Linux/UNIX", _VPC)), Decimal("21.957642")),
    (InstanceType("p5.48xlarge", 192, 2097152, "H100", 8, 81920, 3800, 8, Decimal("0.43"), (_VPC,)), Decimal("55.04")),
)


@dataclass(frozen=True, slots=True)
class Zone:
    """An availability zone or a local zone, by the account's name and by its own."""

    region: str
    name: str
    id: str
    local: bool = False


@dataclass(frozen=True, slots=True)
class Image:
    """A public image of one region, and the SSM parameter that names it."""

    id: str
    name: str
    parameter: str
    root_device: str
    root_gb: int
    architecture: str = "x86_64"


_IMAGES = (
    ("Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04)",
     "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id", "/dev/sda1", 35, "x86_64"),
    ("Deep Learning Base OSS Nvidia Driver GPU AMI (Amazon Linux 2023)",
     "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id", "/dev/xvda", 35, "x86_64"),
    ("ubuntu/images/hvm-ssd/ubuntu-jammy-22.04-amd64-server",
     "/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id", "/dev/sda1", 8, "x86_64"),
    ("Deep Learning ARM64 Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04)",
     "/aws/service/deeplearning/ami/arm64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id", "/dev/sda1", 35, "arm64"),
)  # fmt: skip


def zones_of(region: str, letters: str = "abc") -> tuple[Zone, ...]:
    """The zones of a region, local ones last."""
    short = region_code(region)
    zones = [Zone(region, region + letter, f"{short}-az{_ID_NUMBERS[letter]}") for letter in letters]
    if region in _LOCAL_ZONES:
        zones.append(Zone(region, *_LOCAL_ZONES[region], local=True))
    return tuple(zones)


def region_code(region: str) -> str:
    """As zone ids begin: `use1` for us-east-1, `apse2` for ap-southeast-2, `usgw1` for us-gov-west-1."""
    *words, number = region.split("-")
    compass = re.compile("north|south|east|west|central|gov")
    return words[0] + "".join(part[0] for word in words[1:] for part in compass.findall(word)) + number


class Catalogue:
    """Types, zones, images and on-demand prices of one account. Changed by the test, read by every answer."""

    def __init__(self, regions: tuple[str, ...]) -> None:
        self.regions = list(regions)
        self.types: dict[str, InstanceType] = {}
        self._zones = {region: zones_of(region) for region in regions}
        self.images = {
            region: [Image(made_up_id("ami", region, parameter), name, parameter, root, gb, arch) for name, parameter, root, gb, arch in _IMAGES]
            for region in regions
        }
        #: (region, type): USD per hour, on demand.
        self.on_demand: dict[tuple[str, str], Decimal] = {}
        #: (zone, type) that can be bought.
        self.offered: set[tuple[str, str]] = set()
        for kind, usd in TYPES:
            self.types[kind.name] = kind
            for region in regions:
                self.offer(kind.name, region, usd)

    def offer(self, instance_type: str, region: str, on_demand_usd: Decimal, zone: str | None = None) -> None:
        """Sell a type in a zone, or in all of a region. A type never heard of gets the sizes of its namesakes."""
        if instance_type not in self.types:
            self.types[instance_type] = _like(instance_type, self.types)
        self.on_demand[region, instance_type] = on_demand_usd
        for place in self._zones[region]:
            if zone in (None, place.name) and not (place.local and instance_type != "g4dn.xlarge"):
                self.offered.add((place.name, instance_type))

    def withdraw(self, instance_type: str, region: str, zone: str | None = None) -> None:
        """Sell it no more."""
        for place in self._zones[region]:
            if zone in (None, place.name):
                self.offered.discard((place.name, instance_type))

    def zones(self, region: str, *, local: bool = False) -> tuple[Zone, ...]:
        """The zones of a region."""
        return tuple(zone for zone in self._zones.get(region, ()) if local or not zone.local)

    def zone(self, region: str, name_or_id: str) -> Zone | None:
        """A zone by its name or its id."""
        return next((zone for zone in self._zones.get(region, ()) if name_or_id in (zone.name, zone.id)), None)


def _like(name: str, known: dict[str, InstanceType]) -> InstanceType:
    """A type of this name, of the size of the first of its family, else of a small one without GPU."""
    family = name.partition(".")[0]
    relative = next((kind for kind in known.values() if kind.name.partition(".")[0] == family), InstanceType(name, 4, 16384))
    return replace(relative, name=name)
