"""What `submit` and `run` share: send the workdir if it is not there yet, then the job, once however often it is tried."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotd.cli.output import note, size
from spotd.cli.pack import pack
from spotd.cli.refusal import Away, Refusal, place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotd.cli.client import Client

_TRIES = 3


def send_workdir(client: Client, directory: Path) -> str:
    """Pack a directory and send it, unless the daemon has this content already; its sha256."""
    archive = pack(directory)
    with archive.stream:
        for line in archive.notes[:10]:
            note(f"warning: {line}")
        address = f"/v1/workdirs/{archive.sha256}"
        try:
            client.get(address)
        except Refusal as refusal:
            if refusal.status != 404:
                raise
            note(f"sending {archive.files} files, {size(archive.size)}")
            client.upload(address, archive.stream, archive.size)
    return archive.sha256


def hand_in(client: Client, body: Mapping[str, Any]) -> dict[str, Any]:
    """Submit. A lost answer is asked for again under the same key, which makes one job of it."""
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    for attempt in range(_TRIES):
        try:
            return client.post("/v1/jobs", body, headers)
        except Away as failure:
            # Refused at the door is certain: nothing was submitted, and nothing will be by waiting a second.
            if failure.details.get("code") != "went_away" or attempt == _TRIES - 1:
                raise
            time.sleep(1.0)
    raise AssertionError("unreachable")


def tell_warnings(answer: Mapping[str, Any]) -> None:
    """What the daemon finds doubtful."""
    for warning in answer.get("warnings", []):
        note(f"warning: {place(warning)}")
