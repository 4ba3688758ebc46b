"""What a self-test leaves behind, taken away: by the deployment's tag and by the store's prefix, whatever the daemon knows or does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spotd.core.errors import ProviderError
from spotd_aws.clients import Clients
from spotd_aws.errors import reads
from spotd_aws.machines import machines
from spotd_aws.tags import DEPLOYMENT
from spotd_aws.trial_report import Failed

if TYPE_CHECKING:
    from spotd.ports import ObjectStore
    from spotd_aws.trial_pace import Pace

#: Terminating cannot be undone: one that shuts down is as good as gone, and costs nothing any more.
_ENDED = frozenset({"shutting-down", "terminated"})
_ROUNDS = 3


@dataclass(slots=True)
class Sweep:
    """The instances of one deployment."""

    clients: Clients
    regions: Sequence[str]
    deployment: str
    #: Those that had to be ended here.
    ended: list[str] = field(default_factory=list)

    def until_none(self, pace: Pace, settle_s: float) -> None:
        """End what lives until nothing does, and has not for so long: a launch may be seen late (facts/cloud-api.md §2.2). Failed otherwise."""
        quiet_since = pace.clock()

        def none_lives() -> bool:
            nonlocal quiet_since
            live, unclear = self._round()
            if live or unclear:
                quiet_since = pace.clock()
            return not live and not unclear and pace.clock() - quiet_since >= settle_s

        try:
            pace.until(none_lives, "no instance lives")
        except Failed:
            live, unclear = self._round()
            left = [f"aws ec2 terminate-instances --region {region} --instance-ids {' '.join(ids)}" for region, ids in live.items()]
            left += [f"look for {DEPLOYMENT}={self.deployment} in {region}: {error}" for region, error in unclear.items()]
            if left:
                raise Failed("instances may be left, end them by hand: " + "; ".join(left)) from None

    def _round(self) -> tuple[dict[str, list[str]], dict[str, str]]:
        """What lived by region, each told to end; and where one could not look."""
        live: dict[str, list[str]] = {}
        unclear: dict[str, str] = {}
        for region in self.regions:
            try:
                with reads("looking for instances of the self-test", region):
                    ec2 = self.clients.get("ec2", region)
                    found = machines(ec2, {f"tag:{DEPLOYMENT}": self.deployment})
                for one in found:
                    if one.state in _ENDED:
                        continue
                    live.setdefault(region, []).append(one.instance_id)
                    with reads(f"ending {one.instance_id}", region):
                        ec2.terminate_instances(InstanceIds=[one.instance_id])
                    if one.instance_id not in self.ended:
                        self.ended.append(one.instance_id)
            except ProviderError as error:
                unclear[region] = str(error)
        return live, unclear


def empty(store: ObjectStore) -> int:
    """Remove every object of a store; how many there were. Failed where some stay."""
    removed, trouble = 0, ""
    for _ in range(_ROUNDS):
        try:
            keys = store.list("")
            if not keys:
                return removed
            for key in keys:
                store.delete(key)
                removed += 1
        except ProviderError as error:
            trouble = str(error)
    raise Failed(f"objects of the self-test are left in the store: {trouble or 'new ones come while they are removed'}")
