"""The instance's own disks, made ready by the real script under a scratch root; what would touch a machine is a stand-in that notes its call."""

from __future__ import annotations

import gzip
import os
import random
import subprocess
from pathlib import Path

import pytest

from spotd.core.errors import InvalidRequest
from spotd_aws.user_data import LIMIT, for_ec2

SCRIPT = '#!/bin/bash\nset -e\necho "the agent starts in $SPOTD_ROOT"\n'
INSTANCE_STORE = "Amazon EC2 NVMe Instance Storage              \n"
EBS = "Amazon Elastic Block Store              \n"

_STAND_IN = """\
#!/bin/bash
name="${0##*/}"
printf '%s' "$name" >>"$CALLS"; printf ' %s' "$@" >>"$CALLS"; echo >>"$CALLS"
if [ -e "$FAKES/$name.fails" ]; then exit 1; fi
case "$name" in
  mountpoint) [ -e "$FAKES/mounted" ] ;;
  blkid) [ -e "$FAKES/labelled" ] && cat "$FAKES/labelled" ;;
  mkfs.ext4) for last; do :; done; echo "$last" >"$FAKES/labelled" ;;
  mount) touch "$FAKES/mounted" ;;
esac
"""


class Machine:
    """A scratch root, disks as /sys/block shows them, and stand-ins for the tools."""

    def __init__(self, directory: Path) -> None:
        self.root, self._block, self._fakes = directory / "agent", directory / "block", directory / "fakes"
        self.fstab, self._calls = directory / "fstab", directory / "calls"
        self._block.mkdir()
        self._fakes.mkdir()
        for name in ("mountpoint", "blkid", "mdadm", "mkfs.ext4", "mount"):
            tool = self._fakes / name
            tool.write_text(_STAND_IN)
            tool.chmod(0o755)
        self.disk("nvme0n1", EBS)

    def disk(self, name: str, model: str, holder: str = "") -> None:
        """Plug a disk in; `holder` is what has claimed it."""
        (self._block / name / "device").mkdir(parents=True)
        (self._block / name / "device" / "model").write_text(model)
        (self._block / name / "holders").mkdir()
        if holder:
            (self._block / name / "holders" / holder).touch()

    def breaks(self, tool: str) -> None:
        """The tool fails from now on."""
        (self._fakes / f"{tool}.fails").touch()

    def reboots(self) -> None:
        """Nothing is mounted any more; what is on the disks stays."""
        (self._fakes / "mounted").unlink(missing_ok=True)

    def boots(self, *, looks: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the user data; without `looks` nobody says where disks are."""
        environment = {
            "PATH": f"{self._fakes}:{os.environ['PATH']}",
            "CALLS": str(self._calls),
            "FAKES": str(self._fakes),
            "SPOTD_ROOT": str(self.root),
        }
        if looks:
            environment |= {"SPOTD_BLOCK": str(self._block), "SPOTD_FSTAB": str(self.fstab)}
        self._calls.write_text("")
        whole = for_ec2(SCRIPT)
        assert isinstance(whole, str)
        return subprocess.run(["bash", "-c", whole], env=environment, capture_output=True, text=True, timeout=20, check=False)

    @property
    def changes(self) -> list[str]:
        """The calls of the last boot that change something."""
        return [line for line in self._calls.read_text().splitlines() if line.split()[0] in {"mdadm", "mkfs.ext4", "mount"}]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """One with a root disk and nothing else."""
    return Machine(tmp_path)


def _started(ran: subprocess.CompletedProcess[str], machine: Machine) -> bool:
    return ran.returncode == 0 and ran.stdout == f"the agent starts in {machine.root}\n"


def test_without_instance_store_the_root_disk_is_used(machine: Machine) -> None:
    """EBS volumes are NVMe devices as well and are left alone; the agent starts."""
    assert _started(machine.boots(), machine)
    assert machine.changes == []


def test_one_disk_is_formatted_and_mounted(machine: Machine) -> None:
    """A single instance store disk needs no stripe."""
    machine.disk("nvme1n1", INSTANCE_STORE)
    assert _started(machine.boots(), machine)
    assert machine.changes == ["mkfs.ext4 -q -F -L spotd-agent -E nodiscard /dev/nvme1n1", f"mount -o noatime /dev/nvme1n1 {machine.root}"]
    assert machine.fstab.read_text() == f"LABEL=spotd-agent {machine.root} ext4 noatime,nofail,x-systemd.before=spotd-agent.service 0 2\n"
    assert machine.root.stat().st_mode & 0o777 == 0o700


def test_several_disks_are_striped(machine: Machine) -> None:
    """All of those that nobody has claimed, as one."""
    for name in ("nvme1n1", "nvme2n1", "nvme3n1"):
        machine.disk(name, INSTANCE_STORE, holder="dm-0" if name == "nvme3n1" else "")
    assert _started(machine.boots(), machine)
    assert machine.changes == [
        "mdadm --create /dev/md/spotd --run --quiet --level=0 --raid-devices=2 /dev/nvme1n1 /dev/nvme2n1",
        "mkfs.ext4 -q -F -L spotd-agent -E nodiscard /dev/md/spotd",
        f"mount -o noatime /dev/md/spotd {machine.root}",
    ]


def test_a_second_run_changes_nothing(machine: Machine) -> None:
    """User data may run again at any time: what is mounted stays as it is."""
    machine.disk("nvme1n1", INSTANCE_STORE)
    machine.boots()
    assert _started(machine.boots(), machine)
    assert machine.changes == []


def test_a_reboot_keeps_what_lies_on_the_disks(machine: Machine) -> None:
    """Instance store outlives a reboot: it is mounted again, never formatted again, and stands in fstab once."""
    machine.disk("nvme1n1", INSTANCE_STORE)
    machine.disk("nvme2n1", INSTANCE_STORE)
    machine.boots()
    machine.reboots()
    assert _started(machine.boots(), machine)
    assert machine.changes == [f"mount -o noatime /dev/md/spotd {machine.root}"]
    assert len(machine.fstab.read_text().splitlines()) == 1


@pytest.mark.parametrize("tool", ["mdadm", "mkfs.ext4", "mount"])
def test_a_failure_is_said_and_not_fatal(machine: Machine, tool: str) -> None:
    """The agent then starts on the root disk, and the console says so."""
    machine.disk("nvme1n1", INSTANCE_STORE)
    machine.disk("nvme2n1", INSTANCE_STORE)
    machine.breaks(tool)
    ran = machine.boots()
    assert _started(ran, machine)
    assert "the root disk is" in ran.stderr
    assert machine.changes[-1].startswith(tool)
    assert not machine.fstab.exists()


def test_under_a_root_of_its_own_no_disk_is_looked_for(machine: Machine) -> None:
    """Tests and the local machine's users keep their disks: where SPOTD_ROOT is set, only SPOTD_BLOCK makes the script look."""
    machine.disk("nvme1n1", INSTANCE_STORE)
    assert _started(machine.boots(looks=False), machine)
    assert machine.changes == []


def test_the_script_itself_is_unchanged() -> None:
    """All of the daemon's script is in it, behind one first line."""
    whole = for_ec2(SCRIPT)
    assert isinstance(whole, str)
    assert whole.endswith(SCRIPT.removeprefix("#!/bin/bash\n"))
    assert whole.startswith("#!/bin/bash\n")
    assert whole.count("#!/bin/bash") == 1


def test_what_is_too_long_is_packed() -> None:
    """cloud-init unpacks gzip; the same script gives the same bytes, or a repeated call would not be the same request."""
    long = SCRIPT + "# it goes on and on\n" * 1000
    packed = for_ec2(long)
    assert isinstance(packed, bytes)
    assert len(packed) <= LIMIT
    assert gzip.decompress(packed).decode().endswith(long.removeprefix("#!/bin/bash\n"))
    assert packed == for_ec2(long)


def test_what_is_too_long_even_when_packed_is_refused() -> None:
    """With a sentence, and without a word of the script: it holds a credential."""
    dice = random.Random(1)
    noise = "".join(dice.choice("0123456789abcdefghijklmnopqrstuvwxyz") for _ in range(3 * LIMIT))
    with pytest.raises(InvalidRequest, match=r"16384") as refused:
        for_ec2(f"{SCRIPT}# {noise}\n")
    assert noise[:20] not in str(refused.value)
    assert refused.value.field == "user_data"
