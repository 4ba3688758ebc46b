"""User data for EC2: the daemon's boot script, with the instance's own disks made ready before it.

Instance store is fast, free of charge, and comes unformatted (facts/cloud-api.md §2.1): it becomes the agent's directory, where workdir and
checkpoints are. The Deep Learning images mount it themselves; then their mount is used. Without one, or where that fails, the agent's directory
stays on the root disk. Under a root of its own (tests) nothing is looked for unless `SPOTD_BLOCK` says where.
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
  local root="${SPOTD_ROOT:-/var/lib/spotd-agent}" block="${SPOTD_BLOCK:-}" model disk target
  local -a disks=()
  if [ -z "$block" ]; then
    if [ -n "${SPOTD_ROOT:-}" ]; then return 0; fi
    block=/sys/block
  fi
  if mountpoint -q "$root"; then return 0; fi
  mkdir -p -- "$root" || return 1
  if [ -z "${SPOTD_ROOT:-}" ] && mountpoint -q /opt/dlami/nvme; then
    mkdir -p -m 700 /opt/dlami/nvme/spotd-agent && mount --bind /opt/dlami/nvme/spotd-agent "$root"
    return
  fi
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
  mkfs.ext4 -q -F -E nodiscard "$target" && mount -o noatime "$target" "$root" && chmod 700 "$root"
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
