"""How instances end: by us, by the cloud, by their age; and that the listing says which."""

from __future__ import annotations

from datetime import timedelta

import pytest

from spotd.core.instance import EndedBy, ObservedInstance, ObservedState
from spotd.core.notice import NoticeKind, NoticeSource
from spotd.testing.contract import steps
from spotd.testing.harness import ProviderUnderTest, eventually

#: How exactly a cloud's own instants are taken: some are whole seconds, and clocks differ a little.
_ABOUT = timedelta(seconds=2)
#: The life that is given to an instance which is to expire, in looks of the harness.
_LOOKS_TO_LIVE = 8


def _ended_well(row: ObservedInstance) -> None:
    """Assert that the row of a GONE instance tells what the ledger needs."""
    assert row.ended_by is not None
    assert steps.aware(row.ended_at)
    assert row.ended_at is not None
    if row.launched_at is not None:
        assert row.ended_at >= row.launched_at


class EndingContract:
    """`terminate(region, provider_id)`, reclaims and `notices(stop)`."""

    def test_terminate_ends_a_running_instance(self, cloud: ProviderUnderTest) -> None:
        """Port: "Returning means acknowledged, not gone", at once; "repeating is harmless". It ends GONE, by US."""
        provider, wanted = cloud.provider(), steps.request(cloud)
        region, provider_id = wanted.offer.region, steps.runs(cloud, provider, wanted)
        with steps.at_once(cloud):
            provider.terminate(region, provider_id)
            provider.terminate(region, provider_id)
            cloud.provider().terminate(region, provider_id)
        row = steps.reaches(cloud, provider, region, provider_id, ObservedState.GONE)
        assert row.ended_by in cloud.traits.words_for_us
        _ended_well(row)
        provider.terminate(region, provider_id)
        assert steps.listed(provider, region, provider_id) == row

    def test_terminate_ends_one_that_has_not_booted(self, cloud: ProviderUnderTest) -> None:
        """Port: "ask for the end of an instance", whatever it is doing: one that is still starting ends, too, and by nobody but us."""
        provider, wanted = cloud.provider(), steps.request(cloud)
        region, provider_id = wanted.offer.region, steps.launch(cloud, provider, wanted)
        provider.terminate(region, provider_id)
        row = steps.reaches(cloud, provider, region, provider_id, ObservedState.GONE)
        assert row.ended_by in cloud.traits.words_for_us | {EndedBy.NEVER_RAN}
        _ended_well(row)

    def test_terminate_ends_only_what_was_named(self, cloud: ProviderUnderTest) -> None:
        """Rule 3: a healthy job is not ended. The neighbour in the same zone, of the same job, lives on."""
        provider = cloud.provider()
        ended, kept = (steps.launch(cloud, provider, steps.request(cloud, rank=rank)) for rank in (0, 1))
        region = cloud.goods.spot.region
        provider.terminate(region, ended)
        steps.reaches(cloud, provider, region, ended, ObservedState.GONE)
        assert steps.reaches(cloud, provider, region, kept, ObservedState.RUNNING).ended_by is None

    def test_terminating_what_is_not_there_is_success(self, cloud: ProviderUnderTest) -> None:
        """Port: "An absent instance is success", however often it is named."""
        provider = cloud.provider()
        for _ in range(2):
            provider.terminate(cloud.goods.spot.region, cloud.traits.absent_id)

    def test_a_reclaim_is_the_clouds_doing(self, cloud: ProviderUnderTest) -> None:
        """RECLAIM: "The provider took it back." The row says so for good, also after a late terminate of ours: it decides what is billed."""
        provider, wanted = cloud.provider(), steps.request(cloud)
        region, provider_id = wanted.offer.region, steps.runs(cloud, provider, wanted)
        cloud.reclaim(provider_id)
        row = steps.reaches(cloud, provider, region, provider_id, ObservedState.GONE)
        assert row.ended_by is EndedBy.RECLAIM
        _ended_well(row)
        provider.terminate(region, provider_id)
        assert steps.listed(provider, region, provider_id) == row

    def test_the_channel_tells_of_a_reclaim_first_and_until_acknowledged(self, cloud: ProviderUnderTest) -> None:
        """Port: acknowledged "after the notice was committed; until then it is delivered again", to a restarted daemon, too; and before the end."""
        provider, wanted = cloud.provider(), steps.request(cloud)
        if not provider.capabilities.notice_channel:
            pytest.skip("this provider claims no channel of its own: notice_channel is False")
        region, provider_id = wanted.offer.region, steps.runs(cloud, provider, wanted)
        cloud.reclaim(provider_id)
        told = steps.hears(cloud, provider, provider_id)
        notice = told.notice
        assert (notice.kind, notice.source) == (NoticeKind.RECLAIM, NoticeSource.PROVIDER)
        assert steps.aware(notice.seen_at)
        assert notice.deadline is not None
        assert timedelta(0) < notice.deadline - notice.seen_at <= provider.capabilities.notice + _ABOUT
        again = steps.hears(cloud, cloud.provider(), provider_id)
        assert (again.notice.kind, again.notice.deadline) == (notice.kind, notice.deadline)
        again.acknowledge()
        again.acknowledge()
        told.acknowledge()
        assert not [one for one in steps.hear(provider, steps.GLANCE_S) if one.provider_id == provider_id]
        row = steps.reaches(cloud, provider, region, provider_id, ObservedState.GONE)
        assert row.ended_by is EndedBy.RECLAIM
        assert row.ended_at is not None
        assert row.ended_at >= notice.deadline - _ABOUT

    def test_the_channel_is_silent_without_a_reclaim(self, cloud: ProviderUnderTest) -> None:
        """Port: "may return none". Nothing is invented, neither for a healthy instance nor for one that we end; without a channel, never."""
        provider, wanted = cloud.provider(), steps.request(cloud)
        provider_id = steps.launch(cloud, provider, wanted)
        assert list(steps.hear(provider, steps.GLANCE_S)) == []
        provider.terminate(wanted.offer.region, provider_id)
        steps.reaches(cloud, provider, wanted.offer.region, provider_id, ObservedState.GONE)
        assert list(steps.hear(provider, steps.GLANCE_S)) == []

    def test_an_instance_that_is_too_old_is_ended_by_the_cloud(self, cloud: ProviderUnderTest) -> None:
        """expires_at: "no instance of ours lives beyond this", with no call from us, and it is no reclaim."""
        if not cloud.traits.ends_at_expiry:
            pytest.skip("this cloud has no lock of its own; that the date is passed on is a test of launching")
        provider = cloud.provider()
        wanted = steps.request(cloud, expires_at=cloud.clock.now() + timedelta(seconds=_LOOKS_TO_LIVE * cloud.traits.step_s))
        provider_id = steps.launch(cloud, provider, wanted)
        row = steps.reaches(cloud, provider, wanted.offer.region, provider_id, ObservedState.GONE)
        assert row.ended_by in {EndedBy.US, EndedBy.UNKNOWN, EndedBy.NEVER_RAN}
        _ended_well(row)
        assert cloud.clock.now() >= wanted.expires_at

    def test_everything_can_be_cleaned_up_through_the_port(self, cloud: ProviderUnderTest) -> None:
        """Rule 4: "Every instance is owned or ended." Listing and terminating alone, as the sweep does, leave nothing alive."""
        provider, goods = cloud.provider(), cloud.goods
        ids = {steps.launch(cloud, provider, steps.request(cloud, offer)) for offer in (goods.spot, goods.on_demand, goods.other_region)}
        steps.settle(cloud, provider)
        sweeper = cloud.provider()
        rows = [row for region in sweeper.regions() for row in sweeper.instances(region)]
        assert {row.provider_id for row in rows} == ids
        for row in rows:
            sweeper.terminate(row.region, row.provider_id)
        eventually(cloud, lambda: all(row.state is ObservedState.GONE for region in sweeper.regions() for row in sweeper.instances(region)))
