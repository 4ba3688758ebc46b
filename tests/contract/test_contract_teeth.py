"""The contract suite catches what it is for: providers that are wrong in one way each."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from spotd.testing import FakeCloud
from spotd.testing.contract import ProviderContract
from spotd.testing.fake_cloud import FakeProvider
from tests.contract import defects

#: Each defect, with a test that must fail for it. Others may fail, too.
CAUGHT = {
    defects.DrawsItsOwnToken: "test_the_same_request_is_the_same_machine",
    defects.LooksBeforeItLeaps: "test_threads_that_launch_the_same_at_once_get_one_machine",
    defects.TakesTheTokensWord: "test_another_request_with_the_same_token_is_refused",
    defects.FindsByTokenAlone: "test_the_same_token_elsewhere_is_not_confused",
    defects.FindsAnyOfTheJob: "test_an_outcome_is_for_its_own_request",
    defects.LaunchesWhenAsked: "test_asking_for_an_outcome_launches_nothing",
    defects.LaunchesAllTheSame: "test_no_capacity_leaves_nothing",
    defects.PaysAnything: "test_a_price_above_the_limit_leaves_nothing",
    defects.LetsErrorsThrough: "test_a_wrong_request_leaves_nothing",
    defects.RefusesOnTimeout: "test_a_launch_without_an_answer_is_unknown",
    defects.Replaces: "test_a_request_makes_one_machine_for_ever",
    defects.WaitsForTheBoot: "test_launch_returns_at_once",
    defects.LogsTheCall: "test_user_data_is_never_told",
    defects.ForgetsTheLock: "test_the_end_of_its_life_is_passed_on",
    defects.IsSilentWhenBroken: "test_no_answer_is_never_an_empty_list",
    defects.ReadsOnePage: "test_a_listing_is_complete",
    defects.ListsEverybody: "test_a_listing_is_ours_alone",
    defects.ListsEverywhere: "test_a_listing_is_of_one_region",
    defects.ListsWithoutTags: "test_a_row_says_what_the_machine_is",
    defects.ListsTheLiving: "test_terminate_ends_a_running_instance",
    defects.DoesNotSayWho: "test_a_reclaim_is_the_clouds_doing",
    defects.TellsLocalTime: "test_a_row_says_what_the_machine_is",
    defects.ClaimsEveryEnd: "test_a_reclaim_is_the_clouds_doing",
    defects.MissesTheAbsent: "test_terminating_what_is_not_there_is_success",
    defects.AcknowledgesUnheard: "test_a_terminate_is_acknowledged_only_when_it_was_heard",
    defects.EndsOnlyTheRunning: "test_terminate_ends_one_that_has_not_booted",
    defects.EndsTheJob: "test_terminate_ends_only_what_was_named",
    defects.WaitsForTheEnd: "test_terminate_ends_a_running_instance",
    defects.TellsOnce: "test_the_channel_tells_of_a_reclaim_first_and_until_acknowledged",
    defects.TellsForEver: "test_the_channel_tells_of_a_reclaim_first_and_until_acknowledged",
    defects.TellsTooLate: "test_the_channel_tells_of_a_reclaim_first_and_until_acknowledged",
    defects.SellsSpotAlone: "test_both_markets_are_offered",
    defects.SellsEverything: "test_only_what_was_asked_for",
    defects.CalculatesInFloats: "test_a_price_is_a_fact_with_an_age",
    defects.DatesPricesByTheirChange: "test_a_price_is_a_fact_with_an_age",
    defects.HidesFailures: "test_a_region_that_does_not_exist_is_a_failure",
    defects.FailsTogether: "test_offers_name_the_region_that_failed",
    defects.IsSureOfNothing: "test_an_outcome_that_cannot_be_asked_is_an_error",
    defects.BillsByHearsay: "test_the_billing_rule_is_known",
    defects.GivesUpEarly: "test_capabilities_make_sense",
    defects.LagsMoreThanItSays: "test_a_listing_is_complete",
}


class DefectiveCloud(FakeCloud):
    """A cloud in memory with a wrong provider for it."""

    def __init__(self, kind: type[FakeProvider]) -> None:
        super().__init__()
        self._kind = kind

    def provider(self) -> FakeProvider:
        """As ours, and wrong."""
        return self._kind(self, self.deployment)


def _arguments(test: Any) -> Iterator[dict[str, Any]]:
    """The arguments that pytest would call a test with, but for the cloud."""
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    for values in product(*(mark.args[1] for mark in marks)):
        yield dict(zip((mark.args[0] for mark in marks), values, strict=True))


def _failing(kind: type[FakeProvider], only: str = "") -> set[str]:
    """Which tests of the suite this provider fails (of all, or of this one)."""
    failed = set()
    for name, test in inspect.getmembers(ProviderContract, inspect.isfunction):
        if name.startswith("test_") and only in {"", name}:
            for arguments in _arguments(test):
                try:
                    test(ProviderContract(), DefectiveCloud(kind), **arguments)
                except pytest.skip.Exception:
                    continue
                except (Exception, pytest.fail.Exception):  # noqa: BLE001 - whatever it is, it is a failed test
                    failed.add(name)
    return failed


@pytest.mark.parametrize(("kind", "test"), CAUGHT.items(), ids=lambda x: x.__name__ if isinstance(x, type) else "")
def test_a_defect_is_caught(kind: type[FakeProvider], test: str) -> None:
    """A provider with this one defect fails the test that is there for it."""
    assert _failing(kind, test) == {test}


def test_the_reference_passes() -> None:
    """Without a defect nothing fails, so what fails above is the defect's doing."""
    assert _failing(FakeProvider) == set()


def test_every_defect_is_listed() -> None:
    """None is written and then forgotten."""
    written = {x for _, x in inspect.getmembers(defects, inspect.isclass) if issubclass(x, FakeProvider) and x is not FakeProvider}
    assert written == set(CAUGHT)
