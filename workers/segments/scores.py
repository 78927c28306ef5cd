"""Scores of rows as they were filled, and as they are stored: in four bytes where these restore the same bits.

To find out which rows four bytes restore takes longer than to store them, so each form is computed once, where it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.core.float32 import Narrowed, narrow_scores
from calibrant_server.workers.segments.ragged import Ints

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]


class StoredScores(NamedTuple):
    """Scores as they are stored.

    Attributes
    ----------
    is_narrow : bool (n,); four bytes a score
    totals : float64 (n,), what narrow scores are divided by (`calibrant.core.float32`); 1 for others
    narrow : float32 (n_narrow, n_classes)
    wide : float64 (n - n_narrow, n_classes)
    """

    is_narrow: Mask
    totals: Floats
    narrow: NDArray[np.float32]
    wide: Floats

    def take(self, index: Ints) -> StoredScores:
        """Return the scores of some rows."""
        is_narrow = self.is_narrow[index]
        rank = np.where(
            is_narrow, np.cumsum(self.is_narrow)[index], np.cumsum(~self.is_narrow)[index]
        )
        narrow, wide = (
            self.narrow.take(rank[is_narrow] - 1, axis=0),
            self.wide.take(rank[~is_narrow] - 1, axis=0),
        )
        return StoredScores(is_narrow, self.totals[index], narrow, wide)

    @classmethod
    def of(cls, values: Floats, logits: Mask) -> StoredScores:
        """Return scores in the form in which they are stored."""
        is_narrow, narrow, totals = narrow_scores(values, logits)
        return cls(is_narrow, totals, narrow[is_narrow], values[~is_narrow])

    @property
    def narrowed(self) -> Narrowed:
        """Which rows are narrow, their scores, float32 (n, n_classes), and the totals (`float32.narrow_scores`)."""
        scores = np.zeros((len(self.is_narrow), self.narrow.shape[1]), np.float32)
        scores[self.is_narrow] = self.narrow
        return self.is_narrow, scores, self.totals

    def values(self) -> Floats:
        """Return the scores as they were filled."""
        found = np.empty((len(self.is_narrow), self.narrow.shape[1]))
        own = self.is_narrow
        found[own] = self.narrow.astype(np.float64) / self.totals[own, None]
        found[~own] = self.wide
        return found


class Scores:
    """Scores of rows in one of two forms, or in both: the other one is computed where it is needed.

    Parameters
    ----------
    values : float64 (n, n_classes), as filled
    stored : as stored
    logits : bool (n,), which rows are logits: these are never divided
    """

    def __init__(
        self, logits: Mask, values: Floats | None = None, stored: StoredScores | None = None
    ) -> None:
        assert values is not None or stored is not None
        self.logits = logits
        self._values = values
        self._stored = stored

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def n_classes(self) -> int:
        """Number of scores of a row."""
        if self._values is not None:
            return int(self._values.shape[1])
        return int(self.stored.narrow.shape[1])

    @property
    def values(self) -> Floats:
        """Scores as filled, float64 (n, n_classes)."""
        if self._values is None:
            self._values = self.stored.values()
        return self._values

    @property
    def stored(self) -> StoredScores:
        """Scores as stored."""
        if self._stored is None:
            assert self._values is not None
            self._stored = StoredScores.of(self._values, self.logits)
        return self._stored

    def take(self, index: Ints) -> Scores:
        """Return the scores of some rows."""
        values = None if self._values is None else self._values.take(index, axis=0)
        stored = None if self._stored is None else self._stored.take(index)
        return Scores(self.logits[index], values, stored)

    def without_minus_zero(self) -> Scores:
        """Return the same scores, with zero for minus zero."""
        values, stored = self._values, self._stored
        if stored is not None:
            stored = stored._replace(narrow=stored.narrow + np.float32(0.0), wide=stored.wide + 0.0)
        return Scores(self.logits, None if values is None else values + 0.0, stored)

    @classmethod
    def together(cls, parts: Sequence[Scores]) -> Scores:
        """Concatenate scores."""
        logits = np.concatenate([each.logits for each in parts])
        have_values = all(each._values is not None for each in parts)
        have_stored = all(each._stored is not None for each in parts) or not have_values
        return cls(
            logits,
            np.concatenate([each.values for each in parts]) if have_values else None,
            StoredScores(*map(np.concatenate, zip(*(each.stored for each in parts), strict=True)))
            if have_stored
            else None,
        )
