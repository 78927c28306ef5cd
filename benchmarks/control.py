"""The same work again and again while something else is measured: its CPU time shows what the machine adds.

Where processes share cores and caches, the same instructions take more CPU time. A worker's CPU time in two states of the machine
compares only after division by that of this work, which is the same in both: it unpacks a batch, packs its rows for a tail and fills
them, as a worker does.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

import numpy as np

from benchmarks.fleet import N_CLASSES
from benchmarks.hot_model import payloads
from calibrant import Batch, Pane, PaneSpec
from calibrant_server.workers.ingest.tail_rows import TailRows

N_ROWS, N_BATCHES = 1000, 50
# Seldom enough that it takes a few hundredths of a core: it also finds the caches as a worker does, full of other data.
EVERY_S = 0.25


class Control(threading.Thread):
    """A thread that does the work while a `with` block runs, and its CPU time per row."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._batches = list(payloads(N_BATCHES, N_ROWS))
        self._pane = Pane(PaneSpec("multiclass", N_CLASSES))
        for each in self._batches:
            self._pane.fill_batch(Batch.unpack(each))
        self._ended = threading.Event()
        self._seconds: list[float] = []

    def __enter__(self) -> Control:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        """Do the work every `EVERY_S` until the block ends."""
        while not self._ended.wait(EVERY_S):
            self.do(len(self._seconds))

    def do(self, number: int) -> None:
        """Do the work once."""
        data, started = self._batches[number % N_BATCHES], time.thread_time()
        batch = Batch.unpack(data)
        TailRows.of_batch(batch, 0).pack()
        self._pane.fill_batch(batch)
        self._seconds.append(time.thread_time() - started)

    @property
    def us_per_row(self) -> float:
        """Mean µs of CPU per row so far."""
        return 1e6 * float(np.mean(self._seconds)) / N_ROWS


def alone_us(n: int = 40) -> float:
    """Return the µs per row of the same work while the other processes of a benchmark do not run."""
    with Control() as control:
        time.sleep(n * EVERY_S)
    return control.us_per_row
