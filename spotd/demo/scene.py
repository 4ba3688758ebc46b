"""What is shown: which stretch of the recorded market, which job, which policy; and the files that say so.

The window was found by `python -m spotd_local.windows`. From its start on, at this speed, the cheapest place is reclaimed after 9.1 s (us-west-2b),
the next after 33.8 s (us-east-2a), the third after 44.9 s (us-east-1c); us-east-2b, where spot is cheapest when the job returns, holds until 94.9 s.
Each placement may come 5 s late, and the return any time from 52.6 s to 68 s, without changing which zone is chosen.

The job's length follows from that. At best it trains for some 53 s before it is back on spot: each change of machines costs it a second or more.
Its 60 s of steps therefore cannot be over before; on a machine so busy that each change costs 5 s, they end at 86 s, while the last zone holds.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
import shutil
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import spotd
from spotd.cli.failure import Failure

MARKET = "v100-2023-02"
START_S = 1_263_210
#: k: seconds of the recording, and of the bill, per real second.
SPEED = 300
NOTICE_S = 6.0
INSTANCE_TYPE = "p3.2xlarge"
REGIONS = ("us-west-2", "us-east-2", "us-east-1")
MAX_PREEMPTIONS = 3
RETURN_AFTER_S = 9

STEPS = 600
SECONDS_PER_STEP = 0.1
CHECKPOINT_EVERY = 20
#: What is promised in all, on two cores.
LIMIT_S = 120.0

_SETTINGS = """\
state_dir = "{state}"
socket = "{socket}"
policies_dir = "{policies}"
deployment = "demo"
tick_interval = "1s"
price_poll = "1s"       # the market moves {speed} times faster than a real one, so it is looked at more often
observe_poll = "1s"

[providers.local]
root = "{cloud}"
market = "{market}"
speed = {speed}
start = "{start}s"
notice = "{notice:g}s"
boot_delay = "300ms"
metadata_poll = "500ms"
heartbeat = "500ms"
"""

_POLICY = """\
candidates:
  - {{provider: local, instance_types: [{kind}]}}
spot_handlers:
  max_preemptions: {preemptions}
  fallback_node: {kind}
  region_failover: [{regions}]
return_to_spot: {{after: {after}s}}
max_hourly_price: 3.50
idle_timeout: 5m
max_run_duration: 10m     # should this demonstration be killed, its machines end by themselves
"""

_JOB = """\
name: numpy-spirals
policy: v100
workdir: .
run: {run}
env: {{EXAMPLE_WITNESS: {witness}}}
estimated_runtime: {estimate:.0f}s
checkpoint: {{dir: ckpt}}
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """The directory in which all of it happens."""

    root: Path

    @property
    def settings(self) -> Path:
        """The daemon's settings file."""
        return self.root / "spotd.toml"

    @property
    def socket(self) -> Path:
        """The daemon's socket."""
        return self.root / "s"

    @property
    def state(self) -> Path:
        """The daemon's state."""
        return self.root / "state"

    @property
    def job(self) -> Path:
        """The job file; what lies beside it is the workdir."""
        return self.root / "job" / "job.yaml"

    @property
    def daemon_log(self) -> Path:
        """What the daemon says."""
        return self.root / "daemon.log"

    @property
    def witness(self) -> Path:
        """Every step that was trained, on whichever machine, written by the trainer itself: nothing of spotd passes it."""
        return self.root / "witness"

    @property
    def reference(self) -> Path:
        """Where the run trains that nothing interrupts."""
        return self.root / "reference"


def trainer() -> Path:
    """The training script: in the wheel beside this module, in a checkout among the examples."""
    beside = Path(str(resources.files("spotd.demo") / "train.py"))
    example = Path(spotd.__file__).parents[1] / "examples" / "numpy" / "train.py"
    for path in (beside, example):
        if path.is_file():
            return path
    raise Failure(f"the demonstration's training script is missing: neither {beside} nor {example} is there; install spotd again")


def check_here() -> None:
    """Whether the job can run on this machine at all. Failure with what to do about it."""
    if sys.platform != "linux":
        raise Failure("spotd demo needs Linux: its instances are process trees that it follows through /proc")
    if importlib.util.find_spec("numpy") is None:
        raise Failure("spotd demo trains with NumPy, which is not installed: pip install 'spotd[demo]'")


def command(*options: str) -> list[str]:
    """The training command, the same for the job and for its reference but for its pace."""
    return [sys.executable, "train.py", "--steps", str(STEPS), "--checkpoint-every", str(CHECKPOINT_EVERY), *options]


def build(root: Path) -> Stage:
    """Write everything that a user would write."""
    stage = Stage(root)
    policies = root / "policies"
    for folder in (policies, stage.job.parent, stage.reference):
        folder.mkdir()
    for folder in (stage.job.parent, stage.reference):
        shutil.copyfile(trainer(), folder / "train.py")
    settings = _SETTINGS.format(
        state=stage.state,
        socket=stage.socket,
        policies=policies,
        cloud=root / "cloud",
        market=MARKET,
        speed=SPEED,
        start=START_S,
        notice=NOTICE_S,
    )
    stage.settings.write_text(settings)
    policy = _POLICY.format(kind=INSTANCE_TYPE, preemptions=MAX_PREEMPTIONS, regions=", ".join(REGIONS), after=RETURN_AFTER_S)
    (policies / "v100.yaml").write_text(policy)
    run = shlex.join(command("--print-every", str(CHECKPOINT_EVERY), "--seconds-per-step", str(SECONDS_PER_STEP)))
    # JSON's strings are YAML's: paths need no further thought.
    job = _JOB.format(run=json.dumps(run), witness=json.dumps(str(stage.witness)), estimate=STEPS * SECONDS_PER_STEP)
    stage.job.write_text(job)
    return stage
