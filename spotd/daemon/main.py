"""The daemon: everything is built here, in the order in which it needs each other, and taken down in reverse."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apscheduler.schedulers.background import BackgroundScheduler

import spotd
from spotd.config.daemon import DaemonConfig, load_daemon_config, settled_deployment
from spotd.config.policy_book import PolicyBook
from spotd.core.events import PolicyLoaded
from spotd.core.plan import ProviderFacts
from spotd.daemon.agent_api import AgentServices, agent_runner, make_agent_app
from spotd.daemon.agent_builds import AgentBuilds
from spotd.daemon.agent_zip import AgentZip, build_agent_zip
from spotd.daemon.boot import user_data
from spotd.daemon.checkpoints import open_checkpoints
from spotd.daemon.clock import SystemClock
from spotd.daemon.control import Control
from spotd.daemon.control_api import control_runner, make_control_app
from spotd.daemon.credentials import Credentials, load_credentials
from spotd.daemon.directory_store import DirectoryStore
from spotd.daemon.engine import Engine
from spotd.daemon.lock import StateLock
from spotd.daemon.logs import set_up_logging
from spotd.daemon.loop import Loop
from spotd.daemon.observer import Observer
from spotd.daemon.plugins import load_providers
from spotd.daemon.reach import blocked, firewall_rule
from spotd.daemon.reader import Reader
from spotd.daemon.report import savings_report
from spotd.daemon.sd_notify import sd_notify, watchdog_seconds
from spotd.daemon.servers import AgentEndpoint, ControlEndpoint, Servers, bind_as_before
from spotd.daemon.store import SqlStore
from spotd.daemon.tls import Tls, load_tls

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from spotd.core.instance import LaunchRequest
    from spotd.ports import Capabilities, Provider

_log = logging.getLogger(__name__)

#: A loop that has not stepped for this long is stuck: systemd is not told that we live, and restarts us. Instances run on meanwhile.
_STUCK_S = 60.0
_POLICY_POLL = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class BootScript:
    """Makes the user data of a launch: the same bytes for the same request, so that a repeated call is byte-identical."""

    credentials: Credentials
    tls: Tls
    agent: AgentZip
    address: str

    def __call__(self, request: LaunchRequest) -> str:
        """The script, with the instance's bootstrap credential in it. Never stored, never logged."""
        credential = self.credentials.bootstrap(request.token)
        # The build that was stored with the request, so that a call repeated after an upgrade is the same call.
        sha256 = request.agent_sha256 or self.agent.sha256
        return user_data(request.token, self.address, self.tls.certificate_pem, credential, sha256)


class Daemon:
    """A daemon on one state directory."""

    def __init__(self, config: DaemonConfig, lock: StateLock) -> None:
        state = config.state_dir
        self._lock = lock
        self._config = config
        self._clock = SystemClock()
        deployment = settled_deployment(config)
        credentials = load_credentials(state / "deployment.key")
        tls = load_tls(state / "tls.pem")
        self._providers = load_providers(config.providers, deployment)
        self._capabilities = {name: p.capabilities for name, p in self._providers.items()}
        self._store = SqlStore.open(state / "spotd.db", deployment)
        self._reader = Reader(state / "spotd.db")
        self._book = PolicyBook(config.policies_dir, state / "policies")
        advertise, store_url = config.agent_api.advertise, config.checkpoints.store
        facts = {name: _facts(c, blocked(name, c, advertise, store_url)) for name, c in self._capabilities.items()}
        agent = build_agent_zip()
        world = self._store.load()
        self._checkpoints = open_checkpoints(config, world, lambda: DirectoryStore(state / "objects", credentials))
        builds = AgentBuilds(state / "agents")
        builds.keep(agent, (instance.request.agent_sha256 for instance in world.instances.values()))
        self._engine = Engine(self._store, world, facts, self._clock.now(), agent.sha256)
        self._sock = bind_as_before(config.agent_api.listen_host, config.agent_api.listen_port, state / "agents.port")
        address = config.agent_api.advertise or "{}:{}".format(*self._sock.getsockname()[:2])
        boot = BootScript(credentials, tls, agent, f"https://{address}")
        self._loop = Loop(self._engine, self._providers, boot, self._clock, longest_sleep_s=config.tick_interval.total_seconds())
        self._observers = {name: self._observer(p) for name, p in self._providers.items()}
        self._scheduler = BackgroundScheduler(timezone="UTC")
        workdirs = DirectoryStore(state / "workdirs", credentials)
        services = AgentServices(
            recorder=self._loop,
            clock=self._clock,
            credentials=credentials,
            store=self._checkpoints,
            agent_zip=agent,
            builds=builds,
            policy=lambda name: self._book.policies().get(name),
            capabilities=self._capabilities,
            logs=state / "logs",
            workdirs=workdirs,
        )
        self._control = Control(
            recorder=self._loop,
            reader=self._reader,
            policies=self._book,
            clock=self._clock,
            savings=self._savings,
            health=self._health,
            logs_dir=state / "logs",
            workdirs=workdirs,
            workdir_limit=config.workdir_limit,
            admin_group=config.admin_group,
            version=spotd.__version__,
            started_at=self._clock.now(),
        )
        control = ControlEndpoint(control_runner(make_control_app(self._control)), config.socket, config.socket_group)
        agents = AgentEndpoint(agent_runner(make_agent_app(services)), self._sock, tls.context)
        self._servers = Servers(control, agents)
        self._address = address
        for name, fact in facts.items():
            if fact.blocked:
                _log.warning("nothing can be launched on %s: %s", name, fact.blocked)
            elif self._capabilities[name].remote and advertise is not None:
                _log.info("%s: %s", name, firewall_rule(advertise, "{}:{}".format(*self._sock.getsockname()[:2])))

    def run(self, stop: threading.Event) -> None:
        """Serve until told to stop."""
        self._read_policies()
        # Who cannot listen does nothing; and agents are answered before anything is ended, so that they can say what is unsaid.
        self._servers.start()
        self._loop.start()
        self._scheduler.start()
        self._scheduler.add_job(self._read_policies, "interval", seconds=_POLICY_POLL.total_seconds(), coalesce=True, max_instances=1)
        for observer in self._observers.values():
            observer.start(self._scheduler, every=self._config.observe_poll, prices_every=self._config.price_poll)
        _log.info("spotd is ready: pid=%d state_dir=%s socket=%s agents=%s", os.getpid(), self._config.state_dir, self._config.socket, self._address)
        # What was made until now stays for the life of the process.
        gc.collect()
        gc.freeze()
        gc.enable()
        sd_notify("READY=1")
        period = watchdog_seconds() or _STUCK_S
        while not self._clock.wait(stop, period):
            if self._clock.monotonic() - self._loop.last_step_at < _STUCK_S:
                sd_notify("WATCHDOG=1")
            else:
                _log.error("the loop has not stepped for %.0f s", self._clock.monotonic() - self._loop.last_step_at)

    def close(self) -> None:
        """Stop everything of ours. Instances and the jobs on them run on."""
        sd_notify("STOPPING=1")
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
        for observer in self._observers.values():
            observer.stop()
        self._servers.stop()
        self._loop.stop()
        for provider in self._providers.values():
            provider.close()
        self._checkpoints.close()
        self._reader.close()
        self._store.close()
        self._lock.release()

    def _observer(self, provider: Provider) -> Observer:
        return Observer(
            provider,
            self._engine,
            self._loop,
            self._clock,
            policies=self._book.policies,
            record_prices=self._store.record_prices,
        )

    def _read_policies(self) -> None:
        in_use = {job.spec.policy for job in self._engine.world.jobs.values()}
        changes = self._book.refresh(in_use)
        if not changes:
            return
        self._engine.use_policies(self._book.policies())
        for observer in self._observers.values():
            observer.sweep_soon()
        self._loop.tell([PolicyLoaded(self._clock.now(), change.policy, change.problem) for change in changes])

    def _savings(self, since: datetime | None, until: datetime | None, by: str) -> Mapping[str, Any]:
        rules = {name: (c.billing_rule, c.billing_speed) for name, c in self._capabilities.items()}
        return savings_report(self._reader, rules, since=since, until=until, by=by, now=self._clock.now())

    def _health(self) -> Mapping[str, Any]:
        return {
            name: {
                "last_listing_at": _iso(observer.health.last_listing_at),
                "last_sweep_at": _iso(observer.health.last_sweep_at),
                "failures": observer.health.failures,
                "last_error": observer.health.last_error,
                "remarks": list(observer.health.remarks),
                "billing_speed": self._capabilities[name].billing_speed,
                "notice_s": self._capabilities[name].notice.total_seconds(),
            }
            for name, observer in self._observers.items()
        }


def _facts(capabilities: Capabilities, blocked_because: str) -> ProviderFacts:
    return ProviderFacts(
        notice=capabilities.notice,
        boot_timeout=capabilities.boot_timeout,
        billing_rule=capabilities.billing_rule,
        billing_speed=capabilities.billing_speed,
        blocked=blocked_because,
    )


def _iso(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat()


def run(config_path: Path | None = None) -> int:
    """Run a daemon until SIGTERM or SIGINT. Raises what keeps it from starting, each with a sentence for a person."""
    config = load_daemon_config(config_path)
    set_up_logging(config.log_level, config.log_format)
    lock = StateLock.acquire(config.state_dir)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with contextlib.ExitStack() as stack:
        stack.callback(lock.release)
        daemon = Daemon(config, lock)
        stack.callback(daemon.close)
        daemon.run(stop)
    return 0
