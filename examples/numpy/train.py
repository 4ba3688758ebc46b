#!/usr/bin/env python3
"""Trains a small neural network on data it makes, and survives being taken away at any moment.

    python train.py --steps 600 --seconds-per-step 0.1 --checkpoint-every 50

Nothing of spotd is imported: all that passes between this script and spotd are a few files, named by environment variables. Without them it
trains all the same.

    SPOTD_CHECKPOINT_DIR   where checkpoints go (without spotd: --checkpoint-dir)
    SPOTD_RESUME_FROM      the checkpoint to go on from; empty or unset on a fresh start
    SPOTD_PROGRESS_FILE    gets a JSON line per announcement: a step, a finished checkpoint, the end
    SPOTD_NOTICE_FILE      appears when the instance is about to be taken away: then save, and stop

The run is deterministic, to the bit: whether and where it was interrupted cannot be seen in the final weights.
"""

# ruff: noqa: E402 - numpy reads the number of threads when it is imported

from __future__ import annotations

import os

# One thread: sums are then always made in the same order, so results are equal to the last bit. Before numpy is imported.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import hashlib
import itertools
import json
import shutil
import time
from pathlib import Path

import numpy as np

FEATURES, HIDDEN, CLASSES = 16, 48, 4
EXAMPLES, BATCH = 4096, 128
LEARNING_RATE, MOMENTUM = 0.05, 0.9
#: Notices of these kinds mean that the job will be stopped. Others (a drill, a hint) are for those who want to know.
STOPPING = ("reclaim", "maintenance", "shutdown", "move", "cancel", "displaced")


def make_data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points in four noisy spirals: not separable by lines, learnable by a small network."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=EXAMPLES)
    radius = rng.uniform(0.2, 1.0, size=EXAMPLES)
    angle = 4.0 * radius + labels * (2 * np.pi / CLASSES) + rng.normal(0.0, 0.15, size=EXAMPLES)
    plane = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return np.tanh(plane @ rng.normal(0.0, 2.0, size=(2, FEATURES))), labels


class Model:
    """A perceptron with two hidden layers, and stochastic gradient descent with momentum."""

    def __init__(self, rng: np.random.Generator) -> None:
        sizes = [FEATURES, HIDDEN, HIDDEN, CLASSES]
        self.weights = {}
        for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            self.weights[f"w{layer}"] = rng.normal(0.0, np.sqrt(2.0 / fan_in), size=(fan_in, fan_out))
            self.weights[f"b{layer}"] = np.zeros(fan_out)
        self.momentum = {name: np.zeros_like(value) for name, value in self.weights.items()}

    def step(self, inputs: np.ndarray, labels: np.ndarray) -> float:
        """One step of training on one batch; its loss."""
        w, activations = self.weights, [inputs]
        for layer in range(3):
            z = activations[-1] @ w[f"w{layer}"] + w[f"b{layer}"]
            activations.append(np.maximum(z, 0.0) if layer < 2 else z)
        logits = activations[-1] - activations[-1].max(axis=1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        rows = np.arange(len(labels))
        delta = np.exp(log_p)
        delta[rows, labels] -= 1.0
        delta /= len(labels)
        for layer in reversed(range(3)):
            gradients = {f"w{layer}": activations[layer].T @ delta, f"b{layer}": delta.sum(axis=0)}
            delta = (delta @ w[f"w{layer}"].T) * (activations[layer] > 0.0)
            for name, gradient in gradients.items():
                self.momentum[name] = MOMENTUM * self.momentum[name] - LEARNING_RATE * gradient
                w[name] = w[name] + self.momentum[name]
        return float(-log_p[rows, labels].mean())

    def sha256(self) -> str:
        """The identity of the weights, to the bit."""
        digest = hashlib.sha256()
        for name in sorted(self.weights):
            digest.update(name.encode() + self.weights[name].tobytes())
        return digest.hexdigest()


class Checkpoints:
    """Directories `step-<n>`, each there whole or not at all; the last two are kept."""

    def __init__(self, directory: Path, keep: int = 2) -> None:
        self.directory, self.keep = directory, keep
        directory.mkdir(parents=True, exist_ok=True)

    def save(self, step: int, model: Model, rng: np.random.Generator) -> str:
        """Write beside, flush to the disk, rename into place; the checkpoint's name."""
        name = f"step-{step}"
        final, draft = self.directory / name, self.directory / f".{name}.{os.getpid()}"
        draft.mkdir()
        arrays = {f"weights/{key}": value for key, value in model.weights.items()}
        arrays |= {f"momentum/{key}": value for key, value in model.momentum.items()}
        state = json.dumps({"step": step, "rng": rng.bit_generator.state})
        with (draft / "weights.npz").open("wb") as file:
            np.savez(file, state=np.array(state), **arrays)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(draft)
        if final.exists():  # saved by a process that was killed before it could say so
            final.rename(self.directory / f".{name}.old")
        draft.rename(final)
        sync_directory(self.directory)
        self._prune()
        return name

    def load(self, path: Path, model: Model, rng: np.random.Generator) -> int:
        """Put everything back as it was; the steps that are done."""
        with np.load(path / "weights.npz") as arrays:
            model.weights = {key: arrays[f"weights/{key}"] for key in model.weights}
            model.momentum = {key: arrays[f"momentum/{key}"] for key in model.momentum}
            state = json.loads(str(arrays["state"]))
        rng.bit_generator.state = state["rng"]
        return int(state["step"])

    def _prune(self) -> None:
        complete = sorted(self.directory.glob("step-*"), key=lambda p: int(p.name.removeprefix("step-")))
        for old in complete[: -self.keep]:
            shutil.rmtree(old)
        for draft in self.directory.glob(".step-*"):  # what a process left that was killed while it saved
            shutil.rmtree(draft)


class Announcer:
    """Tells spotd how far the training is, one JSON line at a time. Without spotd it tells nobody."""

    def __init__(self, path: str | None) -> None:
        self.path = path

    def say(self, **fields: object) -> None:
        """Append one line, in one write."""
        if self.path:
            append_line(self.path, json.dumps(fields))


def stopping_notice(path: str | None) -> str | None:
    """The kind of the notice that says this job will be stopped, if there is one."""
    if not path:
        return None
    try:
        kind = json.loads(Path(path).read_text())["kind"]
    except FileNotFoundError:
        return None
    return kind if kind in STOPPING else None


def append_line(path: str, line: str) -> None:
    """Append with O_APPEND in one write, so that lines of several processes never mix."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def train(options: argparse.Namespace) -> int:
    """Train to the end, or until a notice; the exit code."""
    inputs, labels = make_data(options.seed)
    rng = np.random.default_rng([options.seed, 1])
    model = Model(rng)
    checkpoints = Checkpoints(options.checkpoint_dir)
    announcer = Announcer(os.environ.get("SPOTD_PROGRESS_FILE"))
    notice_file = os.environ.get("SPOTD_NOTICE_FILE")
    witness = os.environ.get("EXAMPLE_WITNESS")

    done = 0
    if options.resume_from:
        done = checkpoints.load(Path(options.resume_from), model, rng)
        print(f"resumed from {options.resume_from} at step {done}", flush=True)

    began, before = time.monotonic(), done
    while done < options.steps:
        batch = rng.integers(EXAMPLES, size=BATCH)
        loss = model.step(inputs[batch], labels[batch])
        done += 1
        if witness:
            append_line(witness, f"{os.getpid()} {time.monotonic():.6f} {done}")
        announcer.say(step=done, loss=round(loss, 6))
        if done % options.print_every == 0:
            print(f"step {done}/{options.steps} loss {loss:.4f}", flush=True)

        notice = stopping_notice(notice_file)
        if notice or done % options.checkpoint_every == 0 or done == options.steps:
            announcer.say(checkpoint=checkpoints.save(done, model, rng), step=done)
        if notice and done < options.steps:
            print(f"notice ({notice}): saved step {done}, stopping", flush=True)
            return 0
        pause = began + (done - before) * options.seconds_per_step - time.monotonic()
        time.sleep(max(pause, 0.0))

    np.savez(options.checkpoint_dir / "final.npz", **model.weights)
    print(f"done: {done} steps, weights sha256 {model.sha256()}", flush=True)
    announcer.say(done=True)
    return 0


def main() -> int:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description="A small neural network that survives reclaims.")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seconds-per-step", type=float, default=0.0, help="pace; 0: as fast as it goes")
    parser.add_argument("--checkpoint-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--print-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--checkpoint-dir", type=Path, default=os.environ.get("SPOTD_CHECKPOINT_DIR", "ckpt"))
    parser.add_argument("--resume-from", default=os.environ.get("SPOTD_RESUME_FROM", ""))
    return train(parser.parse_args())


if __name__ == "__main__":
    raise SystemExit(main())
