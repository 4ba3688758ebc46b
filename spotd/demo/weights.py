"""The final weights, out of the daemon's store and out of the run that nothing interrupted, compared bit for bit."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotd.demo import scene

if TYPE_CHECKING:
    from spotd.demo.scene import Stage


@dataclass(frozen=True, slots=True)
class Weights:
    """Every array of a checkpoint as it lies on the disk, header and bits; the state of the dice among them."""

    step: int
    arrays: Mapping[str, bytes]
    #: Where they come from and how that was verified, in words.
    source: str

    @property
    def sha256(self) -> str:
        """The identity of all arrays."""
        digest = hashlib.sha256()
        for name in sorted(self.arrays):
            digest.update(name.encode() + b"\0" + self.arrays[name])
        return digest.hexdigest()

    def differing(self, other: Weights) -> list[str]:
        """The arrays that are not the same in both."""
        names = set(self.arrays) | set(other.arrays)
        return sorted(name for name in names if self.arrays.get(name) != other.arrays.get(name))


class NotVerified(Exception):
    """A checkpoint that is not what was recorded of it; the sentence says where."""


def committed(stage: Stage, record: Mapping[str, Any]) -> Weights:
    """The weights in the daemon's store: the manifest as the journal recorded it, every file as the manifest says."""
    folder = stage.state / "objects" / "jobs" / record["job_id"] / "checkpoints" / record["id"]
    content = _read(folder / "manifest.json")
    if hashlib.sha256(content).hexdigest() != record["manifest_sha256"]:
        raise NotVerified(f"the manifest of checkpoint {record['id']} is not the one that was recorded")
    manifest = json.loads(content)
    found: bytes | None = None
    for file in manifest["files"]:
        data = _read(folder / f"{file['object']:04d}")
        if len(data) != file["size"] or hashlib.sha256(data).hexdigest() != file["sha256"]:
            raise NotVerified(f"{file['path']} of checkpoint {record['id']} is not what its manifest says")
        if file["path"] == f"{manifest['name']}/weights.npz":
            target = stage.root / "final.npz"
            target.write_bytes(data)
            found = data
    if found is None:
        raise NotVerified(f"checkpoint {record['id']} holds no weights")
    source = f"checkpoint {record['id']}, manifest and {len(manifest['files'])} file verified by sha256"
    return Weights(int(manifest["step"]), _arrays(stage.root / "final.npz"), source)


def uninterrupted(stage: Stage) -> Weights:
    """The weights of the reference."""
    path = stage.reference / "ckpt" / f"step-{scene.STEPS}" / "weights.npz"
    return Weights(scene.STEPS, _arrays(path), "one process from step 1 to the end")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotVerified(f"{path.name} of checkpoint {path.parent.name} cannot be read: {error.strerror}") from None


def _arrays(path: Path) -> dict[str, bytes]:
    """An .npz is a zip of arrays: no NumPy is needed to compare them."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile) as error:
        raise NotVerified(f"{path.name} holds no weights: {error}") from None
