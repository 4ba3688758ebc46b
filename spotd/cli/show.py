"""`spotd show`: one job with everything that is known of it."""

from __future__ import annotations

import argparse
from typing import Any

from spotd.cli.arguments import add_verb, client_of
from spotd.cli.output import age, length, offer, or_dash, print_json, print_pairs, print_speeds, print_table, size, usd, when
from spotd.cli.refusal import job_path

_EXAMPLES = """
spotd show llama-ft                      the newest job of that name
spotd show 3f2a9c1e --json | jq .spend_usd
"""


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its place on the command line."""
    parser = add_verb(verbs, "show", execute, "show a job: attempts, instances, checkpoints, policy, cost so far", _EXAMPLES)
    parser.add_argument("job", metavar="JOB", help="a job's id, the beginning of one, or a name")


def execute(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    answer = client_of(arguments).get(job_path(arguments.job))
    if arguments.json:
        print_json(answer)
        return 0
    _print_job(answer)
    _print_attempts(answer)
    _print_tries(answer)
    _print_checkpoints(answer)
    _print_policy(answer["policy"])
    print_speeds(answer)
    return 0


def _print_job(answer: dict[str, Any]) -> None:
    job, spec = answer["job"], answer["spec"]
    hold = job["hold"]
    spend = usd(answer["spend_usd"]) + ("" if answer["spend_complete"] else " (instances of a provider that is not configured are not counted)")
    print_pairs(
        [
            ("job", f"{job['name']}  {job['id']}"),
            ("status", job["status"] + (f": {job['detail']}" if job["detail"] else "")),
            ("now", f"{hold['why']}: {hold['detail']}" + (f", until {when(hold['until'])}" if hold["until"] else "") if hold else None),
            ("where", offer(job["where"]) + f" at {usd(job['where']['price_usd_per_hour'])}/h" if job["where"] else None),
            ("owner", job["owner"]),
            ("policy", job["policy"]),
            ("labels", ", ".join(f"{k}={v}" for k, v in job["labels"].items())),
            ("submitted", when(job["submitted_at"])),
            ("finished", when(job["finished_at"]) if job["finished_at"] else None),
            ("cancelled", when(job["cancel_requested_at"]) if job["cancel_requested_at"] else None),
            ("run", spec["run"]),
            ("setup", spec["setup"]),
            ("disk", f"{spec['disk_gb']} GB" if spec["disk_gb"] else None),
            ("env", " ".join(f"{k}={v}" for k, v in spec["env"].items())),
            ("step", job["step"]),
            ("saved step", job["checkpoint_step"]),
            ("preemptions", job["preemptions"] or None),
            ("errors", f"{job['errors']} of {spec['retries']['on_error']} retries used" if job["errors"] else None),
            ("cost so far", spend),
        ]
    )


def _print_attempts(answer: dict[str, Any]) -> None:
    if not answer["attempts"]:
        return
    print("\nattempts")
    head = ("#", "FOR", "MARKET", "STATE", "ENDED AS", "RESUMED AT", "STEP", "SAVED", "RAN", "DETAIL")
    rows = [
        (
            a["number"],
            a["purpose"],
            or_dash(a["market"]),
            a["state"],
            or_dash(a["reason"]),
            or_dash(a["resumed_step"]),
            or_dash(a["step"]),
            or_dash(a["checkpoint_step"]),
            _ran(a),
            _detail(a),
        )
        for a in answer["attempts"]
    ]
    print_table(head, rows, right=("#", "RESUMED AT", "STEP", "SAVED"))


def _ran(attempt: dict[str, Any]) -> str:
    if not attempt["started_at"]:
        return "-"
    if not attempt["ended_at"]:
        return age(attempt["started_at"]).removesuffix(" ago")
    return length(_between(attempt["started_at"], attempt["ended_at"]))


def _between(start: str, end: str) -> float:
    from datetime import datetime

    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def _detail(attempt: dict[str, Any]) -> str:
    parts = [attempt["detail"]] if attempt["detail"] else []
    if attempt["saved"] is not None and attempt["seconds_used"] is not None:
        given = f" of {length(attempt['seconds_given'])}" if attempt["seconds_given"] is not None else ""
        parts.append(f"{'saved' if attempt['saved'] else 'NOT saved'} in {length(attempt['seconds_used'])}{given}")
    if attempt["exit_code"] is not None:
        parts.append(f"exit code {attempt['exit_code']}")
    return "; ".join(parts)


def _print_tries(answer: dict[str, Any]) -> None:
    if not answer["instances"]:
        return
    print("\ninstances (one row for each launch request)")
    head = ("#", "TRY", "OFFER", "PRICE/H", "STATE", "REQUESTED", "COST", "WHAT CAME OF IT")
    rows = [
        (
            i["attempt"],
            i["try"],
            offer(i["offer"]),
            usd(i["price_usd_per_hour"]),
            i["state"],
            age(i["requested_at"]),
            usd(i["spend_usd"]),
            _came_of(i),
        )
        for i in answer["instances"]
    ]
    print_table(head, rows, right=("#", "TRY", "PRICE/H", "COST"))
    made = [i for i in answer["instances"] if i["details"] and i["state"] != "gone"] or [i for i in answer["instances"] if i["details"]][-1:]
    if made:
        print("\nmachines, as the provider made them")
        print_pairs([(i["provider_id"], ", ".join(f"{name} {value}" for name, value in i["details"].items())) for i in made])


def _came_of(instance: dict[str, Any]) -> str:
    if instance["refusal"]:
        return f"{instance['refusal']}: {instance['error']}"
    notice = instance["notice"]
    parts = [f"{notice['kind']} announced by {notice['source']}"] if notice else []
    if instance["ended_by"]:
        parts.append(f"ended by {instance['ended_by']}")
    elif instance["terminate_because"]:
        parts.append(f"being ended: {instance['terminate_because']}")
    return "; ".join(parts) or or_dash(instance["error"])


def _print_checkpoints(answer: dict[str, Any]) -> None:
    found = answer["checkpoints"]
    if not found:
        return
    shown = found[-5:]
    print(f"\ncheckpoints ({len(found)}{', the newest 5' if len(found) > 5 else ''})")
    head = ("CHECKPOINT", "STEP", "FILES", "SIZE", "COMMITTED", "BECAUSE")
    rows = [(c["id"], or_dash(c["step"]), c["files"], size(c["size_bytes"]), when(c["committed_at"]), c["trigger"]) for c in reversed(shown)]
    print_table(head, rows, right=("STEP", "FILES", "SIZE"))


def _print_policy(policy: dict[str, Any] | None) -> None:
    print("\npolicy, as it is now")
    if policy is None:
        print("not loaded: `spotd policy list` says why")
        return
    handlers = policy["spot_handlers"]
    back = policy["return_to_spot_after_s"]
    fallback = f", as {handlers['fallback_node']}" if handlers["fallback_node"] else ""
    print_pairs(
        [
            *(("candidates", f"{c['provider']}: {', '.join(c['instance_types'])} in {', '.join(c['regions'])}") for c in policy["candidates"]),
            (
                "on-demand after",
                f"{handlers['max_preemptions']} preemptions{fallback}",
            ),
            ("back to spot", f"after {length(back)}" if back is not None else "never"),
            ("price cap", f"{usd(policy['max_hourly_price_usd'])}/h" if policy["max_hourly_price_usd"] else None),
            ("waits for spot", length(policy["max_wait_s"])),
            ("hook", handlers["pre_reclaim_hook"]),
            ("profile", policy["instance_profile"]),
        ]
    )
