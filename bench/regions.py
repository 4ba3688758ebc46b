"""What the daemon weighs with an AWS account of twenty regions: clients, prices, queues and listings of all of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.figures import Figure
from spotd.cli.client import Client
from spotd.cli.failure import Failure
from spotd.testing.fake_aws import FakeAws

REGIONS = (
    "us-east-1", "us-east-2", "us-west-1", "us-west-2", "eu-west-1", "eu-west-2", "eu-west-3", "eu-central-1", "eu-north-1", "eu-south-1",
    "ap-south-1", "ap-southeast-1", "ap-southeast-2", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ca-central-1", "sa-east-1", "me-south-1",
    "af-south-1",
)  # fmt: skip
_PATIENCE_S, _SETTLE_S = 120.0, 20.0
_TYPES = "g5.xlarge, g6.xlarge, g4dn.xlarge, p4d.24xlarge, p5.48xlarge"


def measure() -> list[Figure]:
    """Every region swept and listed, every queue listened to; then the resident memory."""
    with tempfile.TemporaryDirectory(prefix="sp-") as folder, FakeAws(regions=REGIONS) as aws:
        root = Path(folder)
        (root / "policies").mkdir()
        policy = f"candidates: [{{provider: aws, instance_types: [{_TYPES}], regions: [{', '.join(REGIONS)}]}}]\n"
        (root / "policies" / "all.yaml").write_text(policy)
        config = root / "spotd.toml"
        config.write_text(
            f'state_dir = "{root}/state"\nsocket = "{root}/sock"\npolicies_dir = "{root}/policies"\ndeployment = "bench"\nobserve_poll = "5s"\n'
            f'price_poll = "10s"\n\n[providers.aws]\nendpoint_url = "{aws.endpoint}"\n'
        )
        environment = {**os.environ, **{k: v for k, v in aws.environment().items() if k != "AWS_ENDPOINT_URL"}}
        spotd = [sys.executable, "-m", "spotd.cli.main"]
        subprocess.run([*spotd, "aws", "setup", "--no-canary", "--config", str(config)], env=environment, check=True, stdout=subprocess.DEVNULL)
        with (
            (root / "log").open("wb") as log,
            subprocess.Popen([*spotd, "daemon", "--config", str(config)], stdout=log, stderr=log, env=environment) as daemon,
        ):
            try:
                offers = _offers(Client(str(root / "sock")), daemon)
                time.sleep(_SETTLE_S)
                resident_mb = int(Path(f"/proc/{daemon.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
            finally:
                daemon.terminate()
    return [Figure("aws", "resident memory with 20 regions", resident_mb, "MB", "< 150", f"{offers} offers, every region listed and listened to")]


def _offers(client: Client, daemon: subprocess.Popen[bytes]) -> int:
    """How many offers there are once every region has told its prices."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until and daemon.poll() is None:
        try:
            offers = client.get("/v1/offers")["offers"]
        except Failure:
            offers = []
        if {offer["region"] for offer in offers} == set(REGIONS):
            return len(offers)
        time.sleep(0.5)
    raise RuntimeError("not every region told its prices")
