"""The same work again and again while something else is measured: its CPU time shows what the machine adds.

Where processes share cores and caches, the same instructions take more CPU time. A worker's CPU time in two states of the machine
compares only after division by that of this work, which is the same in both: it unpacks a batch, packs its rows for a tail and fills
them, as a worker does.

`python -m benchmarks.control` divides this work for 16 panes among 1, 2 and 4 processes, at the same rate in all: what it then takes more is
what several workers take more on these cores without doing anything more.
"""

from __future__ import annotations

import argparse
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import TracebackType

import numpy as np

from benchmarks.fleet import N_CLASSES
from benchmarks.one_model import payloads
from calibrant import Batch, Pane, PaneSpec
from calibrant_server.workers.segments.rows import Rows

N_ROWS, N_BATCHES = 1000, 50
# Seldom enough that it takes a few hundredths of a core: it also finds the caches as a worker does, full of other data.
EVERY_S = 0.25
PROCESSES = (1, 2, 4)
N_PANES = 16


class Control(threading.Thread):
    """A thread that does the work while a `with` block runs, and its CPU time per row."""

    def __init__(self, n_panes: int = 1) -> None:
        super().__init__(daemon=True)
        self._batches = list(payloads(N_BATCHES, N_ROWS))
        self._panes = [Pane(PaneSpec("multiclass", N_CLASSES)) for _ in range(n_panes)]
        for pane in self._panes:
            for each in self._batches:
                pane.fill_batch(Batch.unpack(each))
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
        Rows.of_batch(batch, 0).pack()
        self._panes[number % len(self._panes)].fill_batch(batch)
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


def share_us(n_panes: int, every_s: float, seconds: float) -> float:
    """Return the µs per row of the work of one of several processes, which begins at the next of its times."""
    control = Control(n_panes)
    began = time.monotonic()
    number = 0
    while time.monotonic() < began + seconds:
        control.do(number)
        number += 1
        time.sleep(max(0.0, began + number * every_s - time.monotonic()))
    return control.us_per_row


def divided_us(n_processes: int, rate: float, seconds: float) -> float:
    """Return the µs per row of work that so many processes do together, `rate` times a second."""
    every_s, n_panes = n_processes / rate, N_PANES // n_processes
    with ProcessPoolExecutor(n_processes, get_context("spawn")) as pool:
        shares = [pool.submit(share_us, n_panes, every_s, seconds) for _ in range(n_processes)]
        return float(np.mean([each.result() for each in shares]))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=60.0, help="batches per second of all")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    found = np.array(
        [[divided_us(n, given.rate, given.seconds) for n in PROCESSES] for _ in range(given.rounds)]
    )
    relative = np.median(found / found[:, :1], axis=0)
    print("| processes | µs of CPU per row | relative to one process |\n|---|---|---|")
    for place, n in enumerate(PROCESSES):
        print(f"| {n} | {np.median(found[:, place]):.2f} | {relative[place]:.2f} |")


if __name__ == "__main__":
    main()
