"""What a self-test is to do, by its command line and by the settings of the user's own daemon."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from decimal import Decimal

from spotd_aws.config import read
from spotd_aws.installation import Installation, Unusable, read_installation
from spotd_aws.trial_choice import SMALL_TYPES

_HOUR_S = 3600.0
#: So long removal may take, beside the time limit.
REMOVAL_S = 600.0
#: No part of the test, and calls to AWS each: placement scores, and the advisor's data.
NOT_USED = frozenset({"score_pools", "spot_advisor"})


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is to be tested, and how."""

    #: The user's, with the self-test's deployment, and without what it does not use.
    installation: Installation
    #: The user's own deployment, for the security group that `spotd aws setup` made; empty: there is none yet.
    own_deployment: str
    budget_usd: Decimal
    instance_types: tuple[str, ...]
    regions: tuple[str, ...]
    fis_role: str
    seconds: int
    timeout_s: float

    @property
    def deployment(self) -> str:
        """The self-test's."""
        return self.installation.deployment

    @property
    def hours(self) -> Decimal:
        """How long two machines could run, for the budget: the time limit and the removal after it, and an hour at least."""
        return Decimal(max(self.timeout_s + REMOVAL_S, _HOUR_S)) / Decimal(_HOUR_S)


def read_wishes(arguments: argparse.Namespace, deployment: str) -> Wishes:
    """What the command line and the user's settings come to. Unusable where they cannot be tested with."""
    given = read_installation(arguments.config)
    scheme = given.store.partition("://")[0]
    if given.store and scheme != "s3":
        raise Unusable(f"the store is {scheme}://…, and this self-test removes what it stored in s3:// only: name such a store in {given.file}")
    # Nothing is set up for one run: the canary of `spotd aws setup` proves the queue.
    config = read({key: value for key, value in given.aws_table.items() if key not in NOT_USED} | {"queue": False})
    try:
        own = given.deployment
    except Unusable:
        own = ""
    installation = replace(
        given,
        aws=config,
        named=deployment,
        listen=arguments.listen or given.listen,
        advertise=arguments.advertise or given.advertise,
        store=f"{given.store.rstrip('/')}/{deployment}" if given.store else "",
    )
    return Wishes(
        installation,
        own,
        arguments.budget,
        tuple(arguments.type or SMALL_TYPES),
        tuple(arguments.region or config.regions),
        arguments.fis_role,
        arguments.seconds,
        arguments.timeout,
    )
