"""What tests of spotd and of its providers share, shipped because whoever writes a provider elsewhere needs it, too.

`FakeClock` is time to step, `FakeCloud` a cloud in memory that takes orders, `MemoryStore` a store without a disk. `ProviderUnderTest` (with its
`Goods` and `Traits`) is what a provider's author writes around a cloud so that the one contract suite can run against it; `eventually` lets its
time pass. The suite itself is `spotd.testing.contract.ProviderContract`: not among the names here, because it needs pytest, and the simulator,
which takes its store from here, does not.
"""

from spotd.testing.clock import FakeClock
from spotd.testing.fake_cloud import FakeCloud
from spotd.testing.harness import Goods, ProviderUnderTest, Traits, eventually
from spotd.testing.memory_store import MemoryStore

__all__ = ["FakeClock", "FakeCloud", "Goods", "MemoryStore", "ProviderUnderTest", "Traits", "eventually"]
