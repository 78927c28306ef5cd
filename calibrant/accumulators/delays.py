"""Delays of labels: predictions by the time from their event to their first label, on a grid of eighths of octaves.

A delay is known where a service received both. A pane that was filled at the edge has no delays. Quantiles describe the labels
that have arrived: while some are still missing, all quantiles are too low.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.ranges import BlockColumns
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums
from calibrant.core.spec import PaneSpec

BINS_PER_DOUBLING = 8
DELAY_BINS = 256
UNKNOWN = -1
RELATIVE_ERROR = 2 ** (1 / BINS_PER_DOUBLING) - 1


def delay_bin(seconds: ArrayLike) -> NDArray[np.int64]:
    """Bin of a delay: 0 below one second, then eight per doubling, up to a hundred years.

    >>> delay_bin([0, 1, 2, 86400]).tolist()
    [0, 1, 9, 132]
    """
    values = np.maximum(np.asarray(seconds, np.float64), 0.5)
    place = np.floor(BINS_PER_DOUBLING * np.log2(values)).astype(np.int64) + 1
    return np.clip(np.where(values < 1.0, 0, place), 0, DELAY_BINS - 1)


class Delays(Accumulator):
    """Labelled predictions by delay of their first label; no sums."""

    name = "delays"

    @classmethod
    def concerns(cls, batch: Batch) -> bool:
        return batch.delays is not None

    @classmethod
    def columns(cls, spec: PaneSpec) -> dict[str, BlockColumns]:
        return {"delays": BlockColumns(("predictions",), {}, DELAY_BINS)}

    def shares(self) -> dict[str, tuple[float, str]]:
        return {"predictions": (self.n, "n_labelled")}

    def fill(self, batch_sums: BatchSums) -> None:
        delays = batch_sums.batch.delays
        if delays is None or not batch_sums.n:
            return
        known = delays[delays != UNKNOWN]
        if len(known):
            self.blocks["delays"].counts[0] += np.bincount(known, minlength=DELAY_BINS)

    @property
    def n(self) -> int:
        """Predictions with a known delay."""
        return int(self.blocks["delays"].filled()[1][0].sum())

    def quantile(self, share: float) -> float | None:
        """Return the seconds within which that share of the labels arrived, at most 9 % too long; None where no delay is known.

        Parameters
        ----------
        share : 0 to 1
        """
        places, counts, _ = self.blocks["delays"].filled()
        if not len(places):
            return None
        reached = np.cumsum(counts[0])
        place = int(places[np.searchsorted(reached, share * reached[-1])])
        return float(2 ** (place / BINS_PER_DOUBLING)) if place else 1.0


ACCUMULATOR = Delays
