"""How fast partitions consume their backlog, for `Retry-After`."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import NamedTuple

_WINDOW_S = 10.0
_STEP_S = 0.1
_UNKNOWN_WAIT_S = 5
_MAX_WAIT_S = 60
# Work that pauses for longer than this has stopped: its rate before the pause says nothing about the rate after it.
_STALLED_S = 2.0


class _Sample(NamedTuple):
    at_s: float
    bytes_out: int
    backlog: int


class DrainRates:
    """Bytes consumed per partition over the last seconds, as requests see them; for `Retry-After`."""

    def __init__(self) -> None:
        self._samples: dict[int, deque[_Sample]] = {}

    def note(self, partition: int, bytes_out: int, backlog: int, now: float | None = None) -> None:
        """Note the number of bytes ever consumed, and of those that wait."""
        now = time.monotonic() if now is None else now
        samples = self._samples.setdefault(partition, deque())
        if not samples or now - samples[-1].at_s >= _STEP_S or bytes_out < samples[-1].bytes_out:
            samples.append(_Sample(now, bytes_out, backlog))
        while len(samples) > 2 and now - samples[0].at_s > _WINDOW_S:
            samples.popleft()

    def seconds_to_drain(self, partition: int, n_bytes: int) -> int:
        """Return the whole seconds until so many bytes are consumed at the present rate, 1 to 60."""
        busy = self._busy(list(self._samples.get(partition, ())))
        consumed = busy[-1].bytes_out - busy[0].bytes_out if busy else 0
        if consumed <= 0:
            return _UNKNOWN_WAIT_S
        rate = consumed / (busy[-1].at_s - busy[0].at_s)
        return min(_MAX_WAIT_S, max(1, math.ceil(n_bytes / rate)))

    @staticmethod
    def _busy(samples: list[_Sample]) -> list[_Sample]:
        """Return the last samples between which work went on all the time: it neither stopped nor lacked entries."""
        first, since = len(samples) - 1, None
        for at in range(len(samples) - 1, 0, -1):
            earlier, later = samples[at - 1], samples[at]
            consumed = later.bytes_out - earlier.bytes_out
            since = later.at_s if since is None else since
            lacked_entries = consumed > earlier.backlog
            if consumed < 0 or lacked_entries or since - earlier.at_s > _STALLED_S:
                break
            if consumed > 0:
                first, since = at - 1, earlier.at_s
        return samples[max(first, 0) :]
