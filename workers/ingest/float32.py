"""Probabilities that were sent as float32: what a record needs to keep of them, four bytes each and their sum.

Those of a float32 network sum to 1 within some 1e-7 and are divided by their sum before they are filled. What was filled is then no
float32 any more; what was sent is, and divided again it gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# The sum of a float32 softmax is off by a few of its rounding units; so far is the largest score looked for.
_UNITS = np.arange(-8, 9)
_ROUNDING = 2.0**-51


@dataclass(frozen=True, eq=False)
class Narrow:
    """A row as it was sent, float32, and what it was divided by: kept and not summed again, as its last bit is part of the row."""

    sent: NDArray[np.float32]
    total: float

    @property
    def scores(self) -> NDArray[np.float64]:
        """The row as it is filled."""
        return self.sent.astype(np.float64) / self.total


def sent_as_float32(scores: NDArray[np.float64]) -> list[Narrow | None]:
    """Each row of probabilities as it was sent, None where that was no float32, or where it was and was not divided.

    Parameters
    ----------
    scores : float64 (n, n_classes), at least two classes
    """
    second, top = np.partition(scores, -2, axis=1)[:, -2:].T
    near = top.astype(np.float32)
    units = np.spacing(near).astype(np.float64)
    totals = (near.astype(np.float64)[:, None] + _UNITS * units[:, None]) / top[:, None]
    # Of the sums that make the largest score a float32, one makes the second largest one, too, up to rounding.
    wanted = second[:, None] * totals
    fits = np.abs(wanted - wanted.astype(np.float32)) <= _ROUNDING * wanted
    is_plain = (scores.astype(np.float32) == scores).all(axis=1)
    rows = np.flatnonzero(fits.any(axis=1) & ~is_plain)
    sent = (scores[rows] * totals[rows, np.argmax(fits[rows], axis=1)][:, None]).astype(np.float32)
    wide = sent.astype(np.float64)
    found_totals = wide.sum(axis=1)
    good = (wide / found_totals[:, None] == scores[rows]).all(axis=1)
    found: list[Narrow | None] = [None] * len(scores)
    for place in np.flatnonzero(good):
        found[rows[place]] = Narrow(sent[place], float(found_totals[place]))
    return found
