"""A self-test from beginning to end: is the account fit, what may be bought, a daemon of its own, the trial, and everything removed again."""

from __future__ import annotations

import platform
import socket
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotd.core.errors import ProviderError
from spotd.ports import OfferQuery
from spotd_aws.installation import Unusable
from spotd_aws.network import Networks
from spotd_aws.printing import complain, say, say_json
from spotd_aws.trial import TITLES, Trial, amount
from spotd_aws.trial_choice import MACHINES, Choice, choose
from spotd_aws.trial_daemon import Daemon
from spotd_aws.trial_fitness import fit_regions, see_that_free
from spotd_aws.trial_job import job_file, policy_file
from spotd_aws.trial_pace import Pace
from spotd_aws.trial_reclaim import Reclaimer
from spotd_aws.trial_removal import Sweep, empty
from spotd_aws.trial_report import Discretion, Evidence, Failed, Record, Report
from spotd_aws.trial_signals import not_interruptible
from spotd_aws.trial_wishes import NOT_USED, REMOVAL_S, Wishes

if TYPE_CHECKING:
    from spotd.ports import Provider
    from spotd_aws.clients import Clients

PASSED, FAILED, CANNOT_RUN, INTERRUPTED = 0, 1, 2, 130
FIT, CHOICE, DAEMON, NOTHING_LEFT = "the account is fit for it", "a type within the budget", "a daemon of its own", "nothing is left"
#: A launch that was under way may show so late (facts/cloud-api.md §2.2).
_SETTLE_S = 60.0
_CANCEL_S = 60.0
#: A shorter word would be found in words that have nothing to do with it.
_SHORTEST_HIDDEN = 3


class SelfTest:
    """One run of it."""

    def __init__(self, wishes: Wishes, clients: Clients, provider: Provider, record: Record) -> None:
        self._wishes = wishes
        self._provider = provider
        self._clients = clients
        self._record = record
        self._pace = Pace(wishes.timeout_s)
        self._remote = provider.capabilities.remote
        self._account = ""
        self._regions: tuple[str, ...] = ()
        self._choice: Choice | None = None
        self._daemon: Daemon | None = None
        self._trial: Trial | None = None
        self._logs: dict[str, str] = {}

    def run(self, *, as_json: bool, file: Path | None) -> int:
        """All steps and the removal, then the report."""
        code = PASSED
        refused = ""
        try:
            self._prepare()
            self._try()
        except Unusable as error:
            refused, code = str(error), CANNOT_RUN
        except (Failed, ProviderError):
            code = FAILED
        except KeyboardInterrupt:
            code = INTERRUPTED
        finally:
            with not_interruptible(complain):
                removed = self._remove()
        if refused:
            complain(refused)
            # Where something had been made and could not be removed, that is what the user has to know.
            return CANNOT_RUN if removed else FAILED
        report = self._report()
        self._publish(report, as_json=as_json, file=file)
        return code if code == INTERRUPTED else PASSED if report.passed else FAILED

    # Before anything is launched

    def _prepare(self) -> None:
        with self._record.step(FIT) as evidence:
            self._regions = self._fit(evidence)
        with self._record.step(CHOICE) as evidence:
            self._choice = self._choose(evidence)
        with self._record.step(DAEMON) as evidence:
            self._start(self._choice, evidence)

    def _fit(self, evidence: Evidence) -> tuple[str, ...]:
        from spotd_aws.doctor import diagnose
        from spotd_aws.setup import account_of, enabled_regions

        installation, stop = self._wishes.installation, threading.Event()
        try:
            regions = self._wishes.regions or enabled_regions(self._clients)
            findings = list(diagnose(self._clients, installation, regions, self._wishes.instance_types, stop))
            self._account = account_of(self._clients).id
        except ProviderError as error:
            raise Unusable(str(error)) from error
        finally:
            stop.set()
        usable = fit_regions(findings, regions, remote=self._remote)
        evidence.saw(f"a launch would go through in {', '.join(usable)}")
        if left_out := [region for region in regions if region not in usable]:
            evidence.saw(f"not in {', '.join(left_out)} (`spotd doctor aws` says why)")
        return usable

    def _choose(self, evidence: Evidence) -> Choice:
        wishes = self._wishes
        try:
            sheet = self._provider.offers(OfferQuery(frozenset(wishes.instance_types), frozenset(self._regions)))
        except ProviderError as error:
            raise Unusable(str(error)) from error
        choice = choose(sheet.offers, wishes.budget_usd, wishes.hours)
        first = choice.cheapest
        evidence.saw(f"{first.key.instance_type} in {first.key.zone} at ${first.price_usd_per_hour}/h, and {len(choice.affordable) - 1} other offers")
        hours = f"{wishes.hours:.3g} h"
        evidence.saw(f"nothing above ${choice.cap_usd_per_hour}/h is bought: {MACHINES} machines for {hours} stay within ${wishes.budget_usd}")
        return choice

    def _start(self, choice: Choice, evidence: Evidence) -> None:
        wishes, installation = self._wishes, self._wishes.installation
        api = {"listen": installation.listen, "advertise": installation.advertise} if self._remote else {}
        if self._remote:
            see_that_free(installation.listen)
        self._daemon = Daemon()
        self._daemon.write("policies/selftest.yaml", policy_file(choice.instance_types, choice.regions, str(choice.cap_usd_per_hour)))
        settings = {
            "deployment": wishes.deployment,
            "tick_interval": "2s",
            "observe_poll": "10s",
            "price_poll": "1m",
            "agent_api": api,
            "checkpoints": {"store": installation.store, **installation.store_settings} if installation.store else {},
            "providers": {"aws": self._table(choice)},
        }
        self._daemon.start(settings, self._pace)
        evidence.saw(f"deployment {wishes.deployment}: every instance has it as its tag spotd:deployment")

    def _table(self, choice: Choice) -> dict[str, Any]:
        """`[providers.aws]` for the daemon: the user's, in the regions that are fit, with the security groups that the user's own daemon takes."""
        table = {key: value for key, value in self._wishes.installation.aws_table.items() if key not in NOT_USED}
        places: dict[str, Any] = dict(table.pop("in", None) or {})  # type: ignore[call-overload]
        for region in choice.regions:
            groups = self._groups(region, {offer.key.zone for offer in choice.affordable if offer.key.region == region})
            if groups:
                places[region] = {**places.get(region, {}), "security_groups": groups}
        return {**table, "regions": list(choice.regions), "queue": False, **({"in": places} if places else {})}

    def _groups(self, region: str, zones: set[str]) -> list[str]:
        place = self._wishes.installation.aws.place(region)
        if place.security_groups or not self._wishes.own_deployment:
            return []
        networks = Networks(self._clients, self._wishes.own_deployment, lambda: datetime.now(UTC))
        try:
            found = {networks.get(region, zone, place).groups for zone in zones}
        except ProviderError:
            return []  # where the network cannot be seen, the launch will say it better
        return list(found.pop()) if len(found) == 1 else []

    # The test itself

    def _try(self) -> None:
        from spotd_aws.setup import account_of

        if self._daemon is None:
            raise AssertionError("the daemon was started")
        wishes = self._wishes
        file = self._daemon.write("job.yaml", job_file(wishes.seconds))
        self._trial = Trial(self._daemon, self._pace, self._record, file, wishes.seconds, wishes.budget_usd)
        reclaimer = Reclaimer(self._clients, account_of(self._clients), wishes.deployment, wishes.fis_role, self._pace)
        self._trial.run(reclaimer)

    # Afterwards

    def _remove(self) -> bool:
        """Everything, whatever was made; whether nothing is left."""
        if self._daemon is None:
            return True
        try:
            with self._record.step(NOTHING_LEFT) as evidence:
                self._remove_all(self._daemon, evidence)
        except Failed:
            return False
        return True

    def _remove_all(self, daemon: Daemon, evidence: Evidence) -> None:
        problems: list[str] = []
        pace = Pace(REMOVAL_S)
        settled = self._let_go(daemon, pace, evidence)
        self._logs["the end of the daemon's log"] = daemon.log()
        daemon.stop()
        sweep = Sweep(self._clients, self._regions, self._wishes.deployment)
        try:
            sweep.until_none(pace, 0.0 if settled else _SETTLE_S)
            by_us = f", after {', '.join(sweep.ended)} had been ended here" if sweep.ended else ""
            evidence.saw(f"no instance with the tag lives in {', '.join(self._regions)}{by_us}")
        except Failed as error:
            problems.append(str(error))
        try:
            if removed := self._empty_store():
                evidence.saw(f"{removed} objects of its own were removed from the store")
        except (Failed, ValueError, ProviderError) as error:
            problems.append(str(error))
        try:
            daemon.remove()
            evidence.saw("the daemon has ended, its directory is removed")
        except OSError as error:
            problems.append(f"{daemon.directory} cannot be removed: {error.strerror}")
        if problems:
            raise Failed("; ".join(problems))

    def _let_go(self, daemon: Daemon, pace: Pace, evidence: Evidence) -> bool:
        """Have the daemon end what it started, as far as it still can; whether it knows of nothing that lives or may yet begin to."""
        trial = self._trial
        if trial is None or not trial.job:
            return trial is None
        try:
            answer = trial.show()
            if answer["job"]["outcome"] is None:
                evidence.news("the job is cancelled")
                daemon.ask("cancel", trial.job)
            self._logs["the end of the job's output"] = _tail(daemon.ask("logs", trial.job)["text"])
            pace.until(lambda: all(row["state"] == "gone" for row in trial.show()["instances"]), "the daemon has ended its instances", _CANCEL_S)
            if trial.spent_usd is None:
                trial.spent_usd = amount(daemon.ask("savings")["total"])
        except (Failed, KeyError, TypeError):
            return False  # it is ended below, and its instances by their tag
        return True

    def _empty_store(self) -> int:
        from spotd_aws.store import open_store

        installation = self._wishes.installation
        if not installation.store:
            return 0
        store = open_store(installation.store, installation.store_settings)
        try:
            return empty(store)
        finally:
            store.close()

    # The report

    def _report(self) -> Report:
        import botocore

        from spotd import __version__

        choice, installation = self._choice, self._wishes.installation
        facts = {
            "spotd": __version__,
            "python": f"{platform.python_version()}, botocore {botocore.__version__}, {platform.system()} {platform.machine()}",
            "date": datetime.now(UTC).isoformat(timespec="minutes"),
            "regions": ", ".join(self._regions) or "-",
            "types": ", ".join(choice.instance_types) if choice else "-",
            "job": f"{self._wishes.seconds} s",
        }
        hidden = {
            self._account: "<account>",
            installation.bucket: "<bucket>",
            (installation.advertise or "").rpartition(":")[0]: "<host>",
            socket.gethostname(): "<host>",
            str(Path.home()): "<home>",
        }
        hidden = {word: instead for word, instead in hidden.items() if len(word) > _SHORTEST_HIDDEN}
        titles = (FIT, CHOICE, DAEMON, *TITLES, NOTHING_LEFT)
        spent = self._trial.spent_usd if self._trial else None
        return Report(self._record.steps, titles, facts, self._wishes.budget_usd, spent, Discretion(hidden), self._logs)

    def _publish(self, report: Report, *, as_json: bool, file: Path | None) -> None:
        if as_json:
            say_json(report.view())
        else:
            say("\n" + report.markdown())
        if file is None:
            return
        try:
            file.write_text(report.markdown())
        except OSError as error:
            complain(f"the report could not be written to {file}: {error.strerror}")


def _tail(text: object, lines: int = 40) -> str:
    return "\n".join(str(text).splitlines()[-lines:])
