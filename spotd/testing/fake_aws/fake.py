"""The fake AWS account: the server, and every lever a test can pull."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from decimal import Decimal
from types import TracebackType
from typing import Self

from spotd.core.offer import Market
from spotd.ports import Clock
from spotd.testing.fake_aws import control, ec2, fis, public_parameters, quotas, selling
from spotd.testing.fake_aws.catalogue import Catalogue, made_up_id
from spotd.testing.fake_aws.events import Bus
from spotd.testing.fake_aws.faults import Faults, Held, Reset
from spotd.testing.fake_aws.fleet import FailingLaunch, Fleet, Lags
from spotd.testing.fake_aws.imds import PREFIX, MetadataService, NoMachine
from spotd.testing.fake_aws.instances import FakeInstance, Maintenance, Reason, State
from spotd.testing.fake_aws.machines import Machines
from spotd.testing.fake_aws.market import Pool
from spotd.testing.fake_aws.moto_bridge import Moto
from spotd.testing.fake_aws.reclaim import Reclaim, Reclaimer
from spotd.testing.fake_aws.routing import Unsigned, route
from spotd.testing.fake_aws.server import Server
from spotd.testing.fake_aws.timekeeping import WallClock
from spotd.testing.fake_aws.wire import Answer, AwsError, Call, refusal
from spotd.testing.fake_aws.world import Network, World

_TICK_S = 0.2
#: A clock that ran so much faster than the machine's between two ticks was stepped.
_AHEAD_S = 0.05
Usd = Decimal | str | int


class FakeAws:
    """One account of AWS on a port of this machine: EC2 of our own, everything else by moto. A context manager, or `start` and `close`.

    Zones, prices and ids are the same for the same regions every time. With a `FakeClock` all of EC2 moves when the clock is stepped, and messages
    grow older by as much; objects and signatures keep to real time. `lags` says how late things are; the default answers at once and boots in
    seconds. With `machines`, instances are real processes of this machine.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        regions: Sequence[str] = ("us-east-1", "us-west-2", "eu-west-1"),
        *,
        lags: Lags | None = None,
        machines: Machines | None = None,
        port: int = 0,
    ) -> None:
        self.clock: Clock = clock or WallClock()
        self.regions = tuple(regions)
        self._moto = Moto()
        try:
            self._server = Server(port, self._respond, self.clock.now)
        except OSError:
            self._moto.close()
            raise
        self.account = self._moto.account
        catalogue = Catalogue(self.regions)
        fleet = Fleet(self.account, self.clock, catalogue, lags or Lags())
        zones = {region: tuple((zone.name, zone.id) for zone in catalogue.zones(region)) for region in self.regions}
        self.world = World(self.account, fleet, Network(self.account, zones), instance_profile=self._moto.instance_profile)
        self.faults = Faults()
        self._fleet = fleet
        self._bus = Bus(self.account, fleet, self._moto.put_event)
        self._reclaimer = Reclaimer(fleet, self._bus)
        self.metadata = MetadataService(self.account, fleet)
        self._laboratory = fis.Laboratory(self.world, self._reclaimer)
        self._machines = machines
        if machines is not None:
            machines.connect(self.imds, self._powered_off)
            fleet.watchers.append(machines.state_changed)
            self.world.console = machines.console
        self._ticked_at = self.clock.monotonic(), time.monotonic()
        self._closing = threading.Event()
        self._ticker = threading.Thread(target=self._tick_on, name="fake-aws-tick", daemon=True)

    # Life

    def start(self) -> Self:
        """Serve."""
        self._server.start()
        self._ticker.start()
        return self

    def close(self) -> None:
        """Stop serving; nothing is left of it."""
        with self._fleet.lock:
            if self._closing.is_set():
                return
            self._closing.set()
        self.faults.closing.set()
        if self._ticker.is_alive():
            self._ticker.join()
        if self._machines is not None:
            with self._fleet.lock:
                self._machines.close()
        self._moto.close()
        self._server.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def endpoint(self) -> str:
        """The address of every service."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def environment(self) -> dict[str, str]:
        """What makes boto3 and its like speak to this account, and to no other."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "AKIAFAKEFAKEFAKEFAKE",
            "AWS_SECRET_ACCESS_KEY": "not-a-secret",
            "AWS_DEFAULT_REGION": self.regions[0],
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }

    def tick(self) -> None:
        """Let happen what is due. Every request does so, and a thread, soon: after a step of the clock a test need not wait for that."""
        with self._fleet.lock:
            if self._closing.is_set():
                return
            mine, real = self.clock.monotonic(), time.monotonic()
            ahead = (mine - self._ticked_at[0]) - (real - self._ticked_at[1])
            self._ticked_at = mine, real
            if ahead > _AHEAD_S:
                self._moto.age(ahead)
            self._fleet.catch_up()

    def _tick_on(self) -> None:
        while not self._closing.wait(_TICK_S):
            self.tick()

    # Requests

    def _respond(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        path, _, query = target.partition("?")
        if path.startswith(PREFIX):
            self.tick()
            try:
                with self._fleet.lock:
                    return self.metadata.respond(method, path, headers)
            except NoMachine:
                raise Reset from None
        if path.startswith(control.PREFIX):
            return control.respond(self, method, path, query)
        try:
            call = route(method, path, query, headers, body)
        except Unsigned as error:
            return refusal(error.call, error)
        try:
            self.faults.before(call)
            self.tick()
            self._check_region(call)
            answer = self._answer(call)
        except AwsError as error:
            answer = refusal(call, error)
        self.faults.after(call)
        return answer

    def _check_region(self, call: Call) -> None:
        """A region that is not enabled for the account knows none of its credentials (facts/cloud-api.md §1.1)."""
        if call.service in {"iam", "pricing", "sts"} or not call.region or (call.region in self.regions and call.region not in self.world.disabled):
            return
        if call.service == "ec2":
            raise AwsError("AuthFailure", "AWS was not able to validate the provided access credentials", 401)
        code = "InvalidAccessKeyId" if call.service == "s3" else "UnrecognizedClientException"
        raise AwsError(code, "The security token included in the request is invalid.", 403)

    def _answer(self, call: Call) -> Answer:
        with self._fleet.lock:
            match call.service:
                case "ec2":
                    return ec2.answer(self.world, call)
                case "pricing":
                    return selling.price_list(self.world, call)
                case "servicequotas":
                    return quotas.service_quotas(self.world, call)
                case "fis":
                    return self._laboratory.answer(call)
                case "ssm" if (found := public_parameters.answer(self.world, call)) is not None:
                    return found
                case _:
                    pass
        host, port = self._server.server_address[:2]
        return self._moto.answer(call, (str(host), int(port)))

    # What there is

    @property
    def instances(self) -> list[FakeInstance]:
        """The truth: every instance that ever was, oldest first."""
        with self._fleet.lock:
            self.tick()
            return list(self._fleet.instances.values())

    def instance(self, instance_id: str) -> FakeInstance:
        """One of them. KeyError."""
        with self._fleet.lock:
            self.tick()
            return self._fleet.instances[instance_id]

    def imds(self, instance_id: str) -> str:
        """The base address of an instance's metadata service."""
        return f"{self.endpoint}{PREFIX}{instance_id}"

    # Market

    def exhaust(self, region: str, zone: str, instance_type: str, market: Market) -> None:
        """The pool is empty from now on."""
        self.stock(Pool(region, zone, instance_type, market), 0)

    def restock(self, region: str, zone: str, instance_type: str, market: Market) -> None:
        """There is no end of it again."""
        self.stock(Pool(region, zone, instance_type, market), None)

    def stock(self, pool: Pool, left: int | None) -> None:
        """So many more can be launched; None for no end."""
        with self._fleet.lock:
            self.world.market.stock(pool, left)

    def set_quota(self, region: str, code: str, vcpus: int | None) -> None:
        """Grant so many vCPUs; None for what a new account has, of which the service says that no quota was applied."""
        with self._fleet.lock:
            self.world.market.grant(region, code, vcpus)

    def set_price(self, region: str, zone: str, instance_type: str, usd: Usd, at: datetime | None = None) -> None:
        """The spot price changes, now or then. Running instances whose limit is below the new one are reclaimed for it."""
        if self._fleet.catalogue.zone(region, zone) is None:
            raise ValueError(f"There is no zone {zone!r} in {region}.")
        with self._fleet.lock:
            now = self.clock.now()
            self.world.market.set(zone, instance_type, Decimal(usd), at or now)
            if at is not None and at > now:
                self._fleet.agenda.at(at, lambda then: self._outbid(zone, instance_type, then))
            else:
                self._outbid(zone, instance_type, now)

    def _outbid(self, zone: str, instance_type: str, at: datetime) -> None:
        price = self.world.market.price(zone, instance_type, at)
        for instance in self._fleet.instances.values():
            hit = (instance.zone, instance.instance_type) == (zone, instance_type) and instance.state in (State.PENDING, State.RUNNING)
            if hit and instance.max_price is not None and price is not None and Decimal(instance.max_price) < price:
                self._reclaimer.begin(instance, Reclaim(code="instance-terminated-by-price"), at)

    def sell(self, instance_type: str, region: str, zone: str | None = None, *, on_demand_usd: Usd, spot_usd: Usd | None = None) -> None:
        """Add to the catalogue: in one zone, or in all of the region. Without a spot price it is not sold on the spot market."""
        with self._fleet.lock:
            catalogue = self._fleet.catalogue
            catalogue.offer(instance_type, region, Decimal(on_demand_usd), zone)
            for place in catalogue.zones(region, local=True):
                if zone in (None, place.name) and (place.name, instance_type) in catalogue.offered:
                    if spot_usd is None:
                        self.world.market.close(place.name, instance_type)
                    else:
                        self.world.market.open(place, instance_type, self.clock.now(), Decimal(spot_usd))

    def withdraw(self, instance_type: str, region: str, zone: str | None = None) -> None:
        """Sell a type no more, in a zone or a whole region: neither offered nor priced there."""
        with self._fleet.lock:
            self._fleet.catalogue.withdraw(instance_type, region, zone)
            for place in self._fleet.catalogue.zones(region, local=True):
                if zone in (None, place.name):
                    self.world.market.close(place.name, instance_type)

    # Faults

    def refuse(self, region: str, action: str, code: str, http_status: int = 400, times: int | None = None, message: str = "") -> None:
        """Answer so. `action` is `RunInstances`, `sqs:ReceiveMessage`, `s3:*` or `*`; `region` may be `*`. Without `times`, until `allow`."""
        self.faults.refuse(region, action, AwsError(code, message or f"The fake refuses {action}.", http_status), times)

    def allow(self, region: str, action: str) -> None:
        """Take back every `refuse` of exactly this region and action."""
        self.faults.allow(region, action)

    def lose_answer(self, region: str, action: str, times: int = 1) -> None:
        """Execute, then break the connection."""
        self.faults.lose(region, action, times)

    def hold_answer(self, region: str, action: str) -> AbstractContextManager[Held]:
        """Execute, then keep the answer back until the context ends, and lose it."""
        return self.faults.hold(region, action)

    def latency(self, region: str, seconds: float) -> None:
        """Real seconds before every answer of a region (`*`: of all)."""
        self.faults.latency(region, seconds)

    def break_region(self, region: str) -> AbstractContextManager[None]:
        """Connections of a region break before anything is executed. IAM, STS and the price list belong to no region."""
        return self.faults.broken(region)

    def disable_region(self, region: str) -> None:
        """The account has not asked for it: AuthFailure."""
        with self._fleet.lock:
            self.world.disabled.add(region)

    def fail_launches(self, pool: Pool, code: str = "Server.InternalError", times: int | None = 1) -> None:
        """The next launches go through, and end while they are pending, for this reason."""
        with self._fleet.lock:
            self.world.failing[pool] = FailingLaunch(Reason(code, f"{code}: {code.partition('.')[2]} on launch", ""), times)

    # What happens to instances

    def reclaim(self, instance_id: str, how: Reclaim | None = None) -> None:
        """EC2 takes a spot instance back. ValueError where it cannot."""
        with self._now() as now:
            self._reclaimer.begin(self._fleet.instances[instance_id], how or Reclaim(), now)

    def cancel_reclaim(self, instance_id: str) -> None:
        """It changes its mind. ValueError where there is nothing to cancel."""
        with self._now() as now:
            self._reclaimer.cancel(self._fleet.instances[instance_id], now)

    def rebalance(self, instance_id: str) -> None:
        """A rebalance recommendation, by metadata service and event."""
        with self._now() as now:
            self._reclaimer.hint(self._fleet.instances[instance_id], now)

    def maintain(self, instance_id: str, code: str = "instance-retirement", in_s: float = 86_400.0) -> None:
        """Schedule maintenance; a retirement or stop ends the instance when its time has come."""
        with self._now() as now:
            instance = self._fleet.instances[instance_id]
            begin = now.replace(microsecond=0) + timedelta(seconds=in_s)
            ident = made_up_id("instance-event", instance_id, code, now)
            planned = Maintenance(ident, code, code.replace("-", " "), begin, begin + timedelta(hours=2))
            instance.maintenance.append(planned)
            self._bus.maintain(instance, now, planned)
            if code in {"instance-retirement", "instance-stop"}:
                reason = Reason("Server.ScheduledStop", "Server.ScheduledStop: Stopped due to scheduled event", "Server.ScheduledStop")
                self._fleet.agenda.at(begin, lambda then: self._fleet.end(instance, then, reason, "instance-terminated-by-service"))

    def end_by_hand(self, instance_id: str) -> None:
        """Somebody else calls TerminateInstances."""
        with self._now() as now:
            self._fleet.terminate(self._fleet.instances[instance_id], now)

    def power_off(self, instance_id: str) -> None:
        """The machine's own system shuts down."""
        with self._now() as now:
            self._fleet.power_off(self._fleet.instances[instance_id], now)

    def _powered_off(self, instance_id: str) -> None:
        if not self._closing.is_set():
            self.power_off(instance_id)

    @contextlib.contextmanager
    def _now(self) -> Iterator[datetime]:
        with self._fleet.lock:
            yield self._fleet.catch_up()
