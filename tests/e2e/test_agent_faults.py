"""Real agents under `kill -9`, lost answers, absent daemons and hostile stores."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotd.node import procfs
from tests.unit.node.fakes import until
from tests.unit.node.world import World, instance

COUNT = """
save() { mkdir -p ckpt/$1; echo $1 > ckpt/$1/w; echo "{\\"checkpoint\\": \\"$1\\", \\"step\\": $1}" >> $SPOTD_PROGRESS_FILE; }
echo $$ >> pids
for i in $(seq 1 1000); do
  [ -e finish ] && exit 0
  [ -e save ] && rm save && save $i
  [ -e $SPOTD_NOTICE_FILE ] && [ -e slow ] && sleep 2 && save $i && sleep 60
  sleep 0.05
done
"""


@pytest.fixture(name="world")
def _world(tmp_path: Path) -> Iterator[World]:
    with instance(tmp_path) as world:
        world.daemon.spec.update(run=COUNT, watch="imds")
        yield world


def _numbers_are_consistent(world: World) -> None:
    """Nothing was said twice with another number, and no number had two contents."""
    said: dict[int, str] = {}
    for message in world.daemon.received:
        content = json.dumps({key: value for key, value in message.items() if key != "age_s"}, sort_keys=True)
        assert said.setdefault(message["seq"], content) == content
    assert sorted(said) == list(range(1, len(said) + 1))
    assert len({json.dumps({**json.loads(text), "seq": 0}) for text in said.values()}) == len(said)


def test_the_death_of_the_agent_does_not_touch_the_job(world: World) -> None:
    """After kill -9 the next agent adopts the same process, commits what was saved meanwhile, and says everything once."""
    world.agent()
    world.message("started")
    shim = world.shim()
    (world.work / "save").touch()
    world.message("checkpoint")
    for _ in range(2):
        world.kill_agent()
        (world.work / "save").touch()
        until(lambda: not (world.work / "save").exists())
        world.agent()
    until(lambda: len(world.daemon.of_type("checkpoint")) >= 2)
    (world.work / "finish").touch()

    assert world.message("exited")["code"] == 0
    assert world.shim() == shim
    assert len((world.work / "pids").read_text().split()) == 1
    assert len(world.daemon.of_type("started")) == 1
    _numbers_are_consistent(world)


def test_an_exit_while_no_agent_lived_is_reported(world: World) -> None:
    """The shim wrote how the job ended; the next agent commits the last tree and reports it."""
    world.agent()
    world.message("started")
    world.kill_agent()
    (world.work / "ckpt/w").write_text("last")
    (world.work / "finish").touch()
    until((world.root / "run/exit.json").exists)
    world.agent()

    assert (world.message("exited")["code"], world.message("checkpoint")["trigger"]) == (0, "exit")
    _numbers_are_consistent(world)


def test_a_drain_in_progress_is_continued(world: World) -> None:
    """Kill -9 between notice and save: the next agent waits for the same save and reports one drain with the first one's start."""
    world.agent()
    world.message("started")
    (world.work / "slow").touch()
    world.imds.reclaim(30)
    world.message("notice")
    time.sleep(0.5)
    world.kill_agent()
    world.agent()
    drained = world.message("drained")

    assert drained["saved"] is True
    assert drained["seconds_used"] >= 2
    assert drained["seconds_given"] > 25
    assert len(world.daemon.of_type("notice")) == 1
    _numbers_are_consistent(world)


def test_a_killed_shim_is_a_crash_and_leaves_nothing(world: World) -> None:
    """Kill -9 of the shim: what it owned is ended, also what fled into another session or emptied its environment; exited by signal 9."""
    world.daemon.spec["run"] = "setsid sleep 61 & env -i setsid sleep 62 & env -i sleep 63 & echo ok > ckpt/flag; wait"
    world.agent()
    world.message("started")
    until((world.work / "ckpt/flag").exists)
    time.sleep(2.5)  # the agent looks at the tree every two seconds
    tree = {pid: procfs.start_time(pid) or 0 for pid in procfs.descendants(world.shim())}
    assert len(tree) >= 4
    os.kill(world.shim(), signal.SIGKILL)
    exited = world.message("exited")

    assert (exited["code"], exited["signal"], exited["done"]) == (None, 9, False)
    assert [pid for pid, started in tree.items() if procfs.is_running(pid, started)] == []


def test_a_tree_that_forks_away_is_ended_whole(world: World) -> None:
    """While the shim lives, a process that left session, group and environment behind is still its own to end."""
    world.daemon.spec["run"] = "env -i setsid bash -c 'trap \"\" TERM; sleep 64 & while :; do sleep 1; done' & sleep 65"
    world.agent()
    world.message("started")
    until(lambda: len(procfs.descendants(world.shim())) >= 5)
    tree = {pid: procfs.start_time(pid) or 0 for pid in procfs.descendants(world.shim())}
    world.daemon.stop = "ended"

    until(lambda: not any(procfs.is_running(pid, started) for pid, started in tree.items()))


def test_lost_answers_cost_nothing(world: World) -> None:
    """Bootstrap, syncs, logs and the manifest take effect and their answers are lost: the same nonce, numbers and checkpoint."""
    world.daemon.lose = 3
    lost: list[str] = []

    def refuse(path: str) -> int | None:
        if path.endswith("/manifest") and not lost:
            lost.append(path)
            return -1
        return None

    world.daemon.refuse_put = refuse
    world.agent()
    world.message("started")
    (world.work / "save").touch()
    world.message("checkpoint")
    world.daemon.lose = 3
    (world.work / "finish").touch()
    world.message("exited")

    assert lost == ["/o/00003-000001/manifest"]
    assert [message["sequence"] for message in world.daemon.of_type("checkpoint")] == [1]
    assert world.daemon.puts.count("/o/00003-000001/manifest") == 0  # written once, by the request whose answer was lost
    _numbers_are_consistent(world)


def test_a_sequence_that_is_taken_is_passed_over(world: World) -> None:
    """A manifest that is not ours has the number: 412 to our first PUT burns it, and nothing of theirs is overwritten or claimed."""
    world.daemon.objects["/o/00003-000001/manifest"] = b"{}"
    world.agent()
    world.message("started")
    (world.work / "save").touch()

    assert world.message("checkpoint")["sequence"] == 2
    assert world.daemon.objects["/o/00003-000001/manifest"] == b"{}"


def test_an_absent_daemon_stops_neither_job_nor_uploads(world: World) -> None:
    """With the API away and the store there, checkpoints go on with the addresses in hand; later everything is heard in order."""
    world.agent()
    world.message("started")
    until(lambda: len(world.daemon.syncs) > 2)
    world.daemon.down = True
    (world.work / "save").touch()
    until(lambda: len(world.daemon.manifests()) == 1)
    (world.work / "save").touch()
    until(lambda: len(world.daemon.manifests()) == 2)
    (world.work / "finish").touch()
    until((world.root / "run/exit.json").exists)
    world.daemon.down = False
    world.message("exited")

    said = [message["type"] for message in world.daemon.messages]
    assert [said[0], *sorted(said[1:3]), *said[3:]] == ["ready", "checkpoint", "started", "checkpoint", "exited"]
    _numbers_are_consistent(world)


def test_a_store_that_fails_is_tried_again(world: World) -> None:
    """500 and 403 to objects: repeated with back-off until they are taken; the manifest comes last all the same."""
    left = [500, 403, 500]
    world.daemon.refuse_put = lambda path: left.pop() if left and not path.endswith("/manifest") else None
    world.agent()
    world.message("started")
    (world.work / "save").touch()
    world.message("checkpoint")

    assert [path.rsplit("/", 1)[1] for path in world.daemon.puts] == ["0", "manifest"]


def test_a_second_agent_keeps_away(world: World) -> None:
    """Two agents in one root would say two truths: the second leaves with code 4."""
    world.agent()
    world.message("started")

    assert world.agent().wait(10) == 4


def test_metadata_faults_do_not_hide_a_reclaim(world: World) -> None:
    """Tokens that die at once, then 503 for a while: the agent goes on asking, says so, and sees the notice when it is there."""
    world.imds.token_uses = 1
    world.agent()
    world.message("started")
    world.imds.status = 503
    until(lambda: "reclaims may go unseen" in world.errors())
    world.imds.status = None
    world.imds.reclaim(30)

    assert world.message("notice", 5)["kind"] == "reclaim"
