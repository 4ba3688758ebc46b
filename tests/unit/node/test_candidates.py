"""Which checkpoints are committed, by a stepped clock."""

from __future__ import annotations

from spotd.node.candidates import Candidates
from spotd.node.progress import Announcement


def test_the_newest_announcement_wins() -> None:
    """What was announced while another was uploaded is next; what it overtook is never committed."""
    candidates = Candidates()
    candidates.announced(Announcement(1, "a", 10), 0.0)
    first = candidates.next(0.0)
    assert first is not None
    candidates.announced(Announcement(2, "b", 20), 1.0)
    candidates.announced(Announcement(3, "c", 30), 2.0)
    candidates.settled(first)
    second = candidates.next(2.0)
    assert second is not None
    candidates.settled(second)

    assert (first.name, second.name, second.step, candidates.next(9.0)) == ("a", "c", 30, None)


def test_a_quiet_tree_of_a_job_that_announces_is_no_checkpoint() -> None:
    """Who announces is believed, and only then."""
    candidates = Candidates()
    candidates.announced(Announcement(1, "a", 10), 0.0)
    found = candidates.next(0.0)
    assert found is not None
    candidates.settled(found)
    candidates.scanned("other", 1.0, writer=False)
    candidates.end("exit", 100.0, succeeded=True)

    assert candidates.next(200.0) is None


def test_five_quiet_seconds_without_a_writer_make_a_checkpoint() -> None:
    """Every change and every sight of a writer starts the five seconds anew."""
    candidates = Candidates()
    candidates.scanned("s1", 0.0, writer=False)
    candidates.scanned("s2", 4.0, writer=False)
    candidates.scanned("s2", 8.0, writer=True)
    assert candidates.next(12.9) is None
    found = candidates.next(13.0)

    assert found is not None
    assert (found.trigger, found.name, found.signature) == ("quiet", None, "s2")
    candidates.settled(found)
    assert candidates.next(99.0) is None


def test_death_completes_nothing() -> None:
    """A tree that was being written when its writer died is not committed, however long it lies still afterwards."""
    candidates = Candidates()
    candidates.scanned("half", 10.0, writer=False)
    candidates.end("exit", 12.0, succeeded=False)

    assert candidates.next(1000.0) is None


def test_a_tree_at_rest_before_a_crash_is_committed() -> None:
    """The crash came later and did not touch it."""
    candidates = Candidates()
    candidates.scanned("whole", 10.0, writer=False)
    candidates.end("notice", 15.0, succeeded=False)
    found = candidates.next(15.0)

    assert found is not None
    assert found.trigger == "notice"


def test_success_completes_the_tree() -> None:
    """After exit 0 the tree is complete as it is."""
    candidates = Candidates()
    candidates.scanned("whole", 10.0, writer=False)
    candidates.end("exit", 10.0, succeeded=True)

    assert candidates.next(10.0) is not None


def test_what_was_there_before_is_no_checkpoint() -> None:
    """The restored tree is settled from the beginning, an empty one never counts."""
    candidates = Candidates(settled_signature="restored")
    candidates.scanned("restored", 1.0, writer=False)
    assert candidates.next(100.0) is None
    candidates.scanned("", 101.0, writer=False)

    assert candidates.next(200.0) is None


def test_a_candidate_that_keeps_changing_is_given_up_until_the_next() -> None:
    """Three discards end it; a new announcement begins anew."""
    candidates = Candidates()
    candidates.announced(Announcement(1, "a", 1), 0.0)
    for turn in range(3):
        found = candidates.next(10.0 * turn)
        assert found is not None
        candidates.discarded(found, 10.0 * turn)
    assert candidates.next(1000.0) is None
    candidates.announced(Announcement(2, "a", 2), 1000.0)

    assert candidates.next(1000.0) is not None


def test_saves_are_measured_by_their_own_files() -> None:
    """A log that is written all the time beside the checkpoints does not make saves look slow."""
    candidates = Candidates()
    for second in range(1, 60):
        touched = ["events.log"] + (["step-1/w"] if second >= 56 else [])
        candidates.scanned(f"s{second}", float(second), writer=False, touched=touched)
    assert candidates.saving_since == 1.0
    candidates.announced(Announcement(1, "step-1", 1), 60.0)

    assert candidates.saves == [4.0]
    assert candidates.saving_since is None


def test_an_overtaken_checkpoint_that_vanished_costs_the_newest_nothing() -> None:
    """While its upload waited for the daemon the job pruned it, announced its last and ended: the last is committed at once, with all its tries."""
    candidates = Candidates()
    candidates.announced(Announcement(1, "step-20", 20), 0.0)
    overtaken = candidates.next(0.0)
    assert overtaken is not None
    candidates.announced(Announcement(3, "step-60", 60), 5.0)
    candidates.end("exit", 6.0, succeeded=True)
    for _ in range(3):
        candidates.discarded(overtaken, 7.0)

    newest = candidates.next(7.0)
    assert newest is not None
    assert (newest.name, newest.trigger) == ("step-60", "exit")


def test_one_that_is_given_a_moment_is_still_to_be_committed() -> None:
    """Between two tries there is nothing to do and the work is not over: nobody may report the job's end then."""
    candidates = Candidates()
    candidates.announced(Announcement(1, "a", 10), 0.0)
    found = candidates.next(0.0)
    assert found is not None
    candidates.discarded(found, 1.0)
    assert candidates.next(1.5) is None
    assert candidates.pending(1.5) == found
    candidates.discarded(found, 4.0)
    candidates.discarded(found, 7.0)
    assert candidates.pending(20.0) is None
