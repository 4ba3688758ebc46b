"""Whether a provider's instances can work for this daemon, as it is configured. Said before anything is launched, with what to do.

Instances on other machines call the daemon (one TCP port, from every region and cloud) and put their checkpoints where the next one finds them.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotd.ports import Capabilities


def blocked(name: str, capabilities: Capabilities, advertise: str | None, store: str | None) -> str:
    """Why nothing can be launched there: one sentence that ends with the next step. Empty when it can.

    `advertise` is the address that agents are told, `store` the cloud store for checkpoints, as configured.
    """
    if not capabilities.remote:
        return ""
    step = 'set [agent_api] listen = "0.0.0.0:7443" and advertise = "ADDRESS:7443" in spotd.toml, ADDRESS being one of this host that they reach'
    if advertise is None:
        return f"instances of {name} are other machines and have no address of this daemon: {step}, and allow TCP 7443 to come in"
    if _only_here(advertise):
        return f"instances of {name} are other machines and cannot reach {advertise}: {step}, and allow TCP 7443 to come in"
    if store is None:
        return (
            f'instances of {name} are other machines and have no place for checkpoints: set [checkpoints] store = "s3://BUCKET/PREFIX" in spotd.toml'
        )
    return ""


def firewall_rule(advertise: str, listens: str) -> str:
    """What must be let in for agents on other machines."""
    port = advertise.rpartition(":")[2]
    return f"agents call {advertise}: allow TCP {port} to come in from wherever instances run (this daemon listens on {listens})"


def _only_here(address: str) -> bool:
    """Whether an address means this host, or none at all, to whoever uses it."""
    host = address.rpartition(":")[0].strip("[]").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return False
    return number.is_loopback or number.is_unspecified
