"""`spotd explain`: why a job is where it is, and what it waits for."""

from __future__ import annotations

import argparse
from typing import Any

from spotd.cli.arguments import add_verb, client_of
from spotd.cli.output import age, length, offer, or_dash, plain, print_json, print_speeds, print_table, rate, usd, when
from spotd.cli.refusal import job_path

_EXAMPLES = """
spotd explain llama-ft                   the ranking with every factor, what was tried, the reason for waiting
"""


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its place on the command line."""
    parser = add_verb(verbs, "explain", execute, "explain a job's placement: every offer with every factor, tries, cooldowns, holds", _EXAMPLES)
    parser.add_argument("job", metavar="JOB", help="a job's id, the beginning of one, or a name")
    parser.add_argument("-a", "--all", action="store_true", help="every offer, not only the best 15")


def execute(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    answer = client_of(arguments).get(job_path(arguments.job, "/explain"))
    if arguments.json:
        print_json(answer)
        return 0
    job = answer["job"]
    print(f"job {job['id'][:8]} ({plain(job['name'])}): {job['status']}; policy {answer['policy']}")
    for line in _reasons(answer):
        print(f"  {plain(line)}")
    _print_ranking(answer, None if arguments.all else 15)
    _print_rejected(answer["rejected"])
    _print_tries(answer["tries"])
    print_speeds(answer)
    return 0


def _reasons(answer: dict[str, Any]) -> list[str]:
    lines = []
    hold, market, now = answer["hold"], answer["market"], answer["if_placed_now"]
    if hold:
        lines.append(f"now: {hold['why']}: {hold['detail']}" + (f"; next look {when(hold['until'])}" if hold["until"] else ""))
    if market:
        since = f" since {when(market['counted_since'])}" if market["counted_since"] else f" within {length(market['preemption_window_s'])}"
        lines.append(f"market: {market['because']} (counted{since})")
        if market["waited_s"] > 0:
            lines.append(f"waiting: {length(market['waited_s'])} of max_wait {length(market['max_wait_s'])}")
    if now and now["offer"]:
        lines.append(f"placed now it would get {offer(now['offer'])}: {now['because']}")
    elif now and now["why"]:
        lines.append(f"placed now it would get nothing: {now['why']}: {now['detail']}" + (f", until {when(now['until'])}" if now["until"] else ""))
    if answer["return_to_spot"]:
        lines.append(f"back to spot: looked for from {when(answer['return_to_spot'])}")
    if answer["not_before"]:
        lines.append(f"not placed before {when(answer['not_before'])}, after its last error")
    return lines


def _print_ranking(answer: dict[str, Any], most: int | None) -> None:
    ranking = answer["ranking"]
    if not ranking:
        why = "no offer of this policy can be bought now" if answer["policy_loaded"] else "the policy is not loaded: `spotd policy list` says why"
        print(f"\n{why}")
        return
    print("\nranking: cost per useful hour = price x overhead; overhead = 1 + hazard x 0.2 h lost by each reclaim")
    head = ("", "OFFER", "PRICE/H", "SEEN", "SOURCE", "RECLAIMS/H", "PRIOR/H", "OVERHEAD", "COST/USEFUL H", "NOT NOW BECAUSE")
    rows = [
        (
            position,
            offer(entry),
            usd(entry["price_usd_per_hour"]),
            age(entry["seen_at"]),
            or_dash(entry["source"]),
            f"{entry['hazard_per_hour']:.3f}",
            rate(entry["prior_hazard_per_hour"]),
            f"{entry['overhead']:.3f}",
            usd(entry["cost_usd_per_useful_hour"]),
            _not_now(entry),
        )
        for position, entry in enumerate(ranking[:most], start=1)
    ]
    print_table(head, rows, right=("", "PRICE/H", "RECLAIMS/H", "PRIOR/H", "OVERHEAD", "COST/USEFUL H"))
    if most is not None and len(ranking) > most:
        print(f"… and {len(ranking) - most} more: --all")


def _not_now(entry: dict[str, Any]) -> str:
    parts = []
    cooldown = entry["cooldown"]
    if cooldown:
        parts.append(f"cooling down until {when(cooldown['until'])} after {cooldown['cause']} ({cooldown['failures']} in a row)")
    if entry["suspended_until"]:
        parts.append(f"provider suspended until {when(entry['suspended_until'])}")
    if entry["just_reclaimed_there"]:
        parts.append("the job was just reclaimed in this region: comes last")
    return "; ".join(parts)


def _print_rejected(rejected: list[dict[str, Any]]) -> None:
    if not rejected:
        return
    print("\nnot ranked")
    rows = [
        (offer(entry), usd(entry["price_usd_per_hour"]), age(entry["seen_at"]), or_dash(entry["source"]), entry["why"]) for entry in rejected[:30]
    ]
    print_table(("OFFER", "PRICE/H", "SEEN", "SOURCE", "WHY"), rows, right=("PRICE/H",))
    if len(rejected) > 30:
        print(f"… and {len(rejected) - 30} more: --json shows all")


def _print_tries(tries: list[dict[str, Any]]) -> None:
    if not tries:
        return
    print("\ntried")
    rows = [
        (
            t["attempt"],
            t["try"],
            offer(t["offer"]),
            when(t["requested_at"]),
            f"{t['refusal']}: {t['error']}" if t["refusal"] else or_dash((t["ended_by"] and f"ended by {t['ended_by']}") or t["state"]),
            t["because"],
        )
        for t in tries[-20:]
    ]
    print_table(("#", "TRY", "OFFER", "WHEN", "OUTCOME", "CHOSEN BECAUSE"), rows, right=("#", "TRY"))
