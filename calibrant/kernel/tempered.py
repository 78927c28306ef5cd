"""Losses of rows under softmax(z / T), by the kernel: sums over rows at several inverse temperatures in one pass."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats, Ints
from calibrant.kernel.declarations import structures
from calibrant.kernel.library import library

# From so many scores on, relative logits are stored as float32 for all passes; below, every pass computes them in double.
MANY_SCORES = 1 << 18
_LANES = 8

# Sums over rows at one inverse temperature.
SUMS = (
    "nll",
    "nll_d1",
    "nll_d2",
    "nll_d1_squared",
    "brier",
    "brier_d1",
    "brier_d2",
    "brier_d1_squared",
)
# What a pass computes besides the negative log-likelihood (NLL) and its derivatives.
WITHOUT_BRIER, WITH_BRIER, WITH_BRIER_DERIVATIVES = range(3)


@dataclass(frozen=True)
class TemperedSums:
    """Results of a pass.

    Attributes
    ----------
    sums : float64 (betas, 8), in the order of `SUMS`; those of the Brier score as the pass asked for them
    tables : float64 (betas, bins, 3): weight, weighted score and weighted correct ratings by bin of the score (right edges), or None
    rows : float64 (3, n), NLL, its slope and Brier's slope of each row at the last beta, or None
    """

    sums: Floats
    tables: Floats | None
    rows: Floats | None


class TemperedRows:
    """Rows of scores with weighted ratings, read where they are.

    Parameters
    ----------
    scores : float64 or float32 (n, n_classes), any strides; probabilities, or logits if `is_logits`
    is_logits, is_binary : the score of a row is that of class 1 of binary rows, else of the most probable class
    row, class_index, weight : (entries,) of the ratings, sorted by row; `weight` None is 1 each
    edge_rules : uint8 (n,), as of `Batch`

    Attributes
    ----------
    weight, weight_all : of the ratings of positive probability, and of all; known after a pass
    n_impossible : entries whose class has probability 0; likewise
    is_incorrect : bool (n,), whether a rating with weight is not of the most probable class; likewise

    Raises
    ------
    MemoryError
        There is no memory for the relative logits.
    """

    def __init__(
        self,
        scores: NDArray[np.floating],
        row: Ints,
        class_index: Ints,
        weight: Floats | None,
        *,
        is_logits: bool,
        is_binary: bool,
        edge_rules: NDArray[np.uint8] | None = None,
    ) -> None:
        self._scores = scores if scores.dtype == np.float32 else np.asarray(scores, np.float64)
        self._entries = (
            np.ascontiguousarray(row, np.int64),
            np.ascontiguousarray(class_index, np.int64),
        )
        self._weight = None if weight is None else np.ascontiguousarray(weight, np.float64)
        self._rules = None if edge_rules is None else np.ascontiguousarray(edge_rules, np.uint8)
        self.n, self.n_classes = scores.shape
        slots = np.empty(-(-self.n // _LANES), np.int64)
        self._sent, self.is_incorrect = np.empty(self.n), np.zeros(self.n, np.bool_)
        size = self._scores.itemsize
        self._rows: Any = structures()["TemperedRows"](
            *(self.n, self.n_classes, len(row)),
            *(size == np.dtype(np.float32).itemsize, is_logits, is_binary),
            self._scores.ctypes.data,
            *(stride // size for stride in self._scores.strides),
            *(each.ctypes.data for each in self._entries),
            *(None if each is None else each.ctypes.data for each in (self._weight, self._rules)),
            slots.ctypes.data,
        )
        self._slots, self._tiles = slots, np.empty(0, np.float32)
        self._rows.sent = self._sent.ctypes.data
        self._rows.is_incorrect = self.is_incorrect.ctypes.data
        self._call(None)
        if scores.size >= MANY_SCORES:
            self._store_tiles()

    def _store_tiles(self) -> None:
        size = len(self._slots) * (self.n_classes + 1) + 2 * self._rows.n_slots
        # Not from numpy, which asks for huge pages: in fragmented memory, finding these takes longer than all passes.
        self._tiles = np.frombuffer(bytearray(4 * size * _LANES), np.float32)
        self._rows.tiles = self._tiles.ctypes.data
        self._call(None)

    @property
    def is_exact(self) -> bool:
        """Whether sums are computed in float64 throughout."""
        return not len(self._tiles)

    @property
    def weight(self) -> float:
        return float(self._rows.row_sums[0])

    @property
    def weight_all(self) -> float:
        return float(self._rows.row_sums[1])

    @property
    def n_impossible(self) -> int:
        return int(self._rows.n_impossible)

    def sums(
        self,
        betas: Floats,
        order: int,
        *,
        bins: int = 0,
        doubles_every: int = 0,
        by_row: bool = False,
        is_exact: bool = False,
    ) -> TemperedSums:
        """Return the sums over rows at each beta.

        Parameters
        ----------
        betas : float64 (betas,)
        order : `WITHOUT_BRIER`, `WITH_BRIER` or `WITH_BRIER_DERIVATIVES`
        bins : of the tables; 0 for none
        doubles_every : 2 where betas[i + 2] = 2 betas[i], which saves exponentials; else 0
        by_row : whether to return the values of each row at the last beta
        is_exact : whether to compute in float64 although the rows are stored as float32
        """
        betas = np.ascontiguousarray(betas, np.float64)
        sums = np.empty((len(betas), len(SUMS)))
        tables = np.empty((len(betas), bins, 3)) if bins else None
        rows = np.empty((3, self.n)) if by_row else None
        numbers = (len(betas), order, is_exact, doubles_every)
        asked: Any = structures()["TemperedPass"](
            *numbers, betas.ctypes.data, sums.ctypes.data, bins
        )
        asked.tables = None if tables is None else tables.ctypes.data
        asked.row_values = None if rows is None else rows.ctypes.data
        self._call(asked)
        return TemperedSums(sums, tables, rows)

    def tables(self, betas: Floats, nodes: Floats, left: Ints, basis: Floats, bins: int) -> Floats:
        """Return the tables at many betas, by polynomials through the rows' normalisers at the nodes.

        Parameters
        ----------
        betas : float64 (betas,)
        nodes : float64 (nodes,), at most 128 betas
        left : int64 (betas,), the node before each beta
        basis : float64 (betas, 6), factors of value and two derivatives in log beta at the nodes before and after

        Returns
        -------
        float64 (betas, bins, 3), as `TemperedSums.tables`
        """
        given = [np.ascontiguousarray(each) for each in (nodes, betas, left, basis)]
        tables = np.empty((len(betas), bins, 3))
        asked: Any = structures()["TemperedTables"](
            len(nodes), len(betas), bins, *(each.ctypes.data for each in given)
        )
        asked.tables = tables.ctypes.data
        _checked(
            library().calibrant_kernel_tempered_tables(
                ctypes.byref(self._rows), ctypes.byref(asked)
            )
        )
        return tables

    def _call(self, asked: ctypes.Structure | None) -> None:
        pointer = None if asked is None else ctypes.byref(asked)
        _checked(library().calibrant_kernel_tempered(ctypes.byref(self._rows), pointer))


def _checked(status: int) -> None:
    if status:
        raise MemoryError("Received no memory for the sums of a temperature.")
