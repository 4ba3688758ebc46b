"""The stage, the journal in words, the picture, the weights on the disk, what is found to be left."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from spotd.cli.failure import Failure
from spotd.config.daemon import load_daemon_config
from spotd.config.job import parse_job
from spotd.config.policy import parse_policy
from spotd.demo import leftovers, scene, view, weights
from spotd.demo.story import Story
from spotd_local.config import read
from spotd_local.market import load
from spotd_local.windows import Trace, Wanted, follow

BEGAN = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
AT = "2026-11-30T12:00:05.250Z"


@pytest.mark.parametrize("fallback", [scene.RETURN_AFTER_S, scene.RETURN_AFTER_S + 2, scene.RETURN_AFTER_S + 7])
@pytest.mark.parametrize("late", [1.6, 5.0])
def test_the_window_holds_with_seconds_to_spare(late: float, fallback: float) -> None:
    """Placements may come 5 s late, the return 7 s more, and the same zones are chosen, reclaimed at the same times; the last holds until 94 s."""
    wanted = Wanted(latest=late, fallback=fallback, longest_stint=30.0, last_stint=25.0)
    market = load(scene.MARKET)
    window = follow(Trace.of(market), scene.START_S // int(market.gap_seconds), scene.SPEED, wanted)
    assert window is not None
    assert window.start_s == scene.START_S
    assert [stint.zone for stint in window.stints] == ["us-west-2b", "us-east-2a", "us-east-1c", "us-east-2b"]
    assert [round(stint.notice or 0.0, 1) for stint in window.stints] == [9.1, 33.8, 44.9, 94.9]
    stints = [(stint.notice or 0.0) - stint.begin for stint in window.stints]
    assert min(stints) > scene.NOTICE_S


def test_the_stage_is_what_a_user_would_write(tmp_path: Path) -> None:
    """Settings, policy and job are right by spotd's own parsers, also where paths hold spaces, and the trainer lies beside the job."""
    root = tmp_path / "a b"
    root.mkdir()
    stage = scene.build(root)
    config = load_daemon_config(stage.settings)
    assert read(config.providers["local"]).speed == scene.SPEED
    assert config.socket == stage.socket
    parsed = parse_policy((config.policies_dir / "v100.yaml").read_text(), "v100.yaml")
    assert parsed.policy.spot_handlers.max_preemptions == scene.MAX_PREEMPTIONS
    assert parsed.warnings == ()
    job = parse_job(stage.job.read_text(), "job.yaml")
    assert job.spec.env == {"EXAMPLE_WITNESS": str(stage.witness)}
    assert job.warnings == ()
    assert (stage.job.parent / "train.py").read_bytes() == scene.trainer().read_bytes()


def test_without_numpy_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence with the command, before anything is started."""
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(Failure, match=r"pip install 'spotd\[demo\]'"):
        scene.check_here()


def requested(number: int, market: str = "spot", because: str = "cheapest") -> list[dict[str, Any]]:
    """The two events of a placement."""
    offer = {"provider": "local", "region": "us-west-2", "zone": "us-west-2b", "instance_type": "p3.2xlarge", "market": market}
    instance = {"id": f"i{number}", "attempt_id": f"a{number}", "request": {"offer": offer}, "because": because, "price_usd_per_hour": "0.918"}
    placed = {"attempt_id": f"a{number}", "number": number, "purpose": "return" if number == 5 else "start"}
    return [event("attempt_placed", **placed), event("launch_requested", instance=instance)]


def event(kind: str, **fields: object) -> dict[str, Any]:
    """One row of the journal as the API gives it."""
    return {"kind": kind, "at": AT, "fields": {"at": AT, **fields}}


def told(*events: dict[str, Any]) -> list[str]:
    """The lines that these events are worth."""
    story = Story(BEGAN)
    return [line for one in events if (line := story.hear(one)) is not None]


def test_the_journal_is_told_in_words() -> None:
    """Each event worth telling is one line with its time; two channels that warn of one reclaim are one line."""
    notice = {"kind": "reclaim", "source": "imds", "deadline": "2026-11-30T12:00:11.250Z"}
    assert told(
        *requested(1),
        event("launch_refused", instance_id="i1", message="no spot capacity"),
        event("workload_started", instance_id="i1", restored_step=None),
        event("workload_started", instance_id="i1", restored_step=70),
        event("notice_seen", instance_id="i1", notice=notice),
        event("notice_seen", instance_id="i1", notice=notice),
        event("workload_drained", instance_id="i1", saved=True, step=77, seconds_used=0.41, seconds_given=6.0),
        event("agent_bootstrapped", instance_id="i1"),
        event("price_moved", instance_id="unknown"),
        event("job_finished", outcome="succeeded", detail="exit code 0 in attempt 5"),
    ) == [
        "[  5.2 s] attempt 1: asks for spot in us-west-2b at $0.9180/h",
        "[  5.2 s] attempt 1: us-west-2b refuses, no spot capacity",
        "[  5.2 s] attempt 1: trains in us-west-2b from the beginning",
        "[  5.2 s] attempt 1: trains in us-west-2b on from step 70",
        "[  5.2 s] RECLAIM: us-west-2b takes attempt 1's machine away in 6.0 s",
        "[  5.2 s] attempt 1: saved step 77 and stopped, 0.4 s of 6.0 used",
        "[  5.2 s] the job succeeded: exit code 0 in attempt 5",
    ]
    assert told(*requested(4, "on-demand", "3 preemptions: on-demand; cheapest"))[0].endswith("(3 preemptions: on-demand)")
    assert "back to spot: asks for spot" in told(*requested(5))[0]


@pytest.mark.parametrize("size", [(120, 45), (80, 24)])
def test_the_picture_fits_the_terminal(size: tuple[int, int]) -> None:
    """Zones with price and trend, the countdown of a notice, progress, money and the newest lines, on large and on small terminals."""
    width, height = size
    story = Story(BEGAN)
    zones = [f"{region}{letter}" for region in scene.REGIONS for letter in "abc"]
    for price in ("0.9", "1.0"):
        story.price([{"zone": z, "region": z[:-1], "market": "spot", "price_usd_per_hour": price} for z in zones])
    offer = {"zone": zones[0], "region": scene.REGIONS[0], "market": "spot"}
    machine = {"attempt": 1, "try": 1, "offer": offer, "state": "running", "refusal": None, "spend_usd": "0.5"}
    machine["notice"] = {"kind": "reclaim", "deadline": "2026-11-30T12:00:10Z"}
    attempt = {"number": 1, "state": "draining", "reason": None, "preempted_at": AT, "loss": 0.25, "step": 70, "resumed_step": None}
    story.shown = {"job": {"step": 70, "checkpoint_step": 60}, "attempts": [attempt], "instances": [machine], "spend_usd": "0.5"}
    story.lines.extend(f"line {number}" for number in range(100))
    console = Console(width=width, height=height)
    with console.capture() as captured:
        console.print(view.picture(story, BEGAN.timestamp() + 6, height))
    text = captured.get()
    assert len(text.splitlines()) <= height
    assert all(zone in text for zone in zones)
    for words in ("▲", "RECLAIM of attempt 1: 4.0 s left", "step 70/600", "checkpoint 60", "loss 0.2500", "$0.5000", "line 99"):
        assert words in text


def test_weights_are_those_of_the_manifest(tmp_path: Path) -> None:
    """Manifest and file must be what was recorded, to the bit; then the arrays are what the trainer wrote."""
    stage = scene.Stage(tmp_path)
    record = {"job_id": "j", "id": "00001-000001"}
    folder = stage.state / "objects" / "jobs" / "j" / "checkpoints" / "00001-000001"
    folder.mkdir(parents=True)
    np.savez(folder / "0000.npz", w=np.arange(3.0))
    (folder / "0000.npz").rename(folder / "0000")
    data = (folder / "0000").read_bytes()
    file = {"path": "step-600/weights.npz", "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "object": 0}
    manifest = json.dumps({"step": 600, "name": "step-600", "files": [file]}).encode()
    (folder / "manifest.json").write_bytes(manifest)
    recorded = {**record, "manifest_sha256": hashlib.sha256(manifest).hexdigest()}
    found = weights.committed(stage, recorded)
    assert (found.step, sorted(found.arrays)) == (600, ["w.npy"])
    assert found.arrays["w.npy"].endswith(np.arange(3.0).tobytes())
    with pytest.raises(weights.NotVerified, match="manifest of checkpoint 00001-000001"):
        weights.committed(stage, {**record, "manifest_sha256": "0" * 64})
    (folder / "0000").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(weights.NotVerified, match="is not what its manifest says"):
        weights.committed(stage, recorded)


def test_what_is_left_is_found_by_its_mark_and_ended(tmp_path: Path) -> None:
    """A process marked with the directory is ended; one that only mentions it, or is marked with a longer name, is not ours."""
    sleep = ["sleep", "60"]
    ours = subprocess.Popen(sleep, env={"PATH": "/usr/bin:/bin", "SPOTD_LOCAL_MACHINE": f"{tmp_path}/cloud/instances/x"})
    reader = subprocess.Popen(["tail", "-f", "/dev/null"], env={"PATH": "/usr/bin:/bin", "PWD": str(tmp_path)})
    other = subprocess.Popen(sleep, env={"PATH": "/usr/bin:/bin", leftovers.MARKER: f"{tmp_path}-2"})
    try:
        assert leftovers.processes(tmp_path) == {ours.pid: "sleep 60"}
        assert leftovers.end_all(tmp_path) == {}
        assert ours.wait(5) == -9
        assert reader.poll() is None
        assert other.poll() is None
    finally:
        for process in (ours, reader, other):
            process.kill()
            process.wait()
