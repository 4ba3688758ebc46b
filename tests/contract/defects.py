"""Providers that are wrong in one way each: what the contract suite must catch. The docstring of each is the slip it stands for."""

# ruff: noqa: D102 - methods are the port's; what is wrong with one says its class

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from spotd.core.errors import InvalidRequest, NoCapacity, PriceTooHigh, ProviderError, ProviderUnavailable
from spotd.core.instance import EndedBy, LaunchRequest, ObservedInstance, ObservedState
from spotd.core.offer import Market
from spotd.ports import Capabilities, DeliveredNotice, Launched, LaunchOutcome, OfferQuery, OfferSheet, Unknown
from spotd.testing.fake_cloud import NOTICE, FakeMachine, FakeProvider

_log = logging.getLogger(__name__)


class DrawsItsOwnToken(FakeProvider):
    """boto3 fills in a random client token where none is given."""

    def _by_token(self, token: str) -> FakeMachine | None:
        return None


class LooksBeforeItLeaps(FakeProvider):
    """Looks for the token, then launches: between the two another thread does the same."""

    def launch(self, request: LaunchRequest, user_data: str) -> Launched:
        there = self._by_token(request.token)
        time.sleep(0.01)
        return Launched((there or self._make(request)).provider_id)


class TakesTheTokensWord(FakeProvider):
    """The same token is taken for the same request."""

    def launch(self, request: LaunchRequest, user_data: str) -> Launched:
        there = self._by_token(request.token)
        return super().launch(there.request if there else request, user_data)


class FindsByTokenAlone(FakeProvider):
    """The outcome in one zone is another zone's machine."""

    def outcome(self, request: LaunchRequest) -> LaunchOutcome:
        there = self._by_token(request.token)
        return super().outcome(there.request if there else request)


class FindsAnyOfTheJob(FakeProvider):
    """Looked up by the job's tag."""

    def outcome(self, request: LaunchRequest) -> LaunchOutcome:
        there = next((m for m in self.cloud.machines if m.request.job_id == request.job_id), None)
        return super().outcome(there.request if there else request)


class LaunchesWhenAsked(FakeProvider):
    """The question what became of it is answered by launching again."""

    def outcome(self, request: LaunchRequest) -> LaunchOutcome:
        return self.launch(request, "")


class LaunchesAllTheSame(FakeProvider):
    """The refusal is about the second disk; the machine is there."""

    def launch(self, request: LaunchRequest, user_data: str) -> Launched:
        try:
            return super().launch(request, user_data)
        except NoCapacity:
            self._make(request)
            raise


class PaysAnything(FakeProvider):
    """The limit is not passed on."""

    def launch(self, request: LaunchRequest, user_data: str) -> Launched:
        limit = request.max_price_usd_per_hour
        try:
            return super().launch(request, user_data)
        except PriceTooHigh:
            assert limit is not None
            return Launched(self._make(request).provider_id)


class LetsErrorsThrough(FakeProvider):
    """An SDK's own exception instead of a ProviderError."""

    def launch(self, request: LaunchRequest, user_data: str) -> Launched:
        try:
            return super().launch(request, user_data)
        except InvalidRequest as error:
            raise KeyError(str(error)) from None


class RefusesOnTimeout(FakeProvider):
    """A time-out is called a refusal: the second machine runs beside the first."""

    def launch(self, request: LaunchRequest, user_data: str) -> Launched:
        try:
            return super().launch(request, user_data)
        except ProviderUnavailable as error:
            raise NoCapacity("timed out") from error


class Replaces(FakeProvider):
    """The token of an ended machine is free again."""

    def _by_token(self, token: str) -> FakeMachine | None:
        there = super()._by_token(token)
        return there if there is not None and there.state(self.cloud.clock.now()) is not ObservedState.GONE else None


class WaitsForTheBoot(FakeProvider):
    """A waiter of the SDK."""

    def launch(self, request: LaunchRequest, user_data: str) -> Launched:
        launched = super().launch(request, user_data)
        self.cloud.clock.step(45)
        return launched


class LogsTheCall(FakeProvider):
    """The request, credential and all, at debug level."""

    def launch(self, request: LaunchRequest, user_data: str) -> Launched:
        _log.debug("launching with %s", user_data)
        return super().launch(request, user_data)


class ForgetsTheLock(FakeProvider):
    """The end of its life does not reach the cloud."""

    def _make(self, request: LaunchRequest) -> FakeMachine:
        never = request.expires_at + timedelta(days=365)
        machine = super()._make(request)
        machine.request, machine.ending_at = replace(request, expires_at=never), never
        return machine


class IsSilentWhenBroken(FakeProvider):
    """No answer becomes an empty list."""

    def instances(self, region: str) -> Sequence[ObservedInstance]:
        try:
            return super().instances(region)
        except ProviderUnavailable:
            return []


class ReadsOnePage(FakeProvider):
    """The paginator is forgotten."""

    def instances(self, region: str) -> Sequence[ObservedInstance]:
        return super().instances(region)[:2]


class ListsEverybody(FakeProvider):
    """No filter by deployment."""

    def instances(self, region: str) -> Sequence[ObservedInstance]:
        now = self.cloud.clock.now()
        return [*super().instances(region), *(m.row(now) for m in self.cloud.machines if m.request.deployment != self.deployment)]


class ListsEverywhere(FakeProvider):
    """No filter by region."""

    def instances(self, region: str) -> Sequence[ObservedInstance]:
        return [row for each in self.regions() for row in super(ListsEverywhere, self).instances(each)]


class ListsWithoutTags(FakeProvider):
    """Tags are put on in a second call, which is not made."""

    def instances(self, region: str) -> Sequence[ObservedInstance]:
        return [replace(row, token=None) for row in super().instances(region)]


class ListsTheLiving(FakeProvider):
    """The filter is instance-state-name = pending, running, shutting-down."""

    def instances(self, region: str) -> Sequence[ObservedInstance]:
        return [row for row in super().instances(region) if row.state is not ObservedState.GONE]


class DoesNotSayWho(FakeProvider):
    """The state reason is not read."""

    def instances(self, region: str) -> Sequence[ObservedInstance]:
        return [replace(row, ended_by=row.ended_by and EndedBy.US) for row in super().instances(region)]


class TellsLocalTime(FakeProvider):
    """Instants without a time zone."""

    def instances(self, region: str) -> Sequence[ObservedInstance]:
        return [replace(row, launched_at=row.launched_at and row.launched_at.replace(tzinfo=None)) for row in super().instances(region)]


class ClaimsEveryEnd(FakeProvider):
    """Whoever terminates last has ended it."""

    def terminate(self, region: str, provider_id: str) -> None:
        super().terminate(region, provider_id)
        for machine in self.cloud.machines:
            if machine.provider_id == provider_id:
                machine.ended_by = EndedBy.US


class MissesTheAbsent(FakeProvider):
    """InvalidInstanceID.NotFound is passed on."""

    def terminate(self, region: str, provider_id: str) -> None:
        if all(machine.provider_id != provider_id for machine in self.cloud.machines):
            raise InvalidRequest("no such instance", "InvalidInstanceID.NotFound")
        super().terminate(region, provider_id)


class AcknowledgesUnheard(FakeProvider):
    """Errors of terminate are swallowed: it will be asked again, they say."""

    def terminate(self, region: str, provider_id: str) -> None:
        try:
            super().terminate(region, provider_id)
        except ProviderError:
            return


class EndsOnlyTheRunning(FakeProvider):
    """A starting instance cannot be stopped, says the SDK, and the provider agrees."""

    def terminate(self, region: str, provider_id: str) -> None:
        now = self.cloud.clock.now()
        if any(m.provider_id == provider_id and m.state(now) is not ObservedState.PENDING for m in self.cloud.machines):
            super().terminate(region, provider_id)


class EndsTheJob(FakeProvider):
    """Terminated by the job's tag."""

    def terminate(self, region: str, provider_id: str) -> None:
        for machine in list(self.cloud.machines):
            super().terminate(region, machine.provider_id)


class WaitsForTheEnd(FakeProvider):
    """A waiter of the SDK, again."""

    def terminate(self, region: str, provider_id: str) -> None:
        super().terminate(region, provider_id)
        self.cloud.clock.step(45)


class TellsOnce(FakeProvider):
    """The message is deleted from the queue as it is received."""

    def notices(self, stop: threading.Event) -> Sequence[DeliveredNotice]:
        told = super().notices(stop)
        for one in told:
            one.acknowledge()
        return told


class TellsForEver(FakeProvider):
    """The acknowledgement does nothing."""

    def notices(self, stop: threading.Event) -> Sequence[DeliveredNotice]:
        return [replace(one, acknowledge=lambda: None) for one in super().notices(stop)]


class TellsTooLate(FakeProvider):
    """The channel is the state-change event, which comes at the end."""

    def notices(self, stop: threading.Event) -> Sequence[DeliveredNotice]:
        now = self.cloud.clock.now()
        late = [replace(one.notice, seen_at=now) for one in super().notices(stop)]
        return [replace(one, notice=notice) for one, notice in zip(super().notices(stop), late, strict=True) if now >= one.notice.seen_at + NOTICE]


class SellsSpotAlone(FakeProvider):
    """The price list is another service, and nobody asked it."""

    def offers(self, query: OfferQuery) -> OfferSheet:
        sheet = super().offers(query)
        return replace(sheet, offers=tuple(o for o in sheet.offers if o.key.market is Market.SPOT))


class SellsEverything(FakeProvider):
    """No filter by type."""

    def offers(self, query: OfferQuery) -> OfferSheet:
        return super().offers(replace(query, instance_types=query.instance_types | {"gpu-1", "gpu-2"}))


class CalculatesInFloats(FakeProvider):
    """json.loads without parse_float."""

    def offers(self, query: OfferQuery) -> OfferSheet:
        sheet = super().offers(query)
        return replace(sheet, offers=tuple(replace(o, price_usd_per_hour=float(o.price_usd_per_hour)) for o in sheet.offers))  # type: ignore[arg-type]


class DatesPricesByTheirChange(FakeProvider):
    """seen_at is the timestamp of the price, which changed days ago."""

    def offers(self, query: OfferQuery) -> OfferSheet:
        sheet = super().offers(query)
        return replace(sheet, offers=tuple(replace(o, seen_at=o.seen_at - timedelta(days=9)) for o in sheet.offers))


class HidesFailures(FakeProvider):
    """A region that fails sells nothing."""

    def offers(self, query: OfferQuery) -> OfferSheet:
        try:
            return replace(super().offers(query), failures={})
        except ProviderError:
            return OfferSheet(())


class FailsTogether(FakeProvider):
    """The first region that fails ends the sweep."""

    def offers(self, query: OfferQuery) -> OfferSheet:
        sheet = super().offers(query)
        for error in sheet.failures.values():
            raise error
        return sheet


class IsSureOfNothing(FakeProvider):
    """A lookup that failed found nothing."""

    def outcome(self, request: LaunchRequest) -> LaunchOutcome:
        try:
            return super().outcome(request)
        except ProviderUnavailable:
            return Unknown()


class BillsByHearsay(FakeProvider):
    """A rule that nobody wrote."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, billing_rule="azure")


class GivesUpEarly(FakeProvider):
    """Minutes taken for seconds."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, boot_timeout=timedelta(seconds=5))


class LagsMoreThanItSays(FakeProvider):
    """The page says that listings are consistent."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, listing_lag=timedelta(0))
