"""What is stored is what was there, also across versions of spotd."""

from __future__ import annotations

import json
import math
import typing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType

import pytest

from spotd.core import events as e
from spotd.core.attempt import Attempt, Purpose
from spotd.core.instance import Instance, LaunchRequest
from spotd.core.job import Job, JobSpec
from spotd.core.notice import NoticeKind
from spotd.core.offer import Market, OfferKey
from spotd.daemon import codec

START = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
JOB = Job("job-1", JobSpec("train", "h100", "python train.py", labels=MappingProxyType({"a": "b"})), "alice", START)
ATTEMPT = Attempt("attempt-1", "job-1", 1, Purpose.START, START)
OFFER = OfferKey("local", "us-1", "us-1a", "gpu.8", Market.SPOT)


def test_amounts_are_digits_and_times_are_utc() -> None:
    """In the JSON an amount is a string with all its digits and a time says that it is UTC."""
    body = json.loads(codec.encode(replace(ATTEMPT, baseline_usd_per_hour=Decimal("32.7726000"))))
    assert body["baseline_usd_per_hour"] == "32.7726000"
    assert body["placed_at"] == "2026-03-01T12:00:00.123456Z"


@pytest.mark.parametrize("length", [timedelta(0), timedelta(microseconds=1), timedelta(days=400, microseconds=999_999), timedelta(hours=40)])
def test_a_length_of_time_is_exact(length: timedelta) -> None:
    """To the microsecond."""
    job = replace(JOB, spec=replace(JOB.spec, estimated_runtime=length))
    assert codec.job(codec.encode(job)) == job


@pytest.mark.parametrize("loss", [0.1, -0.0, 1e-308, math.inf, -math.inf])
def test_a_number_that_is_no_number_survives(loss: float) -> None:
    """A training run may report an infinite loss; JSON has no such number, and it is still stored."""
    assert codec.attempt(codec.encode(replace(ATTEMPT, loss=loss))).loss == loss


def test_a_loss_that_is_not_a_number_survives() -> None:
    """Nor does NaN become "no loss reported"."""
    kept = codec.attempt(codec.encode(replace(ATTEMPT, loss=math.nan))).loss
    assert kept is not None
    assert math.isnan(kept)


def test_mappings_come_back_equal() -> None:
    """Read-only mappings in a value are stored as objects and compare equal when they come back."""
    request = LaunchRequest("token", "d", "job-1", "train", 1, 0, OFFER, Decimal("1.5"), START, MappingProxyType({"project": "legal"}))
    instance = Instance("token", "job-1", "attempt-1", 0, 1, request, Decimal("1.2"), "cheapest", START)
    assert codec.instance(codec.encode(instance)) == instance
    assert codec.job(codec.encode(JOB)) == JOB


def test_text_that_is_no_text_is_kept_as_far_as_it_goes() -> None:
    """A lone surrogate from a program's output neither fails the commit nor takes the rest of the message with it."""
    assert codec.attempt(codec.encode(replace(ATTEMPT, detail="exit \ud800 ¬ 3"))) == replace(ATTEMPT, detail="exit ? ¬ 3")


def test_what_an_older_spotd_wrote_is_read() -> None:
    """A field that did not exist then has its default, one that exists no more is ignored."""
    body = codec.fields(codec.encode(ATTEMPT))
    del body["loss"]
    body["mood"] = "cheerful"
    assert codec.attempt(json.dumps(body)) == ATTEMPT


def test_every_kind_of_event_has_its_word() -> None:
    """Words are those of the events, one each, in the spelling of the command line."""
    kinds = typing.get_args(e.Event)
    assert len(codec.KINDS) == len(kinds)
    assert {"job_submitted", "notice_seen", "terminate_acknowledged", "policy_loaded"} <= codec.KINDS
    assert codec.kind_of(e.NoticeCancelled(START, "i", NoticeKind.RECLAIM)) == "notice_cancelled"


def test_an_event_names_what_it_is_about() -> None:
    """Job, attempt and instance ids are found also where an event carries the whole value."""
    request = LaunchRequest("token", "d", "job-1", "train", 1, 0, OFFER, None, START)
    instance = Instance("token", "job-1", "attempt-1", 0, 1, request, Decimal("1.2"), "cheapest", START)
    assert codec.subjects(e.LaunchRequested(START, instance)) == ("job-1", "attempt-1", "token")
    assert codec.subjects(e.JobSubmitted(START, JOB)) == ("job-1", None, None)
    assert codec.subjects(e.WorkloadStarted(START, "token")) == (None, None, "token")
    assert codec.subjects(e.GateOpened(START, "attempt-1", None, "")) == (None, "attempt-1", None)
    assert codec.subjects(e.AlarmRaised(START, e.AlarmKind.STRAY, "x", "y")) == (None, None, None)
