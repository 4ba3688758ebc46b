"""The policy file: what ops intend, parsed into `core.policy.Policy`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from spotd.config import validation
from spotd.config.errors import ConfigError, Problem, dotted, printable
from spotd.config.fields import NAME_PATTERN, CloudWord, Duration, Hook, InstanceProfile, Model, ProviderName, UsdPerHour, filled, refusal, unique
from spotd.config.quantities import kind_of, show_duration
from spotd.config.regions import Unclear, Wanted, complete, misfit
from spotd.config.yaml_tree import Tree, load
from spotd.core.policy import Candidate, Policy, SpotHandlers

_Words = Annotated[tuple[CloudWord, ...], Field(max_length=50, strict=False), AfterValidator(filled), AfterValidator(unique)]


class After(Model):
    """A block that holds one duration."""

    after: Duration = Field(description="How long after.")


def _after_or_never(value: Any) -> Any:
    if value == "never":
        return None
    if isinstance(value, (dict, After)):
        return value
    if isinstance(value, str) and re.fullmatch(r"[0-9a-z.]+", value):
        raise refusal(f"{printable(value)} is not what is wanted here", f"write {{after: {value}}}, or never")
    shown = printable(value) if isinstance(value, str) else kind_of(value)
    raise refusal(f"is {shown}", "write {after: 1h}, or never")


AfterOrNever = Annotated[After | None, BeforeValidator(_after_or_never)]


class CandidateFile(Model):
    """Capacity that may be bought: every type in every region."""

    provider: ProviderName = Field(description="Name of the provider: `aws`, `gcp`, `local`, or another plug-in's.")
    instance_types: _Words = Field(description="Instance types that will do for the job.")
    regions: _Words | None = Field(
        default=None,
        description="Regions, in order of preference among equally good ones. Default: those of `region_failover` that are this provider's.",
    )


class SpotHandlersFile(Model):
    """What to do about reclaims."""

    pre_reclaim_hook: Hook | None = Field(
        default=None,
        description="Command run on the instance when a reclaim is announced, with `SPOTD_SECONDS_LEFT` and `SPOTD_DEADLINE_EPOCH` set.",
    )
    max_preemptions: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=3, description="On-demand once this many preemptions are counted; 0 means on-demand from the start."
    )
    preemption_window: Duration | None = Field(
        default=None, description="Preemptions older than this are not counted. Default: those since the job last returned to spot."
    )
    fallback_node: CloudWord | None = Field(
        default=None, description="Instance type bought on demand. Default: the cheapest that the candidates allow."
    )
    region_failover: _Words | None = Field(
        default=None,
        description="Regions for the candidates that name none, in order of preference among equally good ones.",
    )


class PolicyFile(Model):
    """One policy; its name is the file's name without `.yaml`. `spot_handlers` alone can be a complete policy."""

    candidates: Annotated[tuple[CandidateFile, ...], Field(max_length=50, strict=False), AfterValidator(filled)] | None = Field(
        default=None,
        description="What may be bought. Default: `fallback_node` in the regions of `region_failover`.",
    )
    spot_handlers: SpotHandlersFile = Field(default_factory=SpotHandlersFile, description="What to do about reclaims.")
    return_to_spot: AfterOrNever = Field(
        default=After.model_construct(after=timedelta(hours=1)),
        description="How long a job stays on demand before it looks for a way back to spot, at a checkpoint: `{after: 1h}`, or `never`.",
    )
    max_hourly_price: UsdPerHour | None = Field(
        default=None, description="Nothing dearer than this is bought, in either market. Default: no cap, but spot never above on-demand."
    )
    max_price_age: Duration = Field(default=timedelta(hours=24), description="An offer whose price was last seen longer ago than this is not bought.")
    max_wait: Duration = Field(default=timedelta(hours=2), description="A job that has waited this long on spot alone may start on demand.")
    max_run_duration: Duration = Field(
        default=timedelta(days=7), description="An attempt is moved to a fresh instance before it runs longer than this; the job goes on."
    )
    idle_timeout: Duration = Field(default=timedelta(minutes=15), description="An instance without a running job is ended after this.")
    instance_profile: InstanceProfile | None = Field(
        default=None,
        description="Name or ARN of the AWS instance profile for what runs on the instances, where the job itself needs access. Default: as "
        "`[providers.aws]` says, else none: spotd itself needs no credentials there.",
    )
    replace_when_unreachable: AfterOrNever = Field(
        default=None,
        description="When an instance may be replaced although nothing proves that it stopped: `{after: 30m}`, or `never` (the default). "
        "Risks two copies of a job at once.",
    )


@dataclass(frozen=True, slots=True)
class ParsedPolicy:
    """A policy file as the core's value, and what is doubtful in it."""

    policy: Policy
    warnings: tuple[Problem, ...]


def policy_name(file: str) -> str:
    """The name of the policy in this file. ConfigError when the file's name cannot be one."""
    stem = Path(file).stem
    if not re.fullmatch(NAME_PATTERN, stem, re.ASCII):
        raise ConfigError.single(
            file,
            None,
            "",
            f"{printable(stem)} cannot be a policy's name",
            "name the file with letters, digits, dots, dashes and underscores",
        )
    return stem


def parse_policy(content: bytes | str, file: str, name: str | None = None) -> ParsedPolicy:
    """A policy file's content. ConfigError with everything that is wrong."""
    name = name if name is not None else policy_name(file)
    tree = load(content, file)
    parsed = validation.required(PolicyFile, tree, file)
    handlers = parsed.spot_handlers
    wanted = [Wanted(c.provider, c.instance_types, c.regions or ()) for c in parsed.candidates or ()]
    try:
        completed = complete(wanted, handlers.fallback_node, handlers.region_failover or ())
    except Unclear as error:
        raise ConfigError.single(file, tree.line(error.key), dotted(error.key), error.message, error.hint) from None
    policy = Policy(
        name=name,
        candidates=tuple(Candidate(w.provider, w.instance_types, w.regions) for w in completed),
        spot_handlers=SpotHandlers(
            pre_reclaim_hook=handlers.pre_reclaim_hook,
            max_preemptions=handlers.max_preemptions,
            preemption_window=handlers.preemption_window,
            fallback_node=handlers.fallback_node,
            region_failover=handlers.region_failover or (),
        ),
        return_to_spot_after=_after(parsed.return_to_spot),
        max_hourly_price_usd=parsed.max_hourly_price,
        max_price_age=parsed.max_price_age,
        max_wait=parsed.max_wait,
        max_run_duration=parsed.max_run_duration,
        idle_timeout=parsed.idle_timeout,
        instance_profile=parsed.instance_profile,
        replace_when_unreachable=_after(parsed.replace_when_unreachable),
    )
    return ParsedPolicy(policy, tuple(_warnings(policy, tree, file)))


def _after(value: After | None) -> timedelta | None:
    return value.after if value is not None else None


def _warnings(policy: Policy, tree: Tree, file: str) -> list[Problem]:
    found: list[Problem] = []

    def warn(path: tuple[str | int, ...], message: str, hint: str = "") -> None:
        found.append(Problem(file, tree.line(path), dotted(path), message, hint))

    hook = policy.spot_handlers.pre_reclaim_hook or ""
    for scheme in ("s3://", "gs://"):
        if scheme in hook and policy.instance_profile is None:
            warn(
                ("spot_handlers", "pre_reclaim_hook"),
                f"writes to {scheme}, but spotd puts no cloud credentials on an instance",
                "write to $SPOTD_CHECKPOINT_DIR: spotd uploads it before the deadline; or set instance_profile",
            )
    if policy.spot_handlers.max_preemptions == 0:
        warn(("spot_handlers", "max_preemptions"), "is 0: jobs run on demand from the start and save nothing")
    if policy.max_price_age > timedelta(days=7):
        warn(
            ("max_price_age",),
            f"{show_duration(policy.max_price_age)} old prices mislead: at 30 days they cost 18 % in recorded markets",
            "at most 7d, where it is 2 %",
        )
    unreachable = policy.replace_when_unreachable
    if unreachable is not None and unreachable < timedelta(minutes=10):
        warn(("replace_when_unreachable",), "is short: an outage of minutes would start a second copy of a running job", "30m or more")
    if policy.idle_timeout > policy.max_run_duration:
        warn(("idle_timeout",), "is longer than max_run_duration")
    _warn_of_types(policy, warn)
    return found


def _warn_of_types(policy: Policy, warn: Any) -> None:
    explicit = len(policy.candidates) > 1 or policy.candidates[0].instance_types != (policy.spot_handlers.fallback_node,)
    for index, candidate in enumerate(policy.candidates):
        for instance_type in candidate.instance_types:
            other = misfit(candidate.provider, instance_type)
            if other:
                path = ("candidates", index, "instance_types") if explicit else ("spot_handlers", "fallback_node")
                warn(path, f"{instance_type} looks like a type of {other}, not of {candidate.provider}")
    fallback = policy.spot_handlers.fallback_node
    if fallback and explicit and all(misfit(c.provider, fallback) for c in policy.candidates):
        warn(("spot_handlers", "fallback_node"), f"{fallback} does not look like a type of any candidate's provider")
