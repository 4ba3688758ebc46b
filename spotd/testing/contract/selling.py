"""Offers: what can be bought, at which price, and how sure that is."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from spotd.core.errors import ProviderError
from spotd.core.offer import Market
from spotd.ports import OfferQuery
from spotd.testing.contract.steps import aware
from spotd.testing.harness import ProviderUnderTest

_NOWHERE = "no-such-region-1"


def _everything(cloud: ProviderUnderTest) -> OfferQuery:
    goods = cloud.goods
    return OfferQuery(frozenset({goods.spot.instance_type}), frozenset({goods.spot.region, goods.other_region.region}))


class SellingContract:
    """`offers(query)`."""

    def test_both_markets_are_offered(self, cloud: ProviderUnderTest) -> None:
        """Port: "the cross product of types and regions, both markets". All of the goods are among the offers, each once."""
        sheet = cloud.provider().offers(_everything(cloud))
        keys = [offer.key for offer in sheet.offers]
        goods = cloud.goods
        assert {goods.spot, goods.on_demand, goods.other_zone, goods.other_region} <= set(keys)
        assert len(keys) == len(set(keys))
        assert dict(sheet.failures) == {}

    def test_only_what_was_asked_for(self, cloud: ProviderUnderTest) -> None:
        """Port: "which offers are wanted". No other type, no other region; nothing for a type not sold."""
        provider, goods = cloud.provider(), cloud.goods
        sheet = provider.offers(OfferQuery(frozenset({goods.spot.instance_type, "no-such-type"}), frozenset({goods.other_region.region})))
        assert {(o.key.provider, o.key.region, o.key.instance_type) for o in sheet.offers} == {
            (provider.name, goods.other_region.region, goods.spot.instance_type)
        }
        assert provider.offers(OfferQuery(frozenset({"no-such-type"}), frozenset({goods.spot.region}))).offers == ()

    def test_a_price_is_a_fact_with_an_age(self, cloud: ProviderUnderTest) -> None:
        """Offer: "A price is a fact with an age": a positive, finite Decimal, seen at an instant that is not in the future and not a day old."""
        for offer in cloud.provider().offers(_everything(cloud)).offers:
            assert isinstance(offer.price_usd_per_hour, Decimal)
            assert offer.price_usd_per_hour.is_finite()
            assert offer.price_usd_per_hour > 0
            assert aware(offer.seen_at)
            assert offer.seen_at <= cloud.clock.now() + timedelta(seconds=1)
            assert offer.age(cloud.clock.now()) < timedelta(days=1)

    def test_goods_cost_less_than_the_limit(self, cloud: ProviderUnderTest) -> None:
        """The harness keeps its own promise, or refusals below would prove nothing."""
        prices = {offer.key: offer.price_usd_per_hour for offer in cloud.provider().offers(_everything(cloud)).offers}
        assert all(prices[key] < cloud.goods.limit for key in prices if key.market is Market.SPOT)

    def test_a_region_that_does_not_exist_is_a_failure(self, cloud: ProviderUnderTest) -> None:
        """Port: a region that could not be asked is named "in `failures`, never silently empty". Others are not kept from answering."""
        goods = cloud.goods
        sheet = cloud.provider().offers(OfferQuery(frozenset({goods.spot.instance_type}), frozenset({_NOWHERE, goods.spot.region})))
        assert set(sheet.failures) == {_NOWHERE}
        assert isinstance(sheet.failures[_NOWHERE], ProviderError)
        assert {offer.key.region for offer in sheet.offers} == {goods.spot.region}

    def test_an_empty_question_has_an_empty_answer(self, cloud: ProviderUnderTest) -> None:
        """Port: raises ProviderError "only when no region could be asked at all": who asks for nothing gets nothing."""
        sheet = cloud.provider().offers(OfferQuery(frozenset(), frozenset()))
        assert (sheet.offers, dict(sheet.failures)) == ((), {})
