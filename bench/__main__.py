"""`python -m bench [PART …]`: measure, print the table, and write docs/benchmarks.md and docs/benchmarks.json."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bench import daemon, planning, reaction, regions, simulation, sweep
from bench.figures import Figure, table

PARTS: Mapping[str, Callable[[], list[Figure]]] = {
    "planning": planning.measure,
    "daemon": daemon.measure,
    "reaction": reaction.measure,
    "simulation": simulation.measure,
    "sweep": sweep.measure,
    "aws": regions.measure,
}
_DOCS = Path(__file__).resolve().parent.parent / "docs"
_PACKAGES = ("spotd", "pydantic", "sqlalchemy", "aiohttp", "apscheduler", "tenacity", "cryptography", "numpy", "boto3")


def _machine() -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    models = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": f"{os.cpu_count()} x {models[0] if models else platform.machine()}",
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load before": f"{os.getloadavg()[0]:.1f}",
        "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
        **{name: version(name) for name in _PACKAGES},
    }


def _page(machine: Mapping[str, str], figures: list[Figure]) -> str:
    about = "\n".join(f"| {name} | {value} |" for name, value in machine.items())
    missed = _MISSED.read_text() if _MISSED.exists() else ""
    return (
        "# Benchmarks\n\nWritten by `make bench`; figures as they were seen on the machine below. "
        "What is fast is shown here and not asserted by a test.\n\n"
        f"{table(figures)}\n\n{missed}\n## Machine\n\n| | |\n|---|---|\n{about}\n"
    )


#: Written by hand: for each aim that was missed, the profile that shows why.
_MISSED = _DOCS / "benchmarks-notes.md"


def main() -> int:
    """Measure the named parts, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"which parts: {', '.join(PARTS)} (default: all, and the page is written)")
    chosen = parser.parse_args().parts or list(PARTS)
    unknown = set(chosen) - set(PARTS)
    if unknown:
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    machine = _machine()
    figures: list[Figure] = []
    for part in chosen:
        print(f"measuring {part} …", file=sys.stderr, flush=True)
        figures += PARTS[part]()
    print(table(figures))
    if len(chosen) == len(PARTS):
        (_DOCS / "benchmarks.md").write_text(_page(machine, figures))
        (_DOCS / "benchmarks.json").write_text(json.dumps({"machine": machine, "figures": [asdict(f) for f in figures]}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
