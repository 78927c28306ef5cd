"""What the parent and the processes of a service share in memory: which of them run, and how many were restarted."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.sharedctypes import RawArray, RawValue

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class Board:
    """Flags of the processes that run, and the number of restarts; nothing is locked, and a process may be killed at any time.

    Make it before the processes are forked.

    Parameters
    ----------
    n : processes that serve
    n_engine : processes that have the engine, of the numbers from n on
    """

    def __init__(self, n: int, n_engine: int = 0) -> None:
        self.n = n
        self._runs = RawArray("b", n + n_engine)
        self._n_restarts = RawValue("l")

    def runs(self, number: int) -> bool:
        """Return whether the process of this number has started, and was not seen to end."""
        return bool(self._runs[number])

    def note(self, number: int, runs: bool = True) -> None:
        """Note that a process runs, which it reports itself, or has ended."""
        self._runs[number] = runs

    def count_restart(self) -> None:
        """Count a restart; the parent does."""
        self._n_restarts.value += 1

    @property
    def is_engine_alive(self) -> bool:
        """Whether the processes of the engine run, if this service has them."""
        return all(self._runs[self.n :])

    @property
    def n_alive(self) -> int:
        """Number of processes that serve."""
        return sum(self._runs[: self.n])

    @property
    def n_restarts(self) -> int:
        """Restarts since the start of the parent."""
        return int(self._n_restarts.value)


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
