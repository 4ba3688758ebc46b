"""Makes the shipped market file from the recorded traces: `python -m spotd_local.convert TRACES OUT.json.gz`.

Run once, by hand, when the recording changes; the result is package data. Only files may be read here whose licence
allows that (`data/SOURCE.md`).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
from pathlib import Path

from spotd_local.market import encode

TYPE = "p3.2xlarge"
SET = "aws-02-15-2023"
FIRST_SAMPLE = "2023-02-15T22:08:16Z"


def convert(traces: Path) -> dict[str, object]:
    """The nine-zone V100 set and its aligned prices as a market document."""
    prices = json.loads(gzip.decompress((traces / "skynomad" / "v100_spot_prices_aligned.json.gz").read_bytes()))
    zones: dict[str, object] = {}
    regions: set[str] = set()
    gap, samples = 0, 0
    for name in sorted(prices):
        availability = json.loads((traces / "spot-traces/availability/1-node" / SET / f"{name}.json").read_text())
        gap, samples = availability["metadata"]["gap_seconds"], len(availability["data"])
        zone = name.removesuffix("_v100_1")
        region = zone[:-1]
        regions.add(region)
        zones[zone] = {
            "region": region,
            "available": encode(availability["data"]),
            "price": {TYPE: encode([str(price) for price in prices[name]])},
        }
    return {
        "format": 1,
        "name": "v100-2023-02",
        "first_sample": FIRST_SAMPLE,
        "gap_seconds": gap,
        "samples": samples,
        "types": [TYPE],
        "on_demand": {region: {TYPE: _on_demand(traces, region)} for region in sorted(regions)},
        "zones": zones,
    }


def _on_demand(traces: Path, region: str) -> str:
    """The last on-demand price of the region seen before the first sample."""
    with gzip.open(traces / "prices/aws_gpu_ondemand_price_changes_2022-12_2024-05.csv.gz", "rt") as lines:
        rows = [r for r in csv.DictReader(lines) if (r["instance_type"], r["region"]) == (TYPE, region)]
    known = [r for r in rows if r["observed_at"] <= FIRST_SAMPLE]
    return str(max(known, key=lambda r: r["observed_at"])["ondemand_usd_h"])


def main() -> None:
    """Read the traces, write the market file: byte for byte the same from the same traces."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    document = json.dumps(convert(arguments.traces), separators=(",", ":"))
    arguments.out.write_bytes(gzip.compress(document.encode(), mtime=0))


if __name__ == "__main__":
    main()
