"""`spotd doctor aws`: everything about an account that would keep spotd from working in it, each with the fix. Nothing is changed."""

from __future__ import annotations

import argparse
import ipaddress
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum, unique
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from spotd.core.errors import NotAuthorized, ProviderError
from spotd_aws.advisor import read_bands
from spotd_aws.commands import typed_region
from spotd_aws.doctor_region import MAKE_SPOT_ROLE, Errand, examine
from spotd_aws.errors import translate
from spotd_aws.findings import Finding, Notes, State
from spotd_aws.installation import Installation, Unusable, read_installation
from spotd_aws.printing import complain, say, say_json, say_table
from spotd_aws.usage import in_use
from spotd_aws.wiring import Account

if TYPE_CHECKING:
    from spotd_aws.clients import Clients

#: AWS refuses what is signed five minutes off; deadlines of notices suffer before.
_SKEW = timedelta(seconds=30)
_DEFAULT_TYPES = ("g5.xlarge",)
_AT_A_TIME = 8
_SPOT_ROLE = "AWSServiceRoleForEC2Spot"
WELL, FINDINGS, CANNOT_RUN, INTERRUPTED = 0, 1, 2, 130

EXAMPLES = """
spotd doctor aws                                   everything, by /etc/spotd/spotd.toml
spotd doctor aws --config ./spotd.toml --region us-west-2
spotd doctor aws --type p5.48xlarge --json         for these types (default: those that your policies name)
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `spotd doctor aws`, beside --json."""
    parser.description = "Look at everything in an AWS account that would keep spotd from working in it, and say how to mend it. Changes nothing."
    parser.epilog = "examples:\n" + "\n".join(f"  {line}" for line in EXAMPLES.strip().splitlines())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--config", metavar="FILE", type=Path, help="the daemon's settings (default: /etc/spotd/spotd.toml)")
    parser.add_argument("--region", metavar="REGION", type=typed_region, action="append", help="look at this region only; may be repeated")
    parser.add_argument("--type", metavar="TYPE", action="append", help="instance type in use; may be repeated (default: those of your policies)")


def run(arguments: argparse.Namespace) -> int:
    """Look, and print what was found. 0 if all is well, 1 with findings, 2 if it cannot run."""
    from spotd_aws.clients import Clients

    try:
        installation = read_installation(getattr(arguments, "config", None))
        clients = Clients(installation.aws)
    except Unusable as error:
        return _refuse(str(error))
    except Exception as error:  # noqa: BLE001 - a profile that does not exist, a broken file of credentials: botocore's own sentence says it
        return _refuse(str(translate(error, doing="reading the credentials")))
    findings: list[Finding] = []
    interrupted = False
    try:
        for one in diagnose(
            clients, installation, getattr(arguments, "region", None) or (), getattr(arguments, "type", None) or (), threading.Event()
        ):
            findings.append(one)  # noqa: PERF402 - what there is when somebody presses Ctrl-C is kept
    except Unusable as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        clients.close()
    well = not interrupted and all(one.state.well for one in findings)
    if getattr(arguments, "json", False):
        say_json({"findings": [asdict(one) for one in findings], "well": well})
    else:
        _print(findings, well=well)
    if interrupted:
        complain("interrupted: this is what was found until then")
        return INTERRUPTED
    return WELL if well else FINDINGS


def _refuse(sentence: str) -> int:
    complain(sentence)
    return CANNOT_RUN


def _print(findings: Sequence[Finding], *, well: bool) -> None:
    say_table(("WHERE", "WHAT", "STATE", "FOUND"), [(one.where, one.subject, one.state.value, one.says) for one in findings])
    if well:
        say("\nAll is well.")
    todo = [one for one in findings if not one.state.well]
    if not todo:
        return
    say(f"\n{len(todo)} to look at:")
    for fix in dict.fromkeys(one.fix for one in todo if one.fix):
        places = ", ".join(dict.fromkeys(f"{one.where}: {one.subject}" for one in todo if one.fix == fix))
        say(f"  {places}\n      {fix}")


def diagnose(clients: Clients, installation: Installation, regions: Sequence[str], types: Sequence[str], stop: threading.Event) -> Iterator[Finding]:
    """Finding by finding: this host, the account, each region. Raises Unusable where AWS cannot be asked at all."""
    deployment = installation.deployment
    yield from reach(installation)
    yield from advised(installation.aws.spot_advisor)
    notes = Notes("account")
    account = _identity(clients, notes)
    if account is None:
        raise Unusable(next(f"{one.says}: {one.fix}" for one in notes.findings if one.state is State.PROBLEM))
    _credentials(installation, notes)
    _spot_role(clients, notes)
    notes.ask("prices", "pricing:GetProducts", lambda: _pricing(clients))
    used = in_use(installation.policies_dir)
    enabled = _enabled(clients, notes)
    yield from notes.findings
    errand = Errand(installation.aws, deployment, account, tuple(types) or used.instance_types or _DEFAULT_TYPES)
    places = tuple(regions) or installation.aws.regions or used.regions or enabled
    pool = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="aws-doctor")
    try:
        for found in pool.map(lambda region: examine(clients, errand, region, stop), places):
            yield from found
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


# This host


def reach(installation: Installation) -> list[Finding]:
    """Whether instances can call the daemon, as far as its settings tell."""
    notes = Notes("host")
    example = f"HOST:{installation.listen_port or 7443}"
    if installation.advertise is None:
        fix = f'under [agent_api] of {installation.file} write advertise = "{example}", an address of this host that every region reaches'
        notes.add("agent_api.advertise", State.PROBLEM, "not set: agents on AWS would not find the daemon", fix)
    elif _here_only(installation.advertise):
        fix = f'under [agent_api] of {installation.file} write advertise = "{example}", an address of this host that every region reaches'
        notes.add("agent_api.advertise", State.PROBLEM, f"{installation.advertise} leads every instance to itself", fix)
    else:
        notes.add("agent_api.advertise", State.OK, installation.advertise)
    if installation.listen_port is None:
        fix = f'under [agent_api] write listen = "0.0.0.0:{7443}", so that a firewall can let one port through'
        notes.add("agent_api.listen", State.PROBLEM, f"{installation.listen} takes any free port", fix)
    elif _here_only(installation.listen, listens=True):
        says = f"{installation.listen} is heard on this host alone: right only where something here passes calls on to it"
        notes.add("agent_api.listen", State.NOTE, says)
    else:
        notes.add("agent_api.listen", State.OK, installation.listen)
    if installation.store:
        notes.add("checkpoints.store", State.OK, installation.store)
    else:
        fix = f'under [checkpoints] of {installation.file} write store = "s3://BUCKET/PREFIX"'
        notes.add("checkpoints.store", State.PROBLEM, "not set: instances have no place for checkpoints that the next one finds", fix)
    return notes.findings


def advised(source: str | None) -> list[Finding]:
    """Whether the spot advisor's data can be read where it is configured; without it offers merely have no prior of it."""
    if source is None:
        return []
    try:
        bands = read_bands(source)
    except ProviderError as error:
        fix = "the daemon goes on without and tries again: mend it, or leave spot_advisor out"
        return [Finding("host", "spot advisor", State.PROBLEM, str(error), fix)]
    return [Finding("host", "spot advisor", State.OK, f"{len(bands)} pairs of region and type")]


def firewall(installation: Installation) -> str | None:
    """The rule that the control host's firewall needs, in words; None while no port is fixed."""
    port = installation.listen_port
    if port is None:
        return None
    return (
        f"The control host has to accept TCP port {port} from the instances. Their addresses are not known beforehand: allow {port}/tcp "
        "from 0.0.0.0/0, or from your NAT gateways where instances have no public address. Agents prove who they are, and speak TLS."
    )


def _here_only(address: str, *, listens: bool = False) -> bool:
    """Whether nobody but this host gets there. Who listens on 0.0.0.0 is heard everywhere; who calls it calls himself."""
    host = address.rpartition(":")[0].strip("[]").lower()
    if host in {"localhost", "localhost.localdomain"} or host.endswith(".localhost"):
        return True
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return False
    return ip.is_loopback or (ip.is_unspecified and not listens)


# The account


def _identity(clients: Clients, notes: Notes) -> Account | None:
    """Whose credentials they are; on the way, whether the clocks agree."""
    home = clients.home_region()
    began = datetime.now(UTC)
    try:
        answer = clients.get("sts", home).get_caller_identity()
    except Exception as error:  # noqa: BLE001 - whatever it is, the doctor cannot go on, and says why
        skew = _skew(getattr(error, "response", None), began)
        if skew is not None and abs(skew) > _SKEW:
            notes.add("clock", State.PROBLEM, _wrong(skew), _SET_CLOCK)
        told = translate(error, doing="asking whose credentials these are", region=home)
        fix = "set AWS_PROFILE or `profile` under [providers.aws], or run this on a host that has an instance role"
        if not isinstance(told, NotAuthorized):
            fix = "see that this host reaches AWS (network, proxy, `endpoint_url` under [providers.aws]), and run it again"
        notes.add("credentials", State.PROBLEM, str(told), fix)
        return None
    skew = _skew(answer, began)
    if skew is None:
        notes.add("clock", State.UNKNOWN, "AWS's answer has no date", "compare `date -u` with another host")
    elif abs(skew) > _SKEW:
        notes.add("clock", State.PROBLEM, _wrong(skew), _SET_CLOCK)
    else:
        notes.add("clock", State.OK, "agrees with AWS's")
    number, arn = str(answer.get("Account") or ""), str(answer.get("Arn") or "")
    if not number.isdecimal():
        notes.add("credentials", State.PROBLEM, "AWS did not say whose credentials these are", "see what answers at the configured endpoint_url")
        return None
    notes.add("credentials", State.OK, arn)
    return Account(number, arn.split(":")[1] if arn.count(":") > 1 else "aws")


_SET_CLOCK = "let chrony or systemd-timesyncd set this host's clock: AWS refuses calls signed 5 minutes off"


def _skew(answer: Any, began: datetime) -> timedelta | None:
    """How far this host's clock is ahead of AWS's. Dates have whole seconds, and the answer was some time on its way: that much is not seen."""
    try:
        date = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).astimezone(UTC)
    except (TypeError, KeyError, ValueError):
        return None
    ended = datetime.now(UTC)
    if began - timedelta(seconds=1) <= date <= ended:
        return timedelta(0)
    return began - date if date < began else ended - date


def _wrong(skew: timedelta) -> str:
    seconds = abs(skew.total_seconds())
    return f"this host's clock is {seconds:.0f} s {'ahead of' if skew > timedelta(0) else 'behind'} AWS's"


@unique
class Keys(StrEnum):
    """How long credentials last."""

    PERMANENT = "permanent"
    #: Of an instance role, or of a role that is assumed again and again.
    RENEWED = "renewed"
    #: Of a session that ends, and nothing renews it.
    SESSION = "session"


def keys_of(profile: str | None) -> Keys | None:
    """How long the credentials of a profile last; None where there are none."""
    import boto3
    from botocore.credentials import RefreshableCredentials

    found = boto3.session.Session(profile_name=profile).get_credentials()
    if found is None:
        return None
    if isinstance(found, RefreshableCredentials):
        return Keys.RENEWED
    return Keys.SESSION if found.token else Keys.PERMANENT


def _credentials(installation: Installation, notes: Notes) -> None:
    """Signed addresses live no longer than the session that signed them."""
    uses = {"credentials last": installation.aws.profile}
    if installation.store.startswith("s3://"):
        uses["signing credentials"] = installation.store_profile
    for subject, profile in uses.items():
        try:
            keys = keys_of(profile)
        except Exception as error:  # noqa: BLE001 - a profile that is not there; botocore's sentence says it
            notes.add(subject, State.PROBLEM, str(error), "see the AWS configuration files of the user that runs the daemon")
            continue
        match keys:
            case None:
                notes.add(subject, State.PROBLEM, "there are none", "see the AWS configuration files of the user that runs the daemon")
            case Keys.PERMANENT:
                notes.add(subject, State.OK, "until somebody takes them away")
            case Keys.RENEWED:
                says = "for hours, and are renewed by themselves"
                if subject == "signing credentials":
                    says += "; signed addresses of checkpoints die with each session, so agents get new ones as it ends"
                notes.add(subject, State.OK, says)
            case Keys.SESSION:
                says = "until their session ends: signed addresses of checkpoints, and the daemon's own calls, are refused from then on"
                fix = "give the daemon the access key of an IAM user, or an instance role: a session token runs out, and nothing renews it"
                notes.add(subject, State.PROBLEM, says, fix)
            case _:
                assert_never(keys)


def _spot_role(clients: Clients, notes: Notes) -> None:
    try:
        clients.get("iam", clients.home_region()).get_role(RoleName=_SPOT_ROLE)
    except Exception as error:  # noqa: BLE001 - translated
        told = translate(error, doing="looking for the service role for spot instances")
        if told.code in {"NoSuchEntity", "NoSuchEntityException"}:
            notes.add("spot service role", State.PROBLEM, f"{_SPOT_ROLE} is missing: no spot instance can be started", MAKE_SPOT_ROLE)
        else:
            notes.failed("spot service role", "iam:GetRole", told)
    else:
        notes.add("spot service role", State.OK, _SPOT_ROLE)


def _pricing(clients: Clients) -> Any:
    from spotd_aws.clients import PRICING_REGION

    filters = [{"Type": "TERM_MATCH", "Field": "instanceType", "Value": "g5.xlarge"}]
    return clients.get("pricing", PRICING_REGION).get_products(ServiceCode="AmazonEC2", Filters=filters, MaxResults=1)


def _enabled(clients: Clients, notes: Notes) -> tuple[str, ...]:
    from spotd_aws.setup import enabled_regions

    try:
        return enabled_regions(clients)
    except ProviderError as error:
        notes.failed("regions", "ec2:DescribeRegions", error)
        return ()
