"""Launching: one request, at most one machine; and what became of a call whose answer was lost."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from spotd.core.errors import InvalidRequest, NoCapacity, PriceTooHigh, ProviderUnavailable, Scope
from spotd.core.instance import LaunchRequest, ObservedState
from spotd.ports import Launched, Provider, Refused, Unknown
from spotd.testing.contract import steps
from spotd.testing.harness import ProviderUnderTest


class LaunchingContract:
    """`launch(request, user_data)` and `outcome(request)`."""

    def test_the_same_request_is_the_same_machine(self, cloud: ProviderUnderTest) -> None:
        """Port: "Idempotent by `request.token`". Again, from a second object on the account, and as `outcome` finds it, it is one machine."""
        provider, restarted, wanted = cloud.provider(), cloud.provider(), steps.request(cloud)
        provider_id = steps.launch(cloud, provider, wanted)
        assert steps.launch(cloud, provider, wanted) == provider_id
        assert steps.launch(cloud, restarted, replace(wanted)) == provider_id
        assert steps.found(cloud, restarted, wanted).provider_id == provider_id
        steps.settle(cloud, provider)
        assert [row.provider_id for row in steps.with_token(provider, wanted.offer.region, wanted.token)] == [provider_id]

    def test_threads_that_launch_the_same_at_once_get_one_machine(self, cloud: ProviderUnderTest) -> None:
        """Port: "Idempotent by `request.token`", at the same moment, too. A call may end in ProviderUnavailable; repeated, it answers."""
        wanted, providers = steps.request(cloud), [cloud.provider() for _ in range(max(cloud.traits.threads // 2, 1))]
        answers = _launch_together(cloud, providers, wanted)
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        assert all(isinstance(failure, ProviderUnavailable) for failure in failures), failures
        provider_id = steps.launch(cloud, providers[0], wanted)
        assert {answer for answer in answers if isinstance(answer, str)} <= {provider_id}
        row = steps.reaches(cloud, providers[0], wanted.offer.region, provider_id, ObservedState.RUNNING)
        assert steps.with_token(providers[-1], wanted.offer.region, wanted.token) == [row]

    def test_another_request_with_the_same_token_is_refused(self, cloud: ProviderUnderTest) -> None:
        """`InvalidRequest`: "the request itself is wrong". A token stands for one request; nothing second is launched, the first lives on."""
        provider, wanted = cloud.provider(), steps.request(cloud)
        provider_id = steps.launch(cloud, provider, wanted)
        with pytest.raises(InvalidRequest):
            provider.launch(replace(wanted, offer=cloud.goods.on_demand, max_price_usd_per_hour=None), cloud.traits.user_data)
        with pytest.raises(InvalidRequest):
            provider.launch(replace(wanted, expires_at=wanted.expires_at.replace(year=wanted.expires_at.year + 1)), cloud.traits.user_data)
        steps.settle(cloud, provider)
        assert [row.provider_id for row in steps.with_token(provider, wanted.offer.region, wanted.token)] == [provider_id]

    @pytest.mark.parametrize("place", ["other_zone", "other_region"])
    def test_the_same_token_elsewhere_is_not_confused(self, cloud: ProviderUnderTest, place: str) -> None:
        """Idempotency may be zonal (facts/reclaim.md §1.10): elsewhere the token is refused, or another machine, and never the first one's name."""
        provider, here = cloud.provider(), steps.request(cloud)
        there = replace(here, offer=getattr(cloud.goods, place))
        first = steps.launch(cloud, provider, here)
        steps.settle(cloud, provider)
        assert isinstance(provider.outcome(there), Unknown | Refused)
        try:
            second = steps.launch(cloud, provider, there)
        except InvalidRequest:
            steps.settle(cloud, provider)
            assert all(row.provider_id == first for region in provider.regions() for row in steps.with_token(provider, region, here.token))
        else:
            assert second != first
            row = steps.reaches(cloud, provider, there.offer.region, second, ObservedState.PENDING, ObservedState.RUNNING)
            assert row.zone == there.offer.zone
        assert steps.found(cloud, provider, here).provider_id == first

    def test_a_request_makes_one_machine_for_ever(self, cloud: ProviderUnderTest) -> None:
        """Rule 1: "a retry is byte-identical". One that comes after its machine has ended finds the dead one or is refused; it makes no second."""
        provider, wanted = cloud.provider(), steps.request(cloud)
        provider_id = steps.launch(cloud, provider, wanted)
        provider.terminate(wanted.offer.region, provider_id)
        steps.reaches(cloud, provider, wanted.offer.region, provider_id, ObservedState.GONE)
        try:
            again = provider.launch(wanted, cloud.traits.user_data).provider_id
        except InvalidRequest:
            again = provider_id
        steps.settle(cloud, provider)
        assert again == provider_id
        assert {row.provider_id for row in provider.instances(wanted.offer.region)} <= {provider_id}

    def test_launch_returns_at_once(self, cloud: ProviderUnderTest) -> None:
        """Port: "returns at once, before it has booted." On-demand, too."""
        provider = cloud.provider()
        with steps.at_once(cloud):
            provider_id = steps.launch(cloud, provider, wanted := steps.request(cloud, cloud.goods.on_demand))
        row = steps.reaches(cloud, provider, wanted.offer.region, provider_id, ObservedState.PENDING, ObservedState.RUNNING)
        assert row.token == wanted.token

    def test_user_data_is_never_told(self, cloud: ProviderUnderTest) -> None:
        """Port: user data "holds a credential and is never logged or stored." Neither lines of the log nor errors hold any of it."""
        provider, secret = cloud.provider(), "credential-that-nobody-may-see"
        wrong = steps.request(cloud, replace(cloud.goods.spot, instance_type="no-such-type"))
        with steps.overheard() as lines:
            provider.launch(steps.request(cloud), f"#!/bin/sh\n# {secret}\nexit 0\n")
            with pytest.raises(InvalidRequest) as refused:
                provider.launch(wrong, f"#!/bin/sh\n# {secret}\nexit 0\n")
        assert secret not in repr((refused.value, str(refused.value), refused.value.__cause__))
        assert not any(secret in line for line in lines)

    def test_no_capacity_leaves_nothing(self, cloud: ProviderUnderTest) -> None:
        """`NoCapacity`: "Nothing was launched: the pool is empty." It says how far it reaches, and its neighbours still sell."""
        provider = cloud.provider()
        wanted = steps.request(cloud, cloud.exhaust())
        with pytest.raises(NoCapacity) as refused:
            provider.launch(wanted, cloud.traits.user_data)
        assert refused.value.scope in {Scope.OFFER, Scope.ZONE, Scope.REGION}
        assert refused.value.message
        steps.nothing_launched(cloud, provider, wanted)
        steps.launch(cloud, provider, steps.request(cloud))

    def test_a_price_above_the_limit_leaves_nothing(self, cloud: ProviderUnderTest) -> None:
        """`PriceTooHigh`: "Nothing was launched: the market is above our cap", and the request says "never pay more than this"."""
        provider = cloud.provider()
        wanted = steps.request(cloud, max_price_usd_per_hour=steps.NEXT_TO_NOTHING)
        with pytest.raises(PriceTooHigh):
            provider.launch(wanted, cloud.traits.user_data)
        steps.nothing_launched(cloud, provider, wanted)

    @pytest.mark.parametrize("part", ["instance_type", "zone"])
    def test_a_wrong_request_leaves_nothing(self, cloud: ProviderUnderTest, part: str) -> None:
        """`InvalidRequest`: "Nothing was launched and nothing will be: the request itself is wrong." With a sentence for a person."""
        provider = cloud.provider()
        spot = cloud.goods.spot
        wrong = {"instance_type": replace(spot, instance_type="no-such-type"), "zone": replace(spot, zone="no-such-zone")}
        wanted = steps.request(cloud, wrong[part])
        with pytest.raises(InvalidRequest) as refused:
            provider.launch(wanted, cloud.traits.user_data)
        assert refused.value.message
        steps.nothing_launched(cloud, provider, wanted)

    def test_asking_for_an_outcome_launches_nothing(self, cloud: ProviderUnderTest) -> None:
        """Port: "What became of a launch call, looked up by token." Of one that was never made nothing is to be found, however often one asks."""
        provider, wanted = cloud.provider(), steps.request(cloud)
        for _ in range(3):
            assert isinstance(provider.outcome(wanted), Unknown | Refused)
        steps.nothing_launched(cloud, provider, wanted)

    def test_an_outcome_is_for_its_own_request(self, cloud: ProviderUnderTest) -> None:
        """Port: "looked up by token". Neighbours of the same job, type and zone are not taken for it."""
        provider, launched, other = cloud.provider(), steps.request(cloud), steps.request(cloud)
        provider_id = steps.launch(cloud, provider, launched)
        assert steps.found(cloud, provider, launched).provider_id == provider_id
        assert isinstance(provider.outcome(other), Unknown | Refused)

    def test_the_end_of_its_life_is_passed_on(self, cloud: ProviderUnderTest) -> None:
        """expires_at: "The provider's own lock". The cloud's own record of the instance holds it, to the second."""
        provider, wanted = cloud.provider(), steps.request(cloud)
        noted = cloud.expiry_of(steps.launch(cloud, provider, wanted))
        assert noted is not None
        assert abs((noted - wanted.expires_at).total_seconds()) <= 1


def _launch_together(cloud: ProviderUnderTest, providers: Sequence[Provider], wanted: LaunchRequest) -> list[str | BaseException]:
    """What each of several threads got that launch the same request at the same moment."""
    answers: list[str | BaseException] = []
    start = threading.Barrier(cloud.traits.threads)

    def call(provider: Provider) -> None:
        start.wait()
        try:
            answer = provider.launch(wanted, cloud.traits.user_data)
            assert isinstance(answer, Launched)
            answers.append(answer.provider_id)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            answers.append(error)

    threads = [threading.Thread(target=call, args=(providers[n % len(providers)],)) for n in range(cloud.traits.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
