"""What a wheel of spotd holds: all that runs, all that ops copy, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

import spotd

CHECKOUT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not (CHECKOUT / "providers").is_dir(), reason="A wheel is built from a checkout, and these tests run without one.")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The wheel of this checkout, built as `make wheel-test` builds it."""
    directory = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    (path,) = directory.glob("spotd-*.whl")
    with zipfile.ZipFile(path) as wheel:
        yield wheel


def _files(*directories: str) -> set[str]:
    """Every file below these directories of the checkout, by its path from there, but for what Python compiles."""
    below = (path for directory in directories for path in (CHECKOUT / directory).rglob("*") if path.is_file())
    return {str(path.relative_to(CHECKOUT)) for path in below if path.suffix not in {".pyc", ".pyo"}}


def test_packages_are_whole(wheel: zipfile.ZipFile) -> None:
    """Every file of the packages is in the wheel, migrations and data included, providers stand beside spotd, and the demo has its trainer."""
    wanted = {path.removeprefix("providers/") for path in _files("spotd", "providers")} | {"spotd/demo/train.py"}
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name and ".data/" not in name}
    assert shipped == wanted


def test_policies_and_units_are_shared(wheel: zipfile.ZipFile) -> None:
    """Policy files and the unit go where `spotd install` finds them: share/spotd of the environment."""
    prefix = f"spotd-{spotd.__version__}.data/data/share/spotd/"
    shipped = {name.removeprefix(prefix) for name in wheel.namelist() if name.startswith(prefix)}
    assert shipped == _files("policies", "systemd")
    assert {"systemd/spotd.service", "systemd/spotd.sysusers", "systemd/spotd.tmpfiles"} <= shipped


def test_the_command_and_the_local_provider_are_found(wheel: zipfile.ZipFile) -> None:
    """The wheel names the command `spotd` and the provider `local`, by which the daemon finds it."""
    parser = ConfigParser()
    parser.read_string(wheel.read(f"spotd-{spotd.__version__}.dist-info/entry_points.txt").decode())
    assert dict(parser["console_scripts"]) == {"spotd": "spotd.cli.main:main"}
    assert parser["spotd.providers"]["local"] == "spotd_local:build"
