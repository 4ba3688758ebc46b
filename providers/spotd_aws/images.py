"""Which image a region's machines start from: an id, or a public SSM parameter that AWS moves on with each release (facts/cloud-api.md §2.1)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from spotd.core.errors import Misconfigured
from spotd_aws.errors import reads

if TYPE_CHECKING:
    from spotd_aws.clients import Clients

_KEPT = timedelta(days=1)
_PARAMETER = "ssm:"


@dataclass(frozen=True, slots=True)
class Image:
    """An image and the disk it starts from."""

    id: str
    root_device: str
    #: Smallest root disk that it fits on.
    size_gb: int
    #: Devices of the further disks that it comes with.
    more_disks: tuple[str, ...] = ()


class Images:
    """Looks images up, and remembers them for a day."""

    def __init__(self, clients: Clients, now: Callable[[], datetime]) -> None:
        self._clients = clients
        self._now = now
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[datetime, Image]] = {}

    def get(self, region: str, name: str) -> Image:
        """The image of this name (`ami-…`, or `ssm:/…`) in a region. Misconfigured where there is none."""
        now = self._now()
        with self._lock:
            known = self._known.get((region, name))
        if known is not None and now - known[0] < _KEPT:
            return known[1]
        image = self._look_up(region, name)
        with self._lock:
            self._known[region, name] = (now, image)
        return image

    def forget(self, region: str) -> None:
        """Look again at the next launch: something there was refused."""
        with self._lock:
            self._known = {key: value for key, value in self._known.items() if key[0] != region}

    def _look_up(self, region: str, name: str) -> Image:
        image_id = name
        if name.startswith(_PARAMETER):
            with reads(f"resolving image {name}", region):
                answer = self._clients.get("ssm", region).get_parameter(Name=name.removeprefix(_PARAMETER))
                image_id = str(answer["Parameter"]["Value"])
        with reads(f"looking at image {image_id}", region):
            answer = self._clients.get("ec2", region).describe_images(ImageIds=[image_id])
            found = [(str(row["RootDeviceName"]), row.get("BlockDeviceMappings") or ()) for row in answer["Images"]]
        if not found:
            raise Misconfigured(f"there is no image {image_id} in {region}: set image under [providers.aws.in.{region}]", "InvalidAMIID.NotFound")
        device, disks = found[0]
        volumes = {str(disk.get("DeviceName")): int(disk["Ebs"].get("VolumeSize") or 0) for disk in disks if disk.get("Ebs")}
        return Image(image_id, device, volumes.pop(device, 0), tuple(sorted(volumes)))
