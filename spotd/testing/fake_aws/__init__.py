"""An AWS account on this machine, over real HTTP: for tests, and to play with (`spotd fake-aws`).

    with FakeAws(clock=FakeClock()) as aws:
        os.environ.update(aws.environment())
        ...
        aws.reclaim(instance_id, Reclaim(notice_s=120, imds=False))

EC2, the price list, service quotas and FIS are ours: what moto lacks (facts/reclaim.md §6, §7). SQS, EventBridge, S3, STS and IAM are moto's. One
port serves all of them; service and region stand in each request's signature, which is not checked, but must be there.
"""

from spotd.testing.fake_aws.fake import FakeAws
from spotd.testing.fake_aws.faults import Held
from spotd.testing.fake_aws.fleet import Lags
from spotd.testing.fake_aws.instances import FakeInstance, Reason, SpotRequest, State
from spotd.testing.fake_aws.machines import Machines
from spotd.testing.fake_aws.market import Pool
from spotd.testing.fake_aws.reclaim import Reclaim

__all__ = ["FakeAws", "FakeInstance", "Held", "Lags", "Machines", "Pool", "Reason", "Reclaim", "SpotRequest", "State"]
