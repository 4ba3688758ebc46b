"""Whether a self-test can work at all, and in which regions: by what `spotd doctor aws` finds, and by the port that agents call."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from spotd_aws.findings import Finding, State
from spotd_aws.installation import Unusable


def fit_regions(findings: Sequence[Finding], regions: Sequence[str], *, remote: bool) -> tuple[str, ...]:
    """The regions in which a spot launch would go through, by what the doctor found. Unusable, with what it found, where it cannot work at all."""
    blocking = {"account": {"credentials", "clock"}}
    if remote:
        blocking["host"] = {"agent_api.advertise", "agent_api.listen", "checkpoints.store"}
    wrong = [one for one in findings if one.state is State.PROBLEM and one.subject in blocking.get(one.where, ())]
    if wrong:
        raise Unusable(_told(wrong))
    by_region: Mapping[str, dict[str, Finding]] = {region: {} for region in regions}
    for one in findings:
        if one.where in by_region:
            by_region[one.where].setdefault(one.subject, one)
    usable = tuple(region for region in regions if _launches(by_region[region]))
    if not usable:
        problems = [one for one in findings if one.where in by_region and not one.state.well]
        raise Unusable(_told(problems) or "none of these types is sold in these regions: name others with --type or --region")
    return usable


def _launches(found: Mapping[str, Finding]) -> bool:
    launch, quota = found.get("launch spot"), found.get("quota spot")
    return launch is not None and launch.state is State.OK and (quota is None or quota.state is not State.PROBLEM)


def _told(findings: Sequence[Finding]) -> str:
    return "; ".join(dict.fromkeys(f"{one.where}: {one.subject}: {one.says}" + (f" - {one.fix}" if one.fix else "") for one in findings))


def see_that_free(listen: str) -> None:
    """Whether the address can be listened on. Unusable otherwise: most often the daemon in use has it."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(port)))
    except (OSError, ValueError, OverflowError) as error:
        other = "--listen 0.0.0.0:7444 --advertise ADDRESS:7444"
        raise Unusable(
            f"{listen} cannot be listened on ({error}). If your daemon runs: stop it for the test (jobs run on), or give another port with {other}, "
            "open in the firewall"
        ) from None
