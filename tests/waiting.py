"""How tests wait for other threads and processes: they poll, and give up only where a failure is certain."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

# No test measures speed: on a machine with twenty processes for each core, this limit must not be reached.
PATIENCE_S = 240.0
PAUSE_S = 0.01
# A longer wait is polled less often: looks cost CPU that what is waited for needs.
PAUSE_GROWTH, MAX_PAUSES = 1.1, 6

Found = TypeVar("Found")


def eventually(
    condition: Callable[[], Found], seconds: float = PATIENCE_S, pause_s: float = PAUSE_S
) -> Found:
    """Poll a condition until it holds, and return what it returned; fail after `seconds`.

    The pause between two looks grows from `pause_s` to six times that.
    """
    deadline, pause = time.monotonic() + seconds, pause_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"the condition did not hold within {seconds:g} s"
        time.sleep(pause)
        pause = min(pause * PAUSE_GROWTH, pause_s * MAX_PAUSES)
    return found
