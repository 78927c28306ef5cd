"""Probabilities that were sent as float32: a record stores four bytes each, and their sum.

The output of a float32 network sums to 1 within some 1e-7 and is divided by its sum before it is filled. The filled values
are then not float32 any more. The values sent are, and dividing them again gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# The sum of a float32 softmax deviates by a few of its rounding units: the search range for the largest score.
_UNITS = np.arange(-8, 9)
_ROUNDING = 2.0**-51


@dataclass(frozen=True, eq=False)
class Narrow:
    """A row as sent, float32, and its divisor: stored instead of summed again, since its last bit is part of the row."""

    sent: NDArray[np.float32]
    total: float

    @property
    def scores(self) -> NDArray[np.float64]:
        """The row as it is filled."""
        return self.sent.astype(np.float64) / self.total


def sent_as_float32(scores: NDArray[np.float64]) -> list[Narrow | None]:
    """Return each row of probabilities as it was sent; None if it was not float32, or float32 but not divided.

    Parameters
    ----------
    scores : float64 (n, n_classes), at least two classes
    """
    second, top = np.partition(scores, -2, axis=1)[:, -2:].T
    near = top.astype(np.float32)
    units = np.spacing(near).astype(np.float64)
    totals = (near.astype(np.float64)[:, None] + _UNITS * units[:, None]) / top[:, None]
    # Of the sums that make the largest score a float32, one also makes the second largest one so, up to rounding.
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
