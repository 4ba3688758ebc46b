"""Rule 1, intent before effect: every launch call was stored before it, byte for byte; and what it may cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotd.core.events import LaunchRequested
from spotd.core.instance import InstanceState
from spotd.core.offer import Market, OfferKey

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from spotd.core.events import Event
    from spotd.core.instance import LaunchRequest
    from spotd.sim.checks import Checks
    from spotd.sim.machine import Machine


class Launches:
    """Looks at every launch call as the cloud gets it."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._requests: dict[str, LaunchRequest] = {}

    def called(self, request: LaunchRequest) -> None:
        """The stored row must be there already, with the same parameters, and not be settled."""
        stored = self._checks.sim.store.instances.get(request.token)
        if stored is None:
            self._checks.violated("intent", f"{request.offer} was asked for with token {request.token[:8]}, and no such intent is stored")
            return
        if stored.request != request:
            self._checks.violated("intent", f"token {request.token[:8]} was used for another request than the stored one")
        if stored.state is InstanceState.GONE and stored.provider_id is None:
            self._checks.violated("intent", f"token {request.token[:8]} was used again after its instance was settled as gone")
        first = self._requests.setdefault(request.token, request)
        if first != request:
            self._checks.violated("intent", f"token {request.token[:8]} was used for {first.offer} and then for {request.offer}")

    def made(self, machine: Machine, price: Decimal) -> None:
        """One machine at most for a token, and never above the caps."""
        cloud = self._checks.sim.cloud
        twins = [m for m in cloud.recent.values() if m is not machine and m.alive and m.token is not None and m.token == machine.token]
        if twins:
            self._checks.violated("intent", f"{machine.provider_id} and {twins[0].provider_id} were both launched for one token")
        request = machine.request
        if request is None:
            return
        caps = [p.max_hourly_price_usd for p in self._checks.sim.policies_so_far]
        highest = None if any(cap is None for cap in caps) else max(cap for cap in caps if cap is not None)
        if highest is not None and price > highest:
            self._checks.violated("price", f"{machine.provider_id} costs ${price}, and max_hourly_price is ${highest}")
        key = request.offer
        if key.market is Market.SPOT:
            on_demand = cloud.bazaar.price(OfferKey(key.provider, key.region, key.zone, key.instance_type, Market.ON_DEMAND), self._checks.now_s)
            if price > on_demand:
                self._checks.violated("price", f"{machine.provider_id} costs ${price} on spot and ${on_demand} on demand")

    def committed(self, events: Sequence[Event]) -> None:
        """A machine that was found is adopted: nothing else is asked for on behalf of its attempt while the daemon knows of it."""
        store = self._checks.sim.store
        for event in events:
            if not isinstance(event, LaunchRequested):
                continue
            for other in self._checks.sim.cloud.recent.values():
                row = store.instances.get(other.token or "")
                known = row is not None and row.attempt_id == event.instance.attempt_id and row.id != event.instance.id and row.live
                if known and row is not None and other.alive and row.provider_id is not None and row.terminate_requested_at is None:
                    self._checks.violated(
                        "intent", f"{event.instance.request.offer} is asked for on behalf of an attempt that has {other.provider_id}"
                    )
