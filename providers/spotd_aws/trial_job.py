"""The job of a self-test: a loop that counts seconds, saves its count, and goes on from the count that was saved. It needs a shell only."""

from __future__ import annotations

from typing import Any

#: So many checkpoints in all, if nothing happens.
_SAVES = 12
CHECKPOINT_DIR = "ckpt"

_SCRIPT = """\
set -eu
total={total} every={every} step=0 saved_at_notice=no
save() {{
  part="$SPOTD_CHECKPOINT_DIR/.part"
  rm -rf "$part"
  mkdir -p "$part"
  echo "$step" > "$part/step"
  sync "$part/step"
  mv "$part" "$SPOTD_CHECKPOINT_DIR/$1"
  printf '{{"checkpoint": "%s", "step": %s}}\\n' "$1" "$step" >> "$SPOTD_PROGRESS_FILE"
  echo "saved step $step"
}}
if [ -n "${{SPOTD_RESUME_FROM:-}}" ]; then
  step=$(cat "$SPOTD_RESUME_FROM/step")
  echo "attempt $SPOTD_ATTEMPT goes on from step $step"
else
  echo "attempt $SPOTD_ATTEMPT begins at step 0"
fi
while [ "$step" -lt "$total" ]; do
  sleep 1
  step=$((step + 1))
  echo "step $step"
  printf '{{"step": %s}}\\n' "$step" >> "$SPOTD_PROGRESS_FILE"
  if [ "$saved_at_notice" = no ] && [ -s "${{SPOTD_NOTICE_FILE:-/nowhere}}" ]; then
    saved_at_notice=yes
    save "step-$step-at-notice"
  elif [ $((step % every)) -eq 0 ]; then
    save "step-$step"
  fi
done
printf '{{"done": true}}\\n' >> "$SPOTD_PROGRESS_FILE"
echo "all $total steps are done"
"""


def job_file(seconds: int) -> dict[str, Any]:
    """A job that takes so long, as a job file's content."""
    return {
        "name": "selftest",
        "policy": "selftest",
        "run": _SCRIPT.format(total=seconds, every=max(1, seconds // _SAVES)),
        "checkpoint": {"dir": CHECKPOINT_DIR},
    }


def policy_file(instance_types: list[str], regions: list[str], cap: str) -> dict[str, Any]:
    """Where it may run, as a policy file's content: on the spot market only, whatever happens."""
    return {
        "candidates": [{"provider": "aws", "instance_types": instance_types, "regions": regions}],
        "spot_handlers": {"max_preemptions": 1000},
        "max_hourly_price": cap,
        "max_wait": "7d",
    }
