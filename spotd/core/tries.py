"""Which machine speaks for an attempt.

An attempt may have asked for several machines: one whose launch call nobody answered, and the next try. The newest try is the attempt's; an
older one that turns out to exist after all is ended. Until then it may boot, call, be warned and die like any other machine, and none of that is
about the attempt: it must not open its gate, run its workload, count as its preemption or end it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotd.core.attempt import Attempt
    from spotd.core.instance import Instance


def is_current(attempt: Attempt, instance: Instance) -> bool:
    """Whether this machine belongs to the attempt's newest try."""
    return instance.attempt_id == attempt.id and instance.try_number == attempt.tries
