"""The one contract that every provider passes: what `spotd.ports.Provider` and DESIGN §4, §5 say, as tests.

    from spotd.testing.contract import ProviderContract

    class TestMine(ProviderContract):
        @pytest.fixture
        def cloud(self) -> Iterator[ProviderUnderTest]:
            mine = MyCloud()
            yield mine
            mine.clean_up()

Every test's docstring quotes the sentence it proves. docs/provider-guide.md says how to write the harness, and what the sentences mean.
"""

import pytest

# Before they are imported: a failed assertion shows what it compared.
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in ("capabilities", "ending", "launching", "listing", "outages", "selling", "steps")))

from spotd.testing.contract.capabilities import CapabilityContract  # noqa: E402 - see above
from spotd.testing.contract.ending import EndingContract  # noqa: E402
from spotd.testing.contract.launching import LaunchingContract  # noqa: E402
from spotd.testing.contract.listing import ListingContract  # noqa: E402
from spotd.testing.contract.outages import OutageContract  # noqa: E402
from spotd.testing.contract.selling import SellingContract  # noqa: E402

__all__ = ["ProviderContract"]


class ProviderContract(CapabilityContract, SellingContract, LaunchingContract, ListingContract, EndingContract, OutageContract):
    """Derive a test class from it and give it a fixture `cloud`: a new, empty `ProviderUnderTest` for every test."""
