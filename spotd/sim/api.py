"""The simulated cloud as the daemon sees it (`ports.Provider`): the truth, through calls that fail in every way a cloud's do."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from spotd.core.errors import (
    InvalidRequest,
    NoCapacity,
    NotAuthorized,
    PriceTooHigh,
    ProviderUnavailable,
    QuotaExceeded,
    Scope,
    Throttled,
)
from spotd.core.instance import EndedBy, LaunchRequest, ObservedInstance
from spotd.core.offer import Market, Offer
from spotd.ports import (
    Capabilities,
    DeliveredNotice,
    Launched,
    LaunchOutcome,
    MetadataKind,
    OfferQuery,
    OfferSheet,
    Pending,
    Refused,
    Unknown,
)
from spotd.sim.cloud import NOTICE_S
from spotd.sim.market import PROVIDER
from spotd.sim.timeline import stamp

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from spotd.sim.checks import Checks
    from spotd.sim.cloud import Cloud
    from spotd.sim.machine import Machine
    from spotd.sim.timeline import DaemonClock

_PENDING_FOR_S = 60.0


class CloudApi:
    """Implements `ports.Provider`. `took_s` is how long the last call lasted: virtual time passes outside."""

    def __init__(self, cloud: Cloud, clock: DaemonClock, checks: Checks) -> None:
        self._cloud = cloud
        self._clock = clock
        self._checks = checks
        self._dice = cloud.dice
        self.draws = cloud.draws
        self.took_s = 0.0
        #: region -> until when its control plane answers nobody.
        self.down: dict[str, float] = {}
        self.unauthorized_until_s = 0.0
        self.capabilities = Capabilities(
            notice=timedelta(seconds=NOTICE_S),
            boot_timeout=timedelta(minutes=15),
            heartbeat=timedelta(seconds=10),
            metadata_poll=timedelta(seconds=2),
            metadata=MetadataKind.IMDS,
            listing_lag=timedelta(seconds=self.draws.listing_lag_s),
            billing_rule="aws",
            notice_channel=bool(self.draws.channel),
        )

    @property
    def name(self) -> str:
        """The word used in policies and offers."""
        return PROVIDER

    def regions(self) -> Sequence[str]:
        """Every region."""
        return self._cloud.bazaar.regions

    def _begin(self, region: str) -> None:
        self.took_s = self._dice.between("latency", 0.05, 1.5)
        if self.down.get(region, 0.0) > self._cloud.timeline.now_s:
            self.took_s = 10.0
            raise ProviderUnavailable(f"the endpoint of {region} does not answer", "Timeout")

    # Launching ---------------------------------------------------------------------------------------------------------

    def launch(self, request: LaunchRequest, user_data: str) -> Launched:
        """As a cloud would: idempotent by (zone, token), and never sure to be heard."""
        del user_data
        cloud, dice, draws = self._cloud, self._dice, self.draws
        self._checks.launch_called(request)
        self._begin(request.offer.region)
        if dice.chance("launch never executed", self._rate(draws.launch_never_executed)):
            raise ProviderUnavailable("connection reset before an answer", "ConnectionReset")
        if dice.chance("launch late", self._rate(draws.launch_executed_late)):
            cloud.timeline.after(dice.between("launch late by", 1.0, 240.0), lambda: self._execute_late(request))
            raise ProviderUnavailable("timed out", "RequestTimeout")
        machine = self._admit(request)
        if dice.chance("launch reply lost", self._rate(draws.launch_lost_reply)):
            cloud.story.cloud(f"launches {machine.provider_id} in {request.offer.zone}, and the answer is lost")
            raise ProviderUnavailable("connection reset before an answer", "ConnectionReset")
        return self._launched(machine)

    def _rate(self, rate: float) -> float:
        return 0.0 if self._cloud.healed else rate

    def _launched(self, machine: Machine) -> Launched:
        return Launched(machine.provider_id, None if machine.running_s is None else stamp(machine.running_s))

    def _execute_late(self, request: LaunchRequest) -> None:
        try:
            machine = self._admit(request)
        except (NoCapacity, QuotaExceeded, PriceTooHigh, Throttled, NotAuthorized, InvalidRequest):
            return
        self._cloud.story.cloud(f"carries out a launch late: {machine.provider_id} in {request.offer.zone}")

    def _admit(self, request: LaunchRequest) -> Machine:
        """The machine for this request, or the refusal."""
        cloud, dice, draws, offer = self._cloud, self._dice, self.draws, request.offer
        now = cloud.timeline.now_s
        if self.unauthorized_until_s > now:
            raise NotAuthorized("not allowed to perform ec2:RunInstances", "UnauthorizedOperation", "ec2:RunInstances")
        if dice.chance("throttled", self._rate(draws.throttled)):
            raise Throttled("request limit exceeded", "RequestLimitExceeded", timedelta(seconds=dice.between("retry after", 1.0, 60.0)))
        there = cloud.by_token.get((offer.zone, request.token))
        if there is not None:
            if there.request != request:
                raise InvalidRequest("the token was used with other parameters", "IdempotentParameterMismatch", "token")
            return there
        if not cloud.bazaar.sells(offer):
            raise InvalidRequest(f"{offer.instance_type} is not sold in {offer.zone}", "InvalidParameterValue", "offer")
        if draws.quota and not cloud.healed:
            used = sum(m.alive and m.offer.region == offer.region and m.offer.market is offer.market for m in cloud.recent.values())
            if used >= draws.quota:
                raise QuotaExceeded("limit of instances reached", "VcpuLimitExceeded")
        if cloud.bazaar.dry(offer, now) or dice.chance("no capacity", self._rate(draws.no_capacity)):
            where = dice.choice("scope", (Scope.OFFER, Scope.OFFER, Scope.ZONE))
            raise NoCapacity("there is no capacity for this type here", "InsufficientInstanceCapacity", where)
        price = cloud.bazaar.price(offer, now)
        if offer.market is Market.SPOT and request.max_price_usd_per_hour is not None and price > request.max_price_usd_per_hour:
            raise PriceTooHigh("the maximum price is below the spot price", "SpotMaxPriceTooLow")
        machine = cloud.create(request)
        cloud.story.cloud(f"launches {machine.provider_id}: {offer.instance_type} {offer.market} in {offer.zone} at ${price}")
        self._checks.launched(machine, price)
        return machine

    def outcome(self, request: LaunchRequest) -> LaunchOutcome:
        """What became of it, as far as the cloud can tell now."""
        self._begin(request.offer.region)
        dice, draws, now = self._dice, self.draws, self._cloud.timeline.now_s
        if dice.chance("outcome fails", self._rate(draws.outcome_fails)):
            raise ProviderUnavailable("internal error", "InternalError")
        machine = self._cloud.by_token.get((request.offer.zone, request.token))
        # New ones show late here as well; one that listings have lost is still found by its token.
        if machine is None or machine.visible_s > now or (machine.ended_s is not None and now >= machine.row_gone_s):
            return Unknown()
        if machine.running_s is None and machine.ended_s is not None and machine.ended_by is EndedBy.NEVER_RAN:
            if dice.chance("operation tells", 0.5):
                return Refused(NoCapacity("the operation failed", "ZONE_RESOURCE_POOL_EXHAUSTED"))
            return self._launched(machine)
        if now - machine.created_s < _PENDING_FOR_S and dice.chance("outcome pending", self._rate(draws.outcome_pending)):
            return Pending()
        return self._launched(machine)

    # Looking -------------------------------------------------------------------------------------------------------------

    def offers(self, query: OfferQuery) -> OfferSheet:
        """Current prices, by region; regions that do not answer are named."""
        now = self._cloud.timeline.now_s
        found: list[Offer] = []
        failures = {}
        for region in sorted(query.regions):
            try:
                self._begin(region)
            except ProviderUnavailable as error:
                failures[region] = error
                continue
            if region not in self._cloud.bazaar.regions:
                failures[region] = ProviderUnavailable(f"there is no region {region}", "InvalidParameterValue")
                continue
            sheet = self._cloud.bazaar.sheet(region, now, self._clock.now())
            found += [offer for offer in sheet if offer.key.instance_type in query.instance_types]
        return OfferSheet(tuple(found), failures)

    def instances(self, region: str) -> Sequence[ObservedInstance]:
        """Ours in a region: each row as fresh or as stale as it happens to be; never a part without an error."""
        self._begin(region)
        dice, draws, now = self._dice, self.draws, self._cloud.timeline.now_s
        if dice.chance("listing fails", self._rate(draws.listing_fails)):
            # The second page is missing: what the first one said is thrown away.
            raise ProviderUnavailable("the listing broke off", "InternalError")
        if dice.chance("listing slow", self._rate(draws.listing_slow)):
            self.took_s = dice.between("listing takes", 5.0, 55.0)
        rows = []
        self._cloud.forget()
        for machine in self._cloud.recent.values():
            if not machine.ours or machine.offer.region != region:
                continue
            stale = dice.between("stale by", 0.0, draws.listing_lag_s) if dice.chance("listing stale", self._rate(draws.listing_stale)) else 0.0
            row = machine.row(now - stale, now)
            if row is not None:
                rows.append(row)
        self._checks.listed(region, rows)
        return rows

    # Ending --------------------------------------------------------------------------------------------------------------

    def terminate(self, region: str, provider_id: str) -> None:
        """Ask for an end. Returning means acknowledged; how long the end takes is another matter."""
        dice, draws, cloud = self._dice, self.draws, self._cloud
        machine = cloud.machines.get(provider_id)
        self._checks.terminate_called(provider_id)
        self._begin(region)
        if dice.chance("terminate slow", self._rate(draws.terminate_slow_ack)):
            self.took_s = dice.between("terminate takes", 10.0, 300.0)
        if dice.chance("terminate fails", self._rate(draws.terminate_fails)):
            raise ProviderUnavailable("internal error", "InternalError")
        if machine is not None and machine.alive:
            self._end(machine)
        if dice.chance("terminate reply lost", self._rate(draws.terminate_lost_reply)):
            raise ProviderUnavailable("connection reset before an answer", "ConnectionReset")

    def _end(self, machine: Machine) -> None:
        dice, now = self._dice, self._cloud.timeline.now_s
        self._checks.terminate_executed(machine)
        machine.terminated_s = now if machine.terminated_s is None else machine.terminated_s
        if machine.hidden is not None:
            # A cloud that accepts to end an instance knows of it: its listings may lag, they do not lose it.
            machine.hidden = (machine.hidden[0], min(machine.hidden[1], now + self.draws.listing_lag_s))
        slow = dice.chance("slow end", self._rate(self.draws.terminate_slow_end))
        lasts = dice.between("slow end takes", 300.0, 3600.0) if slow else dice.between("end takes", 2.0, 40.0)
        by = dice.choice("word for us", (EndedBy.US, EndedBy.EXTERNAL))
        self._cloud.shut_down(machine, by, "Client.UserInitiatedShutdown", lasts)

    def notices(self, stop: threading.Event) -> Sequence[DeliveredNotice]:
        """The host polls `Cloud.channel` itself: nothing waits in virtual time."""
        del stop
        return ()

    def close(self) -> None:
        """Nothing is held."""
