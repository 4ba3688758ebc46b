"""User data for EC2: the daemon's boot script, with the instance's own disks made ready before it.

Instance store is fast, free of charge, and comes unformatted (facts/cloud-api.md §2.1): it becomes the agent's directory, where workdir and
checkpoints are. The Deep Learning images mount it themselves; then their mount is used. Without one, or where that fails, the agent's directory
stays on the root disk. It outlives a reboot, and so does what lies on it: a label tells what is made already, and /etc/fstab mounts it again before
the agent's unit starts, which has to be said of a mount with `nofail`. Under a root of its own (tests) no disk is looked for unless `SPOTD_BLOCK`
says where, and no fstab is written unless `SPOTD_FSTAB` says which.
"""

from __future__ import annotations

import gzip

from spotd.core.errors import InvalidRequest

#: Before base64 (facts/cloud-api.md §2.1).
LIMIT = 16 * 1024
_FIRST_LINE = "#!/bin/bash\n"

_DISKS = r"""#!/bin/bash
# Written by spotd: the instance's own disks become the agent's directory.
spotd_disks() {
  local root="${SPOTD_ROOT:-/var/lib/spotd-agent}" block="${SPOTD_BLOCK:-}" fstab="${SPOTD_FSTAB:-}" label=spotd-agent model disk target
  local -a disks=()
  if [ -z "${SPOTD_ROOT:-}" ]; then
    block="${block:-/sys/block}"
    fstab="${fstab:-/etc/fstab}"
  fi
  if [ -z "$block" ] || mountpoint -q "$root"; then return 0; fi
  (umask 077 && mkdir -p -- "$root") || return 1
  if [ -z "${SPOTD_ROOT:-}" ] && mountpoint -q /opt/dlami/nvme; then
    (umask 077 && mkdir -p /opt/dlami/nvme/spotd-agent) && mount --bind /opt/dlami/nvme/spotd-agent "$root" || return 1
    echo "/opt/dlami/nvme/spotd-agent $root none bind,nofail,x-systemd.after=dlami-nvme.service,x-systemd.before=spotd-agent.service 0 0" >>"$fstab"
    return
  fi
  # Made before a reboot: what lies on it is still wanted.
  target="$(blkid -L "$label" 2>/dev/null)"
  if [ -z "$target" ]; then
    for model in "$block"/nvme*/device/model; do
      [ -f "$model" ] || continue
      disk="${model%/device/model}"
      if grep -q '^Amazon EC2 NVMe Instance Storage' "$model" && [ -z "$(ls -A "$disk/holders" 2>/dev/null)" ]; then
        disks+=("/dev/${disk##*/}")
      fi
    done
    case "${#disks[@]}" in
      0) return 0 ;;
      1) target="${disks[0]}" ;;
      *)
        target=/dev/md/spotd
        mdadm --create "$target" --run --quiet --level=0 --raid-devices="${#disks[@]}" "${disks[@]}" || return 1
        ;;
    esac
    # -F: the whole device, not a partition; one that is in use is refused all the same.
    mkfs.ext4 -q -F -L "$label" -E nodiscard "$target" || return 1
  fi
  mount -o noatime "$target" "$root" || return 1
  chmod 700 "$root"
  if [ -n "$fstab" ] && ! grep -q "^LABEL=$label " "$fstab" 2>/dev/null; then
    echo "LABEL=$label $root ext4 noatime,nofail,x-systemd.before=spotd-agent.service 0 2" >>"$fstab"
  fi
}
if ! spotd_disks; then
  echo "spotd boot: the instance's own disks cannot be used; the root disk is" >&2
fi
"""


def for_ec2(script: str) -> str | bytes:
    """The whole user data: text, or gzip (which cloud-init unpacks) where text would be too long. InvalidRequest for more than EC2 takes."""
    whole = _DISKS + script.removeprefix(_FIRST_LINE)
    raw = whole.encode()
    if len(raw) <= LIMIT:
        return whole
    packed = gzip.compress(raw, mtime=0)
    if len(packed) <= LIMIT:
        return packed
    raise InvalidRequest(f"the boot script has {len(packed)} bytes even when packed; EC2 takes {LIMIT}", "InvalidUserData.Malformed", "user_data")
