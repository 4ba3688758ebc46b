"""What a provider says of itself."""

from __future__ import annotations

from datetime import timedelta

from spotd.core.billing import terms_at
from spotd.ports import MetadataKind
from spotd.testing.harness import ProviderUnderTest


class CapabilityContract:
    """Name, regions, capabilities."""

    def test_capabilities_make_sense(self, cloud: ProviderUnderTest) -> None:
        """Port: "what a provider can do, as values". Durations are positive, and an agent calls before it is given up."""
        can = cloud.provider().capabilities
        zero = timedelta(0)
        assert can.notice > zero
        assert zero < can.heartbeat < can.boot_timeout
        assert can.metadata_poll > zero
        assert can.metadata is MetadataKind.NONE or can.metadata_poll < can.notice
        assert can.listing_lag >= zero
        assert isinstance(can.billing_speed, int)
        assert can.billing_speed >= 1

    def test_the_billing_rule_is_known(self, cloud: ProviderUnderTest) -> None:
        """Port: billing_rule is the "name of the dated rule in `core.billing`", and the rule is there."""
        assert terms_at(cloud.provider().capabilities.billing_rule, cloud.clock.now()).version

    def test_capabilities_are_fixed(self, cloud: ProviderUnderTest) -> None:
        """Port: "fixed for the life of the object", and a restarted daemon finds the same ones."""
        provider = cloud.provider()
        assert provider.capabilities == provider.capabilities == cloud.provider().capabilities

    def test_name_and_regions(self, cloud: ProviderUnderTest) -> None:
        """Port: "the word used in policies and offers", and "every region this provider is configured for", each once, the goods' among them."""
        provider, goods = cloud.provider(), cloud.goods
        regions = list(provider.regions())
        assert {key.provider for key in (goods.spot, goods.on_demand, goods.other_zone, goods.other_region)} == {provider.name}
        assert len(regions) == len(set(regions))
        assert {goods.spot.region, goods.other_region.region} <= set(regions)

    def test_closing_ends_nothing_and_may_be_repeated(self, cloud: ProviderUnderTest) -> None:
        """Port: "release what this object holds": also twice, and other objects on the account work on."""
        provider, other = cloud.provider(), cloud.provider()
        provider.close()
        provider.close()
        assert other.instances(cloud.goods.spot.region) == other.instances(cloud.goods.spot.region)
