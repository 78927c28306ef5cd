"""How fast a partition drains, for `Retry-After`."""

from __future__ import annotations

import math
import time
from collections import deque

_WINDOW_S = 10.0
_UNKNOWN_S = 5
_MAX_S = 60


class DrainRates:
    """Bytes consumed over the last seconds, a partition each, from what requests see in passing."""

    def __init__(self) -> None:
        self._seen: dict[int, deque[tuple[float, int]]] = {}

    def note(self, partition: int, bytes_out: int, now: float | None = None) -> None:
        """Bytes ever consumed, as seen now."""
        now = time.monotonic() if now is None else now
        seen = self._seen.setdefault(partition, deque())
        if not seen or now - seen[-1][0] >= _WINDOW_S / 100:
            seen.append((now, bytes_out))
        while len(seen) > 2 and now - seen[0][0] > _WINDOW_S:
            seen.popleft()

    def seconds_to_drain(self, partition: int, n_bytes: int) -> int:
        """Whole seconds until so many bytes are consumed at the present rate, 1 to 60."""
        seen = self._seen.get(partition, deque())
        if len(seen) < 2 or seen[-1][1] <= seen[0][1]:
            return _UNKNOWN_S
        rate = (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])
        return min(_MAX_S, max(1, math.ceil(n_bytes / rate)))
