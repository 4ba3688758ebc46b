"""What was delivered, handed out and acknowledged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from spotd.core.notice import Notice, NoticeKind, NoticeSource
from spotd_aws.mailbox import Key, Mailbox, Slip, Subject

SEEN = datetime(2026, 1, 1, tzinfo=UTC)
RECLAIM = Notice(NoticeKind.RECLAIM, NoticeSource.PROVIDER, SEEN, SEEN + timedelta(seconds=120))
HINT = Notice(NoticeKind.REBALANCE, NoticeSource.PROVIDER, SEEN, None)
ONE, TWO = "i-00000001", "i-00000002"


def _slip(receipt: str = "first", message: str = "m1") -> Slip:
    return Slip(Key("us-west-2", message), "https://queue", receipt)


def _subjects(mail: Mailbox, now: float = 0.0) -> list[str]:
    return [subject.provider_id for _, subject, _ in mail.take(now)]


def test_a_notice_is_handed_out_once_for_each_delivery() -> None:
    """Not again by itself; again when its message comes again without having been acknowledged."""
    mail = Mailbox()
    mail.deliver(_slip(), [(ONE, RECLAIM)], 0)
    assert _subjects(mail) == [ONE]
    assert _subjects(mail) == []
    mail.deliver(_slip("second"), [(ONE, RECLAIM)], 30)
    assert _subjects(mail) == [ONE]


def test_a_duplicate_before_it_is_handed_out_is_one_notice() -> None:
    """SQS delivers more than once (facts/reclaim.md §1.7)."""
    mail = Mailbox()
    mail.deliver(_slip(), [(ONE, RECLAIM)], 0)
    mail.deliver(_slip("second"), [(ONE, RECLAIM)], 1)
    assert _subjects(mail) == [ONE]


def test_a_message_is_deleted_when_all_its_notices_are_safe() -> None:
    """One message may tell of several instances: the first acknowledgement does not delete what the second needs."""
    mail = Mailbox()
    mail.deliver(_slip(), [(ONE, RECLAIM), (TWO, RECLAIM)], 0)
    taken = mail.take(0)
    assert mail.acknowledge(*taken[0][:2]) is None
    mail.deliver(_slip("second"), [(ONE, RECLAIM), (TWO, RECLAIM)], 30)
    assert _subjects(mail) == [TWO]
    assert mail.acknowledge(*taken[1][:2]) == _slip("second")


def test_acknowledging_twice_deletes_once() -> None:
    """And never another message."""
    mail = Mailbox()
    mail.deliver(_slip(), [(ONE, RECLAIM)], 0)
    mail.deliver(_slip(message="m2"), [(ONE, HINT)], 0)
    (key, subject, _), _ = mail.take(0)
    assert mail.acknowledge(key, subject) == _slip()
    assert mail.acknowledge(key, subject) is None
    mail.deleted(key)
    assert mail.acknowledge(key, subject) is None
    assert mail.acknowledge(Key("us-west-2", "unknown"), subject) is None


def test_a_failed_deletion_is_tried_again_when_the_message_comes_again() -> None:
    """The notice itself is not handed out again: it was acknowledged."""
    mail = Mailbox()
    mail.deliver(_slip(), [(ONE, RECLAIM)], 0)
    [(key, subject, _)] = mail.take(0)
    mail.acknowledge(key, subject)
    assert mail.deliver(_slip("second"), [(ONE, RECLAIM)], 30) == _slip("second")
    assert _subjects(mail) == []


def test_an_acknowledgement_takes_back_a_second_copy_that_waits() -> None:
    """It came again while the first was being committed."""
    mail = Mailbox()
    mail.deliver(_slip(), [(ONE, RECLAIM)], 0)
    [(key, subject, _)] = mail.take(0)
    mail.deliver(_slip("second"), [(ONE, RECLAIM)], 30)
    assert mail.acknowledge(key, subject) == _slip("second")
    assert _subjects(mail) == []


def test_what_a_listing_shows_is_told_once() -> None:
    """However often it is listed; and again, after a while, where it was not acknowledged."""
    mail = Mailbox()
    assert mail.saw(ONE, RECLAIM, 0)
    assert not mail.saw(ONE, RECLAIM, 0)
    [(key, subject, notice)] = mail.take(0)
    assert (subject, notice) == (Subject(ONE, NoticeKind.RECLAIM), RECLAIM)
    assert not mail.saw(ONE, RECLAIM, 10)
    assert mail.saw(ONE, RECLAIM, 40)
    assert _subjects(mail, 40) == [ONE]
    assert mail.acknowledge(key, subject) is None
    assert not mail.saw(ONE, RECLAIM, 80)
    assert _subjects(mail, 80) == []


def test_another_deadline_is_another_notice() -> None:
    """A reclaim that was taken back may come again."""
    mail = Mailbox()
    mail.saw(ONE, RECLAIM, 0)
    [(key, subject, _)] = mail.take(0)
    mail.acknowledge(key, subject)
    assert mail.saw(ONE, Notice(NoticeKind.RECLAIM, NoticeSource.PROVIDER, SEEN, SEEN + timedelta(hours=1)), 50)


def test_memory_stays_small() -> None:
    """Messages die after five minutes in their queue, and instances leave the listings: neither is remembered for ever (A 11)."""
    mail = Mailbox()
    for number in range(1000):
        mail.deliver(_slip(message=f"m{number}"), [(ONE, RECLAIM)], number)
        mail.saw(f"i-{number:08x}", RECLAIM, number)
    mail.take(1000)
    mail.deliver(_slip(message="late"), [(ONE, RECLAIM)], 200_000)
    assert len(mail._letters) == 1
