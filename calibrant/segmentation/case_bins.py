"""Bins of every case and class under hard or soft membership, from the stored tables of cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.block import Block
from calibrant.core.arrays import Floats, Ints, ratio
from calibrant.core.documents import Extra
from calibrant.core.grid import Edges
from calibrant.core.label_policies import POLICIES
from calibrant.segmentation.case_tables import SUMS, Layout

SOFT_EMPTY = 0.01
MEMBERSHIPS = ("hard", "soft")
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class CaseBins:
    """Sums of some cases, by case, class and bin.

    Attributes
    ----------
    weight, confidence, correct : float64 (n_cases, n_classes, n_bins); Σ ψ, Σ ψ p, Σ ψ y
    least : weight below which a bin is empty: 0.01 for soft bins, and 0 itself for hard ones
    total, positives : float64 (n_cases, n_classes), weight of the class's predictions and of its ratings
    predicted, hit : float64 (n_cases, n_classes), weight of predictions with this top class and of their ratings of it
    ranked : float64 (n_cases, n_classes), weight of the class's predictions whose top class is known, whichever it is
    gap_error : float64 (n_cases, n_classes, n_bins), bound on the error of a gap; 0 except for soft bins of plain histograms
    """

    weight: Floats
    confidence: Floats
    correct: Floats
    least: float
    total: Floats
    positives: Floats
    predicted: Floats
    hit: Floats
    ranked: Floats
    gap_error: Floats

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def n_bins(self) -> int:
        return int(self.weight.shape[2])

    @property
    def filled(self) -> Flags:
        """Whether a bin is not empty."""
        return (self.weight > 0) & (self.weight >= self.least)

    @property
    def mean(self) -> Floats:
        """Mean confidence e_m of each bin, nan if it is empty."""
        return _ratio(self.confidence, self.weight, self.filled)

    @property
    def rate(self) -> Floats:
        """Observed frequency o_m of each bin, nan if it is empty."""
        return _ratio(self.correct, self.weight, self.filled)

    @property
    def gap(self) -> Floats:
        """|o_m - e_m|, 0 where the bin is empty."""
        return np.abs(_ratio(self.correct - self.confidence, self.weight, self.filled, 0.0))

    @property
    def known(self) -> Flags:
        """Whether the case has any data on the class; (n_cases, n_classes)."""
        return self.total > 0

    @property
    def present(self) -> Flags:
        """Whether the class occurs among the case's ratings; (n_cases, n_classes)."""
        return self.positives > 0

    @property
    def top_known(self) -> Flags:
        """Whether the top class of all the class's predictions is known; plain histograms do not contain it."""
        return (self.total > 0) & (self.ranked >= self.total * (1.0 - 1e-9))

    @property
    def dice(self) -> Floats:
        """Dice, 2 TP / (2 TP + FP + FN) of top class against ratings.

        It is 0 if the class is present and never on top, and nan if neither has the class or top classes are unknown.

        Source
        ------
        Dice (Ecology 1945).
        """
        size = self.predicted + self.positives
        return _ratio(2.0 * self.hit, size, (size > 0) & self.top_known)

    def of_classes(self, classes: NDArray[Any]) -> CaseBins:
        """Return these classes only."""
        return self._each(lambda values: values[:, classes])

    def of_cases(self, cases: NDArray[Any]) -> CaseBins:
        """Return these cases only."""
        return self._each(lambda values: values[cases])

    def with_cases(self, other: CaseBins) -> CaseBins:
        """Return the cases of both, these first."""
        both: Extra = {
            name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in SUMMED
        }
        return replace(self, **both)

    def _each(self, change: Callable[[Floats], Floats]) -> CaseBins:
        changed: Extra = {name: change(getattr(self, name)) for name in SUMMED}
        return replace(self, **changed)

    def pooled(self, use: Flags) -> CaseBins:
        """Return all cases pooled, only the (case, class) pairs marked in `use`, bool (n_cases, n_classes)."""
        added: Extra = {}
        for name in SUMMED:
            values = getattr(self, name)
            mask = use[:, :, None] if values.ndim == 3 else use
            if name == "gap_error":
                values = values * self.weight
            added[name] = (values * mask).sum(axis=0, keepdims=True)
        weight = added["weight"]
        added["gap_error"] = _ratio(added["gap_error"], weight, weight > 0, 0.0)
        return replace(self, **added)


SUMMED = tuple(field.name for field in fields(CaseBins) if field.name != "least")


def bin_cases(
    tables: Mapping[str, Block],
    layout: Layout,
    bins: int,
    membership: str,
    edges: Edges,
    policy: int,
    histogram_bins: Mapping[str, int] | None = None,
    *,
    from_rows: bool = False,
    n_own: int | None = None,
) -> CaseBins:
    """Return bins of every table, in the order of `tables`.

    Parameters
    ----------
    tables : case to table with that layout
    bins : number of bins; a divisor of the layout's cells, and of half of them for soft membership
    membership : "hard" for equal-width bins, "soft" for triangles of half-width 1 / bins around the bins' centres
    edges : for hard bins
    policy : place in `POLICIES`
    histogram_bins : bins of the plain histograms of which some cases consist, which bound the error of soft bins
    from_rows : tables of rows alone, whose top class is known even if no class of the layout is on top
    n_own : number of the model's classes, which come first in the layout. Default: all.

    Returns
    -------
    CaseBins, exact to rounding except for `gap_error`.

    Raises
    ------
    ValueError
        The layout's cells do not give these bins exactly.

    Source
    ------
    Barfoot et al., eq. 1 and fig. 2; triangles are flat beyond the outermost centres, so that memberships of a
    score sum to 1.
    """
    if layout.cells % (bins if membership == "hard" else 2 * bins):
        raise ValueError(f"{layout.cells} cells do not give {bins} {membership} bins exactly")
    filled = [table.filled() for table in tables.values()]
    case = np.repeat(np.arange(len(filled)), [len(places) for places, _, _ in filled])
    place = np.concatenate([places for places, _, _ in filled] or [np.zeros(0, np.int64)])
    columns = np.concatenate([sums for _, _, sums in filled] or [np.zeros((len(SUMS), 0))], axis=1)
    named = _of_policy(columns, policy)
    shape = (len(filled), layout.n_classes)
    at_top = place >= layout.n_classes * layout.width
    top = case[at_top] * layout.n_classes + place[at_top] - layout.n_classes * layout.width
    predicted, hit = (_added(top, named[name][at_top], shape) for name in ("weight", "correct"))
    case, place = case[~at_top], place[~at_top]
    named = {name: values[~at_top] for name, values in named.items()}
    table = case * layout.n_classes + place // layout.width
    position = place % layout.width
    total, positives = (_added(table, named[name], shape) for name in ("weight", "correct"))
    # A stored layout has every class, so that each prediction is on top of one of them.
    ranked = (
        total
        if from_rows
        else np.broadcast_to(predicted[:, :n_own].sum(axis=1, keepdims=True), shape)
    )
    if membership == "hard":
        at = table * bins + layout.grid.bins(bins, edges)[position]
        weight, confidence, correct = (
            _added(at, named[name], (*shape, bins)) for name in ("weight", "confidence", "correct")
        )
        return CaseBins(
            weight,
            confidence,
            correct,
            0.0,
            total,
            positives,
            predicted,
            hit,
            ranked,
            np.zeros((*shape, bins)),
        )
    weight, confidence, correct = _soft_sums(table, position, named, layout, bins, shape)
    coarse = np.array([(histogram_bins or {}).get(name, 0) for name in tables])
    error = _soft_error(table, position, named["weight"], coarse[case], layout, bins, weight)
    return CaseBins(
        weight, confidence, correct, SOFT_EMPTY, total, positives, predicted, hit, ranked, error
    )


def soft_place(score: Floats, bins: int) -> tuple[Ints, Floats]:
    """Return the lower of the two soft bins of a score, and its membership in the upper one.

    Parameters
    ----------
    score : float64 (n,), in [0, 1]
    bins : int

    Returns
    -------
    int64 (n,) in [0, bins), float64 (n,) in [0, 1]; at or beyond the outermost centres the membership in the upper
    bin is 0, or the lower bin is the last one.
    """
    along = score * bins - 0.5
    lower = np.clip(np.floor(along), 0, bins - 1)
    upper = np.where(lower == bins - 1, 0.0, np.clip(along - lower, 0.0, 1.0))
    return lower.astype(np.int64), upper


def _of_policy(columns: Floats, policy: int) -> dict[str, Floats]:
    suffix = "_pooled" if policy == 0 else ""
    return {
        "weight": columns[SUMS.index("weight" + suffix)],
        "confidence": columns[SUMS.index("confidence" + suffix)],
        "confidence_squared": columns[SUMS.index("confidence_squared" + suffix)],
        "correct": columns[SUMS.index("correct_" + POLICIES[policy])],
        "product": columns[SUMS.index("product_" + POLICIES[policy])],
    }


def _soft_sums(
    table: Ints,
    position: Ints,
    named: Mapping[str, Floats],
    layout: Layout,
    bins: int,
    shape: tuple[int, int],
) -> list[Floats]:
    """Return Σ ψ, Σ ψ p and Σ ψ y: in a cell the membership of the upper bin is M p - (m + 1/2), linear."""
    lower, inner = _soft_position(position, layout, bins)
    at = table * bins + lower
    above = np.where(inner, at + 1, at)
    result = []
    for plain, times_score in (
        ("weight", "confidence"),
        ("confidence", "confidence_squared"),
        ("correct", "product"),
    ):
        share = np.where(inner, bins * named[times_score] - (lower + 0.5) * named[plain], 0.0)
        shape_of_bins = (*shape, bins)
        result.append(
            _added(at, named[plain] - share, shape_of_bins) + _added(above, share, shape_of_bins)
        )
    return result


def _soft_position(position: Ints, layout: Layout, bins: int) -> tuple[Ints, Flags]:
    """Return the lower soft bin of a cell, and whether it shares its scores with the next."""
    grid = layout.grid
    along = (grid.lower[position] + grid.upper[position]) / 2.0 * bins - 0.5
    lower = np.clip(np.floor(along), 0, bins - 1).astype(np.int64)
    return lower, (along > 0) & (lower < bins - 1)


def _soft_error(
    table: Ints,
    position: Ints,
    weight: Floats,
    coarse: Ints,
    layout: Layout,
    bins: int,
    total: Floats,
) -> Floats:
    """Bound each gap's error if Σ p² and Σ p y are from histograms.

    In a histogram's bin of width h, Σ p y differs by at most W h / 4 from that of a single score, and Σ p² by at most W
    h² / 4; both are multiplied by M and count in both soft bins of the cell.
    """
    if not coarse.any():
        return np.zeros_like(total)
    h = ratio(1.0, coarse)
    lower, inner = _soft_position(position, layout, bins)
    missed = np.where(inner, bins * weight * h * (1.0 + h) / 4.0, 0.0)
    at = table * bins + lower
    added = _added(at, missed, total.shape) + _added(
        np.where(inner, at + 1, at), missed, total.shape
    )
    return np.minimum(_ratio(added, total, total >= SOFT_EMPTY, 0.0), 1.0)


def _added(at: Ints, values: Floats, shape: tuple[int, ...]) -> Floats:
    return np.bincount(at, values, int(np.prod(shape))).astype(np.float64).reshape(shape)


def _ratio(over: Floats, under: Floats, where: Flags, otherwise: float = np.nan) -> Floats:
    return np.asarray(np.divide(over, under, out=np.full(under.shape, otherwise), where=where))
