"""Listings: complete, ours, of this region."""

from __future__ import annotations

from dataclasses import replace

from spotd.core.instance import ObservedState
from spotd.testing.contract import steps
from spotd.testing.harness import ProviderUnderTest


class ListingContract:
    """`instances(region)`."""

    def test_a_row_says_what_the_machine_is(self, cloud: ProviderUnderTest) -> None:
        """Port: "a machine that carries our deployment tag": token, region, zone; running since an instant; no end yet."""
        provider, wanted = cloud.provider(), steps.request(cloud)
        provider_id = steps.launch(cloud, provider, wanted)
        first = steps.reaches(cloud, provider, wanted.offer.region, provider_id, ObservedState.PENDING, ObservedState.RUNNING)
        running = steps.reaches(cloud, provider, wanted.offer.region, provider_id, ObservedState.RUNNING)
        for row in (first, running):
            assert (row.token, row.region, row.zone) == (wanted.token, wanted.offer.region, wanted.offer.zone)
            assert (row.ended_at, row.ended_by, row.end_code) == (None, None, "")
        assert steps.aware(running.launched_at)
        assert running.launched_at is not None
        assert running.launched_at <= cloud.clock.now()

    def test_a_listing_is_complete(self, cloud: ProviderUnderTest) -> None:
        """Port: "every instance of our deployment in this region: complete", also when there are more than one page holds."""
        provider = cloud.provider()
        ids = [steps.launch(cloud, provider, steps.request(cloud, rank=rank)) for rank in range(cloud.traits.many)]
        steps.settle(cloud, provider)
        for object_ in (provider, cloud.provider()):
            assert sorted(row.provider_id for row in object_.instances(cloud.goods.spot.region)) == sorted(ids)

    def test_a_listing_is_of_one_region(self, cloud: ProviderUnderTest) -> None:
        """Port: "every instance of our deployment in this region": each is in the listing of its own region and in no other."""
        provider, goods = cloud.provider(), cloud.goods
        here, there = (steps.launch(cloud, provider, steps.request(cloud, offer)) for offer in (goods.spot, goods.other_region))
        steps.settle(cloud, provider)
        regions = {region: {row.provider_id for row in provider.instances(region)} for region in provider.regions()}
        assert {region: ids for region, ids in regions.items() if ids} == {goods.spot.region: {here}, goods.other_region.region: {there}}
        assert all(row.region == region for region in regions for row in provider.instances(region))

    def test_a_listing_is_ours_alone(self, cloud: ProviderUnderTest) -> None:
        """Rule 4: "foreign instances are never touched". They are not listed, so nothing of ours ever sweeps them."""
        provider = cloud.provider()
        theirs = cloud.foreign(cloud.goods.spot)
        ours = steps.launch(cloud, provider, steps.request(cloud))
        steps.settle(cloud, provider)
        rows = [row.provider_id for row in provider.instances(cloud.goods.spot.region)]
        assert rows == [ours]
        assert theirs != ours

    def test_an_account_without_instances_has_an_empty_listing(self, cloud: ProviderUnderTest) -> None:
        """Port: "complete, or raises". Nothing there is an answer, too, and asking changes nothing."""
        provider = cloud.provider()
        assert [list(provider.instances(region)) for region in provider.regions()] == [[] for _ in provider.regions()]

    def test_zones_and_markets_share_a_listing(self, cloud: ProviderUnderTest) -> None:
        """A region's listing covers its zones and both markets, each row with its own zone."""
        provider, goods = cloud.provider(), cloud.goods
        wanted = [steps.request(cloud, offer) for offer in (goods.spot, goods.on_demand, replace(goods.other_zone))]
        ids = {steps.launch(cloud, provider, one): one.offer.zone for one in wanted}
        steps.settle(cloud, provider)
        assert {row.provider_id: row.zone for row in provider.instances(goods.spot.region)} == ids
