"""Pages, answers that are kept, and errands run side by side: what a sweep is made of."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spotd.core.errors import NotAuthorized, ProviderError, ProviderUnavailable, Throttled
from spotd_aws.keeping import Kept, Terms
from spotd_aws.offerings import by_type, sizes
from spotd_aws.paging import batches, pages, rows
from spotd_aws.together import together

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


class _Pages:
    """Something that answers with these pages, and remembers what it was asked."""

    def __init__(self, *tokens: str | None) -> None:
        self.tokens = tokens
        self.asked: list[dict[str, Any]] = []

    def __call__(self, **question: Any) -> dict[str, Any]:
        token = self.tokens[len(self.asked) % len(self.tokens)]
        self.asked.append(question)
        return {"Rows": [{"n": len(self.asked)}], **({} if token is None else {"NextToken": token})}


@pytest.mark.parametrize("end", ["", None])
def test_an_empty_token_ends_it_and_every_page_repeats_the_question(end: str | None) -> None:
    """A missing one does as well. Who drops the parameters asks another question (boto3#130)."""
    call = _Pages("one", "two", end)
    assert [page["Rows"][0]["n"] for page in pages(call, threading.Event(), Kind="x")] == [1, 2, 3]
    assert call.asked == [{"Kind": "x"}, {"Kind": "x", "NextToken": "one"}, {"Kind": "x", "NextToken": "two"}]


@pytest.mark.parametrize("tokens", [("same",), ("a", "b")])
def test_pages_that_do_not_end_are_no_answer(tokens: tuple[str, ...]) -> None:
    """A token seen before would go on for ever (aws-sdk-java-v2#927)."""
    call = _Pages(*tokens)
    with pytest.raises(ProviderUnavailable, match="again and again"):
        list(pages(call, threading.Event()))
    assert len(call.asked) <= 3


def test_pages_stop_when_the_sweep_is_over() -> None:
    """And what was read until then is not taken for the whole."""
    stop = threading.Event()
    found = pages(_Pages("one", "two", ""), stop)
    next(found)
    stop.set()
    with pytest.raises(ProviderUnavailable, match="given up"):
        next(found)


def test_an_answer_without_rows_is_not_an_empty_one() -> None:
    """Unknown is a value; rows that are none are left out."""
    assert rows({"Rows": []}, "Rows") == []
    assert rows({"Rows": [{"a": 1}, None, "x"]}, "Rows") == [{"a": 1}]
    for page in ({}, {"Rows": None}, {"Rows": "x"}):
        with pytest.raises(ProviderUnavailable, match="no Rows"):
            rows(page, "Rows")
    with pytest.raises(ProviderUnavailable, match="no answer"):
        list(pages(lambda: None, threading.Event()))


def test_values_go_in_batches() -> None:
    """EC2 takes so many in one filter."""
    assert list(batches(["a", "b", "c"], 2)) == [["a", "b"], ["c"]]
    assert list(batches([], 2)) == []


def test_offerings_and_sizes_are_read_defensively() -> None:
    """Rows that lack something are left out, types that were not asked for as well."""
    found = by_type([{"InstanceType": "g5", "Location": "a"}, {"InstanceType": "g5"}, {"InstanceType": "x", "Location": "a"}, {}], frozenset({"g5"}))
    assert found == {"g5": frozenset({"a"})}
    assert sizes(
        [{"InstanceType": "g5", "VCpuInfo": {"DefaultVCpus": 4}}, {"InstanceType": "g6"}, {"VCpuInfo": 3}, {"InstanceType": "x", "VCpuInfo": {}}]
    ) == {"g5": 4}


# Kept


class _Oracle:
    """Answers with a number, or fails."""

    def __init__(self) -> None:
        self.time = NOW
        self.asked = 0
        self.error: ProviderError | None = None

    def ask(self) -> int:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.asked


def _kept(oracle: _Oracle, **terms: timedelta) -> Callable[[], int]:
    kept: Kept[str, int] = Kept(lambda: oracle.time, Terms(**{"fresh": timedelta(hours=1), **terms}))
    return lambda: kept.get("x", oracle.ask)


def test_an_answer_is_kept_while_it_is_fresh() -> None:
    """Then it is asked for anew."""
    oracle = _Oracle()
    get = _kept(oracle)
    found = []
    for _ in range(4):
        found.append(get())
        oracle.time += timedelta(minutes=40)
    assert found == [1, 1, 2, 2]


def test_an_answer_that_cannot_be_renewed_stays_until_it_is_good_no_more() -> None:
    """Then the error is what is known."""
    oracle = _Oracle()
    get = _kept(oracle, good=timedelta(hours=3))
    assert get() == 1
    oracle.error = ProviderUnavailable("down")
    oracle.time += timedelta(hours=2)
    assert get() == 1
    oracle.time += timedelta(hours=1)
    with pytest.raises(ProviderUnavailable):
        get()
    oracle.error = None
    assert get() > 1


def test_a_failure_is_not_followed_by_the_same_question_at_once() -> None:
    """Not before `retry`; and not before the cloud itself says, where that is later."""
    for error, wait in ((NotAuthorized("no"), timedelta(minutes=5)), (Throttled("no", "", timedelta(days=1)), timedelta(days=1))):
        oracle = _Oracle()
        oracle.error = error
        get = _kept(oracle, retry=timedelta(minutes=5))
        for ago in (timedelta(0), wait - timedelta(seconds=1)):
            oracle.time = NOW + ago
            with pytest.raises(type(error)):
                get()
        assert oracle.asked == 1
        oracle.time = NOW + wait
        oracle.error = None
        assert get() == 2


# Together


def test_errands_run_side_by_side() -> None:
    """Three that wait for each other come to an end; each has its own answer or error."""
    meeting = threading.Barrier(3, timeout=10)

    def errand(answer: int) -> int:
        meeting.wait()
        if answer == 2:
            raise NotAuthorized("no")
        if answer == 3:
            raise KeyError("surprise")
        return answer

    found = together({n: lambda n=n: errand(n) for n in (1, 2, 3)}, threading.Event(), 10)  # type: ignore[misc]
    assert found[1] == 1
    assert isinstance(found[2], NotAuthorized)
    assert isinstance(found[3], ProviderUnavailable)


def test_who_is_late_is_missing_and_is_told_to_stop() -> None:
    """The others' answers are there, and nothing waits for the one that hangs."""
    stop, release = threading.Event(), threading.Event()
    found = together({"late": lambda: release.wait(10), "well": lambda: True}, stop, 0.2)
    release.set()
    assert found == {"well": True}
    assert stop.is_set()


def test_nobody_to_ask_is_nothing() -> None:
    """At once."""
    assert together({}, threading.Event(), 10) == {}
