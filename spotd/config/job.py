"""The job file: what a user declares, parsed into `core.job.JobSpec`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from spotd.config import validation
from spotd.config.errors import ConfigError, Problem
from spotd.config.fields import Duration, Env, Labels, Model, Name, Script, Size, UserName, refusal, text, unique
from spotd.config.yaml_tree import Tree, load
from spotd.core.job import JobSpec, Retries

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Under these, what is written stays text: `EPOCHS: 010` is "010".
_GIGABYTE = 10**9
#: What EBS gp3 takes.
_SMALLEST_DISK, _LARGEST_DISK = 8 * _GIGABYTE, 16_000 * _GIGABYTE
_AS_TEXT = frozenset({"env", "labels"})


def _inside(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or value.startswith("~") or path == PurePosixPath():
        raise refusal("must be a directory inside the workdir", "such as ckpt or out/checkpoints")
    return str(path)


def _whole(value: int) -> int:
    if not 1 <= value <= 255:
        raise refusal(f"{value} is not an exit code of a failure", "1 to 255")
    return value


def _disk(value: int) -> int:
    if not _SMALLEST_DISK <= value <= _LARGEST_DISK:
        raise refusal("is not the size of an instance's disk", "from 8GB to 16TB, such as 200GB")
    return value


class CheckpointFile(Model):
    """Where the job's checkpoints are."""

    dir: Annotated[str, text(255, "a path", lines=False), AfterValidator(_inside)] = Field(
        default="checkpoints",
        description="Directory, relative to the workdir, that the job writes its checkpoints to (`SPOTD_CHECKPOINT_DIR`).",
    )


class RetriesFile(Model):
    """What happens when the job fails by itself. Preemptions never use these up."""

    on_error: Annotated[int, Field(ge=0, le=100)] = Field(
        default=0, description="How often a job that ends with an error is run again, from its newest checkpoint."
    )
    retry_on_exit_codes: Annotated[
        tuple[Annotated[int, AfterValidator(_whole)], ...],
        Field(max_length=64, strict=False),
        AfterValidator(unique),
    ] = Field(default=(), description="Exit codes after which the job is always run again; they do not use up `on_error`.")


class ResourcesFile(Model):
    """What the job needs of each instance."""

    disk: Annotated[Size, AfterValidator(_disk)] | None = Field(
        default=None,
        description="Size of the instance's root disk, such as 200GB. Default: as the provider is configured. (The local provider has no disks.)",
    )


class JobFile(Model):
    """One job."""

    name: Name = Field(description="What you call the job; it need not be unique.")
    policy: Name = Field(description="Name of the policy that says where it may run: a policy file's name without `.yaml`.")
    owner: UserName | None = Field(default=None, description="Whose job it is. Default: the user who submits it; only an admin may name another.")
    labels: Labels = Field(default_factory=dict, description="Names and texts for reports; they also become tags of the instances.")
    run: Script = Field(description="The command, run by `bash -c` in the workdir. It must be able to go on from its newest checkpoint.")
    setup: Script | None = Field(default=None, description="Command run once on each new instance before `run`, such as an installation.")
    workdir: Annotated[str, text(1024, "a path", lines=False)] | None = Field(
        default=None,
        description="Directory to send, relative to the job file. It is sent once per content. Default: the job starts in an empty directory.",
    )
    env: Env = Field(default_factory=dict, description="Environment variables of `setup` and `run`. They are stored as they are: not for secrets.")
    estimated_runtime: Duration | None = Field(
        default=None, description="How long the job would take without interruption; enables the cost estimate."
    )
    checkpoint: CheckpointFile = Field(default_factory=CheckpointFile, description="Where its checkpoints are.")
    retries: RetriesFile = Field(default_factory=RetriesFile, description="What happens when it fails by itself.")
    resources: ResourcesFile = Field(default_factory=ResourcesFile, description="What it needs of each instance.")


@dataclass(frozen=True, slots=True)
class ParsedJob:
    """A job file as values: the spec, and what is settled at submit rather than in the spec."""

    spec: JobSpec
    owner: str | None
    #: As written, relative to the job file; None: nothing is sent.
    workdir: str | None
    warnings: tuple[Problem, ...] = ()


def parse_job(content: bytes | str, file: str, *, workdir_sha256: str | None = None) -> ParsedJob:
    """A job file's content. ConfigError with everything that is wrong."""
    return _parsed(load(content, file, _AS_TEXT), file, workdir_sha256)


def parse_job_mapping(value: Mapping[str, Any], source: str, *, workdir_sha256: str | None = None) -> ParsedJob:
    """The same from plain values, such as a JSON body. ConfigError with everything that is wrong; no lines are known."""
    return _parsed(Tree(dict(value)), source, workdir_sha256)


def _parsed(tree: Tree, file: str, workdir_sha256: str | None) -> ParsedJob:
    job = validation.required(JobFile, tree, file)
    if workdir_sha256 is not None and job.workdir is None:
        raise ConfigError.single(file, None, "workdir", "is missing although an archive was sent")
    warnings = tuple(_warnings(job, tree, file))
    return ParsedJob(to_spec(job, workdir_sha256), job.owner, job.workdir, warnings)


def to_spec(job: JobFile, workdir_sha256: str | None) -> JobSpec:
    """The core's value of a checked job file."""
    return JobSpec(
        name=job.name,
        policy=job.policy,
        run=job.run,
        setup=job.setup,
        labels=MappingProxyType(dict(job.labels)),
        env=MappingProxyType(dict(job.env)),
        workdir_sha256=workdir_sha256,
        estimated_runtime=job.estimated_runtime,
        checkpoint_dir=job.checkpoint.dir,
        retries=Retries(job.retries.on_error, job.retries.retry_on_exit_codes),
        disk_gb=None if job.resources.disk is None else -(-job.resources.disk // _GIGABYTE),
    )


def _warnings(job: JobFile, tree: Tree, file: str) -> list[Problem]:
    found = []
    for name in job.env:
        if any(part in name.upper() for part in ("SECRET", "PASSWORD", "TOKEN", "API_KEY", "ACCESS_KEY")):
            line = tree.line(("env", name))
            found.append(Problem(file, line, f"env.{name}", "looks like a secret: env is stored and shown as it is", "keep it out of the job file"))
    if job.estimated_runtime is not None and job.estimated_runtime < timedelta(minutes=1):
        found.append(Problem(file, tree.line(("estimated_runtime",)), "estimated_runtime", "is less than a minute"))
    return found


def with_workdir(parsed: ParsedJob, sha256: str | None) -> ParsedJob:
    """The same job with its workdir's archive named."""
    return replace(parsed, spec=replace(parsed.spec, workdir_sha256=sha256))
