"""A region out of reach: unknown is a value, and whatever goes wrong is a ProviderError."""

from __future__ import annotations

import pytest

from spotd.core.errors import ProviderError, ProviderUnavailable
from spotd.core.instance import ObservedState
from spotd.ports import Launched, OfferQuery, Pending
from spotd.testing.contract import steps
from spotd.testing.harness import ProviderUnderTest


class OutageContract:
    """Every method while a region does not answer, and afterwards."""

    def test_no_answer_is_never_an_empty_list(self, cloud: ProviderUnderTest) -> None:
        """Port: "complete, or raises ProviderError. Never a partial list." Rule 5: no answer "is never an empty list". Later all is there again."""
        provider, wanted = cloud.provider(), steps.request(cloud)
        region, provider_id = wanted.offer.region, steps.launch(cloud, provider, wanted)
        steps.settle(cloud, provider)
        with cloud.break_region(region), pytest.raises(ProviderError):
            provider.instances(region)
        row = steps.listed(provider, region, provider_id)
        assert row is not None
        assert row.state in {ObservedState.PENDING, ObservedState.RUNNING}

    def test_one_region_does_not_silence_another(self, cloud: ProviderUnderTest) -> None:
        """A region that cannot be asked "costs exactly that region" (docs/why.md), where regions fail apart."""
        if not cloud.traits.regions_fail_apart:
            pytest.skip("this cloud's regions fail together")
        provider, goods = cloud.provider(), cloud.goods
        there = steps.request(cloud, goods.other_region)
        with cloud.break_region(goods.spot.region):
            provider_id = steps.launch(cloud, provider, there)
            steps.settle(cloud, provider)
            assert [row.provider_id for row in provider.instances(goods.other_region.region)] == [provider_id]
            assert steps.found(cloud, provider, there).provider_id == provider_id
            provider.terminate(goods.other_region.region, provider_id)

    def test_offers_name_the_region_that_failed(self, cloud: ProviderUnderTest) -> None:
        """Port: a region that could not be asked "is named in `failures`"; ProviderError is raised "only when no region could be asked at all"."""
        provider, goods = cloud.provider(), cloud.goods
        kinds, broken = frozenset({goods.spot.instance_type}), goods.spot.region
        with cloud.break_region(broken):
            try:
                sheet = provider.offers(OfferQuery(kinds, frozenset({broken, goods.other_region.region})))
            except ProviderError:
                assert not cloud.traits.regions_fail_apart, "one region that failed took the others with it"
            else:
                assert set(sheet.failures) == {broken}
                assert isinstance(sheet.failures[broken], ProviderError)
                assert {offer.key.region for offer in sheet.offers} == {goods.other_region.region}
            try:
                alone = provider.offers(OfferQuery(kinds, frozenset({broken})))
            except ProviderError:
                pass
            else:
                assert (alone.offers, set(alone.failures)) == ((), {broken})
        assert dict(provider.offers(OfferQuery(kinds, frozenset({broken}))).failures) == {}

    def test_a_launch_without_an_answer_is_unknown(self, cloud: ProviderUnderTest) -> None:
        """Port: "after ProviderUnavailable the outcome is unknown". Repeated when the region answers, the identical call makes one machine."""
        provider, wanted = cloud.provider(), steps.request(cloud)
        with cloud.break_region(wanted.offer.region), pytest.raises(ProviderUnavailable):
            provider.launch(wanted, cloud.traits.user_data)
        provider_id = steps.launch(cloud, provider, wanted)
        assert steps.found(cloud, provider, wanted).provider_id == provider_id
        steps.settle(cloud, provider)
        assert [row.provider_id for row in steps.with_token(provider, wanted.offer.region, wanted.token)] == [provider_id]

    def test_an_outcome_that_cannot_be_asked_is_an_error(self, cloud: ProviderUnderTest) -> None:
        """Port: "raises ProviderError when it cannot be asked". One that exists is never Unknown or Refused because nobody answered."""
        provider, wanted = cloud.provider(), steps.request(cloud)
        provider_id = steps.launch(cloud, provider, wanted)
        steps.found(cloud, provider, wanted)
        with cloud.break_region(wanted.offer.region):
            try:
                answer = provider.outcome(wanted)
            except ProviderError:
                answer = Pending()
        assert isinstance(answer, Pending) or (isinstance(answer, Launched) and answer.provider_id == provider_id)

    def test_a_terminate_is_acknowledged_only_when_it_was_heard(self, cloud: ProviderUnderTest) -> None:
        """Port: "Returning means acknowledged." One that did not get through raises ProviderError, or else the instance does end."""
        provider, wanted = cloud.provider(), steps.request(cloud)
        region, provider_id = wanted.offer.region, steps.runs(cloud, provider, wanted)
        acknowledged = True
        with cloud.break_region(region):
            try:
                provider.terminate(region, provider_id)
            except ProviderError:
                acknowledged = False
        if not acknowledged:
            provider.terminate(region, provider_id)
        steps.reaches(cloud, provider, region, provider_id, ObservedState.GONE)
