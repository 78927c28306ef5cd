"""Numbers in memory that the parent and the processes of a service share: state, counts, limits.

Each number has one writer, so nothing is locked, and a process may be killed at any time.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

# Merging, fast queries, slow queries.
N_OF_ENGINE = 3
_N_ALIVE, _N_RESTARTS, _FIRST_BEAT = 0, 1, 2


class Board:
    """Heartbeats of the processes, and the numbers of those that run and of restarts.

    Make it before the processes are forked.

    Parameters
    ----------
    n : processes that serve
    has_engine : whether three more processes have the engine, of the numbers from n on
    """

    def __init__(self, n: int, has_engine: bool) -> None:
        self.n, self.has_engine = n, has_engine
        memory = mmap.mmap(-1, 8 * (_FIRST_BEAT + n + N_OF_ENGINE))
        self._numbers = memoryview(memory).cast("d")

    def beat(self, number: int) -> None:
        """Report that the process of this number runs."""
        self._numbers[_FIRST_BEAT + number] = time.monotonic()

    def beat_at(self, number: int) -> float:
        """Return when a process reported last, as of `time.monotonic`; 0: not since its start."""
        return float(self._numbers[_FIRST_BEAT + number])

    def clear(self, number: int) -> None:
        """Forget the reports of a process that has ended."""
        self._numbers[_FIRST_BEAT + number] = 0.0

    @property
    def is_engine_alive(self) -> bool:
        """Whether the processes of the engine run, if this service has them."""
        if not self.has_engine:
            return True
        return all(self.beat_at(self.n + i) > 0 for i in range(N_OF_ENGINE))

    @property
    def n_alive(self) -> int:
        """Number of processes that serve; the parent writes it."""
        return int(self._numbers[_N_ALIVE])

    @n_alive.setter
    def n_alive(self, number: int) -> None:
        self._numbers[_N_ALIVE] = number

    @property
    def n_restarts(self) -> int:
        """Restarts since the start of the parent, which writes it."""
        return int(self._numbers[_N_RESTARTS])

    @n_restarts.setter
    def n_restarts(self, number: int) -> None:
        self._numbers[_N_RESTARTS] = number


class ProcessMetrics(Collector):
    """Series about the processes of a service; of one process alone, without a board."""

    def __init__(self, board: Board | None) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        """Yield both families."""
        board = self._board
        yield GaugeMetricFamily(
            "calibrant_service_processes",
            "Processes of this instance that serve requests.",
            value=1 if board is None else board.n_alive,
        )
        yield CounterMetricFamily(
            "calibrant_service_process_restarts",
            "Processes of this instance that ended and were started again.",
            value=0 if board is None else board.n_restarts,
        )
