"""The example's training script: interrupted anywhere, it ends with the same weights, to the bit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

TRAIN = Path(__file__).parents[2] / "examples" / "numpy" / "train.py"
STEPS = 60


@dataclass
class Run:
    """A training run in a directory of its own, told what spotd tells a job."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.environment = {
            "PATH": os.environ["PATH"],
            "SPOTD_CHECKPOINT_DIR": str(self.checkpoints),
            "SPOTD_PROGRESS_FILE": str(self.folder / "progress"),
            "SPOTD_NOTICE_FILE": str(self.notice),
            "EXAMPLE_WITNESS": str(self.folder / "witness"),
            **self.environment,
        }

    @property
    def checkpoints(self) -> Path:
        """Where its checkpoints go."""
        return self.folder / "ckpt"

    @property
    def notice(self) -> Path:
        """Where a notice appears."""
        return self.folder / "notice.json"

    def command(self, *options: str) -> list[str]:
        """The command line."""
        return [sys.executable, str(TRAIN), "--steps", str(STEPS), "--checkpoint-every", "20", *options]

    def train(self, *options: str, resume_from: str = "") -> str:
        """Run it to its end; what it printed."""
        environment = {**self.environment, "SPOTD_RESUME_FROM": resume_from}
        done = subprocess.run(self.command(*options), env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    def progress(self) -> list[dict[str, object]]:
        """All that it announced."""
        return [json.loads(line) for line in (self.folder / "progress").read_text().splitlines()]

    def announced(self) -> list[str]:
        """The checkpoints that it announced."""
        return [str(line["checkpoint"]) for line in self.progress() if "checkpoint" in line]

    def steps(self) -> list[int]:
        """Every step that was trained, in order, by whichever process."""
        return [int(line.split()[2]) for line in (self.folder / "witness").read_text().splitlines()]


def sha256(output: str) -> str:
    """The identity of the final weights, from the script's last line."""
    found = re.search(r"weights sha256 ([0-9a-f]{64})", output)
    assert found is not None, output
    return found[1]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that nothing disturbed."""
    run = Run(tmp_path_factory.mktemp("trainer") / "uninterrupted")
    (run.folder / "output").write_text(run.train())
    return run


def weights(run: Run) -> str:
    """The weights of the undisturbed run."""
    return sha256((run.folder / "output").read_text())


def test_a_run_announces_what_it_does(uninterrupted: Run) -> None:
    """Every step, every checkpoint once it is on the disk, the end; two checkpoints are kept; the weights are there."""
    progress = uninterrupted.progress()
    assert uninterrupted.announced() == ["step-20", "step-40", "step-60"]
    assert [line["step"] for line in progress if "loss" in line] == list(range(1, STEPS + 1))
    assert progress[-1] == {"done": True}
    assert sorted(p.name for p in uninterrupted.checkpoints.iterdir()) == ["final.npz", "step-40", "step-60"]
    with np.load(uninterrupted.checkpoints / "final.npz") as final:
        assert {array.dtype for array in final.values()} == {np.dtype(np.float64)}


def test_the_loss_falls(uninterrupted: Run) -> None:
    """It is training, not noise."""
    losses = [float(str(line["loss"])) for line in uninterrupted.progress() if "loss" in line]
    assert sum(losses[-10:]) < sum(losses[:10]) / 2


def test_killed_at_a_random_moment_it_resumes_to_the_same_weights(uninterrupted: Run, tmp_path: Path) -> None:
    """`kill -9` in the middle of a step: the newest announced checkpoint leads to bit-identical weights."""
    run = Run(tmp_path / "killed")
    with subprocess.Popen(run.command("--seconds-per-step", "0.01"), env=run.environment, stdout=subprocess.DEVNULL) as process:
        end = time.monotonic() + 20
        while not (run.folder / "progress").exists() or not run.announced():
            assert time.monotonic() < end
            time.sleep(0.01)
        process.kill()
    newest = run.announced()[-1]
    output = run.train(resume_from=str(run.checkpoints / newest))
    assert f"resumed from {run.checkpoints / newest}" in output
    assert sha256(output) == weights(uninterrupted)


@pytest.mark.parametrize("kind", ["reclaim", "move"])
def test_a_stopping_notice_saves_at_the_next_step_and_exits_0(uninterrupted: Run, tmp_path: Path, kind: str) -> None:
    """Between checkpoints, no step is lost or done twice, and the weights are the same."""
    run = Run(tmp_path / "noticed")
    run.notice.write_text(json.dumps({"kind": kind, "seconds_left": 6}))
    assert "saved step 1, stopping" in run.train()
    assert {"done": True} not in run.progress()
    run.notice.unlink()
    output = run.train(resume_from=str(run.checkpoints / run.announced()[-1]))
    assert sha256(output) == weights(uninterrupted)
    assert run.steps() == list(range(1, STEPS + 1))


@pytest.mark.parametrize("kind", ["drill", "hint", "periodic", "rebalance"])
def test_other_notices_stop_nothing(uninterrupted: Run, tmp_path: Path, kind: str) -> None:
    """A drill is not the end."""
    run = Run(tmp_path / "drilled")
    run.notice.write_text(json.dumps({"kind": kind}))
    assert sha256(run.train()) == weights(uninterrupted)


def test_interrupted_after_every_single_step_it_ends_the_same(uninterrupted: Run, tmp_path: Path) -> None:
    """Twelve interruptions in a row, one step each."""
    run = Run(tmp_path / "often")
    run.notice.write_text(json.dumps({"kind": "reclaim"}))
    resume_from = ""
    for step in range(1, 13):
        run.train(resume_from=resume_from)
        resume_from = str(run.checkpoints / f"step-{step}")
    run.notice.unlink()
    assert sha256(run.train(resume_from=resume_from)) == weights(uninterrupted)
    assert run.steps() == list(range(1, STEPS + 1))


def test_resumed_from_its_last_checkpoint_it_only_finishes(uninterrupted: Run, tmp_path: Path) -> None:
    """Reclaimed between the last checkpoint and the end, nothing is trained again."""
    run = Run(tmp_path / "late")
    output = run.train(resume_from=str(uninterrupted.checkpoints / "step-60"))
    assert sha256(output) == weights(uninterrupted)
    assert not (run.folder / "witness").exists()


def test_it_runs_without_spotd(uninterrupted: Run, tmp_path: Path) -> None:
    """With no variable set it is a script like any other, and imports nothing of ours."""
    command = [sys.executable, "-I", str(TRAIN), "--steps", str(STEPS), "--checkpoint-dir", str(tmp_path / "ckpt")]
    done = subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True)
    assert sha256(done.stdout) == weights(uninterrupted)
    assert "import spotd" not in TRAIN.read_text()
