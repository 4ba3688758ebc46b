"""A hunt for processes that one look can miss."""

from __future__ import annotations

import subprocess

from spotd_local import processes


def test_a_process_that_one_look_misses_is_ended_all_the_same() -> None:
    """In the middle of exec a process shows no environment: a look that finds nobody is not the last one."""
    victim = subprocess.Popen(["sleep", "60"])
    looks = [set[int](), {victim.pid}]

    processes.end_all(lambda: looks.pop(0) if looks else set())

    assert victim.wait(5) == -9
    assert looks == []
