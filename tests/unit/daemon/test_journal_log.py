"""The log: one line an event, and nothing in it that could be forged or should not be seen."""

from __future__ import annotations

import logging

import pytest

from spotd.core.attempt import EndReason
from spotd.core.events import AgentBootstrapped, AttemptEnded, Listed, NoticeSeen, WorkloadExited
from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd.daemon.journal_log import log_events, sentence
from tests.unit.core.stage import START


def test_an_event_is_a_sentence_and_its_keys() -> None:
    """An ended attempt is one line that says which and why."""
    event = AttemptEnded(START, "a-1", EndReason.RECLAIMED, "i-1 is gone")

    assert sentence(event) == 'attempt ended attempt_id=a-1 reason=reclaimed detail="i-1 is gone"'


def test_text_from_outside_cannot_forge_a_line() -> None:
    """A newline in an agent's word is shown escaped."""
    event = WorkloadExited(START, "i-1", 1, done=False, step=None, detail="bad\n2026 INFO attempt ended")

    assert "\n" not in sentence(event)


def test_hashes_of_credentials_are_not_logged() -> None:
    """Not even hashes of nonces and sessions reach the log."""
    event = AgentBootstrapped(START, "i-1", "n" * 64, "s" * 64)

    assert sentence(event) == "agent bootstrapped instance_id=i-1"


def test_warnings_stand_out_and_listings_are_quiet(caplog: pytest.LogCaptureFixture) -> None:
    """A notice is a warning; what is not journaled is not logged."""
    notice = Notice(NoticeKind.RECLAIM, NoticeSource.IMDS, START, None)
    with caplog.at_level(logging.INFO, "spotd.journal"):
        log_events([NoticeSeen(START, "i-1", notice), Listed(START, START, "cloud", "east", ())])

    assert [(r.levelname, r.message.split(" ")[0]) for r in caplog.records] == [("WARNING", "notice")]
