"""The port `spotd.ports.Provider` on a directory: `record` says what lies in it, `machine` what lives in it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from spotd.core.errors import InvalidRequest, NoCapacity, PriceTooHigh, ProviderError, ProviderUnavailable, Scope
from spotd.core.instance import LaunchRequest, ObservedInstance, ObservedState
from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd.core.offer import Market, Offer, OfferKey
from spotd.ports import (
    Capabilities,
    DeliveredNotice,
    Launched,
    LaunchOutcome,
    MetadataKind,
    OfferQuery,
    OfferSheet,
    Refused,
    Unknown,
)
from spotd_local import machines, replay
from spotd_local import market as markets
from spotd_local.config import ConfigError, LocalConfig
from spotd_local.record import (
    InstanceDirectory,
    Record,
    RecordError,
    directories,
    read_json,
    request_document,
    write_atomic,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "local"
_UNREADABLE = (RecordError, markets.MarketError, OSError)
_TOKEN = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{11,63}")
#: How long `notices` waits, and how often it looks meanwhile.
_NOTICE_WAIT_S = 15.0
_NOTICE_POLL_S = 1.0


@dataclass(slots=True)
class LocalProvider:
    """One local cloud, seen by one deployment."""

    config: LocalConfig
    deployment: str
    recording: markets.Market
    now: Callable[[], float] = time.time

    @property
    def name(self) -> str:
        """The word used in policies and offers."""
        return NAME

    @property
    def capabilities(self) -> Capabilities:
        """As AWS's, with shorter times and a market that may run faster."""
        return Capabilities(
            notice=timedelta(seconds=self.config.notice),
            boot_timeout=timedelta(seconds=self.config.boot_timeout),
            heartbeat=timedelta(seconds=self.config.heartbeat),
            metadata_poll=timedelta(seconds=self.config.metadata_poll),
            metadata=MetadataKind.IMDS,
            listing_lag=timedelta(0),
            billing_rule="aws",
            billing_speed=self.config.speed,
            notice_channel=True,
            remote=False,
        )

    def regions(self) -> Sequence[str]:
        """Every region of the recording."""
        return self.recording.regions

    def offers(self, query: OfferQuery) -> OfferSheet:
        """Both markets in every zone, at the replay's prices. A zone without capacity has a price, too."""
        with _readable():
            live = self._live()
        now = self.now()
        seen_at = _moment(now)
        failures: dict[str, ProviderError] = {
            region: InvalidRequest(f"the market {self.recording.name} has no region {region}", field="region")
            for region in query.regions - set(self.recording.regions)
        }
        offers: list[Offer] = []
        for zone in self.recording.zones.values():
            if zone.region not in query.regions:
                continue
            for kind in sorted(query.instance_types & set(self.recording.types)):
                spot = live.spot_price(zone.name, kind, now)
                offers.append(Offer(OfferKey(NAME, zone.region, zone.name, kind, Market.SPOT), spot, seen_at))
                on_demand = self.recording.on_demand.get(zone.region, {}).get(kind)
                if on_demand is not None:
                    key = OfferKey(NAME, zone.region, zone.name, kind, Market.ON_DEMAND)
                    offers.append(Offer(key, on_demand, seen_at))
        return OfferSheet(tuple(offers), failures)

    def launch(self, request: LaunchRequest, user_data: str) -> Launched:
        """Make the instance's directory (named by the token: one token, one instance) and start its machine."""
        with _readable(), self._alone():
            self._check(request)
            directory = self._directory(request.token)
            if not directory.path.exists():
                replay.begin(self.config.root, self._replay(), self.now())
                self._ask_the_market(request)
                self._create(directory, request, user_data)
            elif not _made_by(request, directory):
                raise _token_used(request)
            record = directory.read()
            if not record.gone:
                machines.ensure(directory)
            return Launched(record.provider_id, _moment(record.launched_at))

    def outcome(self, request: LaunchRequest) -> LaunchOutcome:
        """By token. No directory: no launch call has got anywhere, and one may still be under way. Another request's: this one never will."""
        directory = self._directory(request.token)
        if not directory.path.exists():
            return Unknown()
        with _readable():
            if not _made_by(request, directory):
                return Refused(_token_used(request))
            record = directory.read()
        return Launched(record.provider_id, _moment(record.launched_at))

    def instances(self, region: str) -> Sequence[ObservedInstance]:
        """Every record of ours, after those have been buried whose machine died without a word."""
        with _readable(), self._alone():
            found = [machines.current(directory, self.now()) for directory in directories(self.config.root)]
            machines.forget(self.config.root, self.now())
        return [_observed(r) for r in found if (r.deployment, r.region) == (self.deployment, region)]

    def terminate(self, region: str, provider_id: str) -> None:
        """Order the machine to end itself; where there is no machine any more, do it here."""
        del region
        with _readable(), self._alone():
            for directory in directories(self.config.root):
                record = machines.current(directory, self.now())
                if record.provider_id == provider_id and record.deployment == self.deployment and not record.gone:
                    machines.terminate(directory, self.now())

    def notices(self, stop: threading.Event) -> Sequence[DeliveredNotice]:
        """The control plane's own channel (as EventBridge): independent of the instance and its agent."""
        until = time.monotonic() + _NOTICE_WAIT_S
        while True:
            with _readable():
                found = [notice for d in directories(self.config.root) for notice in self._notices_of(d)]
            if found or time.monotonic() >= until or stop.wait(_NOTICE_POLL_S):
                return found

    def close(self) -> None:
        """Nothing is held. Instances live on."""

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One call at a time changes the cloud, through whichever object or process: a file lock, which dies with its holder."""
        handle = os.open(self.config.root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _notices_of(self, directory: InstanceDirectory) -> Iterator[DeliveredNotice]:
        record = directory.read()
        if record.deployment != self.deployment or record.state is not ObservedState.RUNNING:
            return
        told: list[tuple[NoticeKind, float, float | None]] = []
        if record.mark is not None and record.mark.provider:
            told.append((NoticeKind.RECLAIM, record.mark.marked_at, record.mark.deadline))
        if record.rebalance_at is not None:
            told.append((NoticeKind.REBALANCE, record.rebalance_at, None))
        for kind, at, deadline in told:
            taken = directory.path / "acknowledged" / f"{kind}-{at:.3f}"
            if not taken.exists():
                until = None if deadline is None else _moment(deadline)
                notice = Notice(kind, NoticeSource.PROVIDER, _moment(at), until)
                yield DeliveredNotice(record.provider_id, notice, taken.touch)

    def _check(self, request: LaunchRequest) -> None:
        """What is wrong with the request itself."""
        if not _TOKEN.fullmatch(request.token):
            raise InvalidRequest(f"{request.token!r} is not a client token", "InvalidParameterValue", field="token")
        offer = request.offer
        zone = self.recording.zones.get(offer.zone)
        if zone is None or zone.region != offer.region:
            raise InvalidRequest(f"no zone {offer.zone} in {offer.region}", "InvalidParameterValue", field="zone")
        if offer.instance_type not in self.recording.types:
            raise InvalidRequest(f"no instance type {offer.instance_type}", "InvalidParameterValue", field="instance_type")

    def _ask_the_market(self, request: LaunchRequest) -> None:
        """Whether there is an instance to be had (facts/reclaim.md §1.10)."""
        offer, limit, now = request.offer, request.max_price_usd_per_hour, self.now()
        if offer.market is not Market.SPOT:
            return
        live = self._live()
        price = live.spot_price(offer.zone, offer.instance_type, now)
        if limit is not None and price > limit:
            raise PriceTooHigh(f"{offer.zone} costs {price} USD/h, the limit is {limit}", "SpotMaxPriceTooLow")
        if not live.up(offer.zone, now):
            raise NoCapacity(f"no spot capacity in {offer.zone}", "InsufficientInstanceCapacity", where=Scope.ZONE)

    def _create(self, directory: InstanceDirectory, request: LaunchRequest, user_data: str) -> None:
        """Prepare the directory beside its place and rename it into it: there is no half an instance."""
        root = directory.path.parent
        provider_id = f"local-{request.token[:12]}"
        if any(root.glob(f"{request.token[:12]}*")):
            raise InvalidRequest(f"{provider_id} exists under another token", "InvalidParameterValue", field="token")
        draft = InstanceDirectory(Path(tempfile.mkdtemp(prefix=".new-", dir=root)))
        for folder in (draft.disk / "home", draft.disk / "tmp", draft.orders, draft.path / "acknowledged"):
            folder.mkdir(parents=True)
        limit = request.max_price_usd_per_hour
        record = Record(
            provider_id=provider_id,
            token=request.token,
            deployment=request.deployment,
            region=request.offer.region,
            zone=request.offer.zone,
            instance_type=request.offer.instance_type,
            market=request.offer.market,
            max_price_usd_per_hour=None if limit is None else str(limit),
            launched_at=self.now(),
            expires_at=request.expires_at.timestamp(),
            boot_delay_s=self.config.boot_delay,
            notice_s=self.config.notice,
        )
        write_atomic(draft.path / "request.json", json.dumps(request_document(request)))
        write_atomic(draft.user_data, user_data)
        draft.write(record)
        draft.path.rename(directory.path)

    def _directory(self, token: str) -> InstanceDirectory:
        return InstanceDirectory(self.config.root / "instances" / token)

    def _replay(self) -> replay.Replay:
        """The replay in force: the one begun, or as configured, standing still."""
        configured = replay.Replay(_market_name(self.config), self.config.speed, self.config.start)
        return replay.find(self.config.root) or configured

    def _live(self) -> replay.LiveMarket:
        return replay.LiveMarket(self.recording, self._replay())


def open_cloud(config: LocalConfig, deployment: str) -> LocalProvider:
    """Make the cloud's directory if need be, and see that its market is the configured one."""
    root = config.root.expanduser().absolute()
    config = config.model_copy(update={"root": root})
    try:
        recording = markets.load(config.market)
    except markets.MarketError as error:
        raise ConfigError(f"[providers.local] market: {error}") from error
    try:
        (root / "instances").mkdir(mode=0o700, parents=True, exist_ok=True)
        begun = replay.find(root)
    except (RecordError, OSError) as error:
        raise ConfigError(f"[providers.local] root: {error}") from error
    for key, configured, running in _differences(config, begun):
        raise ConfigError(
            f"[providers.local] {key}: {configured} is configured, but the market in {root} runs with {running}; put it back, or use another root"
        )
    return LocalProvider(config, deployment, recording)


def _differences(config: LocalConfig, begun: replay.Replay | None) -> Iterator[tuple[str, object, object]]:
    """What would make the daemon and the machines that run disagree about the market."""
    if begun is None:
        return
    pairs = (
        ("market", _market_name(config), begun.market),
        ("speed", config.speed, begun.speed),
        ("start", f"{config.start:g}s", f"{begun.start_s:g}s"),
    )
    yield from (pair for pair in pairs if pair[1] != pair[2])


def _market_name(config: LocalConfig) -> str:
    """The market as the machines, which have other working directories, can find it."""
    return config.market if markets.shipped(config.market) else str(Path(config.market).expanduser().absolute())


def _moment(epoch: float) -> datetime:
    return datetime.fromtimestamp(epoch, UTC)


def _made_by(request: LaunchRequest, directory: InstanceDirectory) -> bool:
    """Whether exactly this request made the instance: its token alone does not say so."""
    return read_json(directory.path / "request.json") == request_document(request)


def _token_used(request: LaunchRequest) -> InvalidRequest:
    return InvalidRequest(f"token {request.token} was used with other parameters", "IdempotentParameterMismatch", field="token")


def _observed(record: Record) -> ObservedInstance:
    return ObservedInstance(
        provider_id=record.provider_id,
        token=record.token,
        region=record.region,
        zone=record.zone,
        state=record.state,
        launched_at=_moment(record.launched_at),
        ended_at=None if record.ended_at is None else _moment(record.ended_at),
        ended_by=record.ended_by,
        end_code=record.end_code,
    )


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """What cannot be read makes the answer unknown, never shorter. The text names the file."""
    try:
        yield
    except _UNREADABLE as error:
        raise ProviderUnavailable(f"the local cloud cannot be read: {error}", type(error).__name__) from error
