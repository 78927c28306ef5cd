"""Nixon's adaptive calibration errors: the unweighted mean of gaps over classes and ranges of equal mass in each.

ACE uses every probability, TACE those above `epsilon`. A class without any counts as 0, as its empty ranges would. In an unweighted
mean a lost range weighs as much as a full one, and the cells of small probabilities contain several cuts each. Therefore stored cells
are divided in proportion to mass, unlike in the other equal-mass metrics. `error_bound` is how far that can matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats
from calibrant.core.cells import Cells, rank_groups
from calibrant.core.query import TIES, Option
from calibrant.core.view import NoResultError, View
from calibrant.estimators.cut_error import cut_error, plain_mean_gap
from calibrant.inference.gap_uncertainty import effective_classes, of_dependent_classes
from calibrant.inference.null_reference import NullReference, gap_null
from calibrant.metrics.calibration_errors import mean_gap
from calibrant.metrics.formula_metric import FormulaMetric, MetricValue

EPSILON = Option("epsilon", 0.01, "Probabilities above this are used.", low=0.0, high=1.0)


@dataclass(frozen=True)
class ClassRanges:
    """One class's ranges, float64 (n_ranges,), and the largest change of their mean gap from what is not known."""

    weight: Floats
    gap: Floats
    null_variance: Floats
    error_bound: float
    error_estimate: float = 0.0


def by_rank(cells: Cells, bins: int) -> ClassRanges:
    """Group rows so that group sizes differ by at most one."""
    if not len(cells):
        return _NO_RANGES
    group = rank_groups(len(cells), bins)
    found = cells.grouped(group, int(group[-1]) + 1)
    return ClassRanges(found.weight, found.gap, found.null_variance, 0.0)


def by_mass(cells: Cells, bins: int, deviation: float = 0.0) -> ClassRanges:
    """Divide cells into ranges of equal mass.

    `deviation` is that of `above`: the standard deviation of what a threshold inside a cell includes or excludes.

    A cut inside a cell of one score is placed after it, so that ties stay together. Inside any other cell, the cut divides it in
    proportion.
    """
    if not len(cells):
        return _NO_RANGES
    mass = np.concatenate([[0.0], np.cumsum(cells.weight)])
    target = mass[-1] * np.arange(1, bins) / bins
    inside = np.minimum(np.searchsorted(mass[1:], target * (1.0 - 1e-12)), len(cells) - 1)
    divisible = cells.divisible
    cuts = np.unique(
        np.concatenate([[0.0], np.where(divisible[inside], target, mass[inside + 1]), mass[-1:]])
    )
    weight, difference, variance = (
        np.diff(np.interp(cuts, mass, np.concatenate([[0.0], np.cumsum(column)])))
        for column in (cells.weight, cells.correct - cells.confidence, cells.null_variance)
    )
    cut = np.unique(inside[divisible[inside]])
    gap = difference / weight
    bound = _proportion_bound(cells, cut, weight, difference)
    value = float(np.abs(gap).mean())
    estimate = cut_error(cells, bins, value, plain_mean_gap, deviation)
    return ClassRanges(weight, gap, variance, bound, estimate)


def _proportion_bound(
    cells: Cells, cut: NDArray[np.int64], weight: Floats, difference: Floats
) -> float:
    """Bound the change of the mean gap over ranges when correct ratings are anywhere inside the cells that were divided.

    Over the pieces of a cell the differences can be off by twice those of its correct and incorrect ratings.
    A cut at a row instead of the exact mass moves at most one prediction.
    """
    if not len(cut):
        return 0.0
    up, down = cells.largest_shift
    least = float(weight.min())
    one = float((cells.weight[cut] / cells.predictions[cut]).max())
    off = 2.0 * float((up + down)[cut].sum()) + 2.0 * one * float(np.abs(difference / weight).sum())
    return min(off / (least * len(weight)), 1.0)


def above(cells: Cells, epsilon: float | None) -> tuple[Cells, float, float]:
    """Return the cells whose mean score exceeds epsilon, and what is not known of the cell that contains epsilon.

    Returns
    -------
    cells : all if epsilon is None
    weight : of the cell that contains epsilon
    deviation : standard deviation of correct minus scores in half of that cell
    """
    if epsilon is None:
        return cells, 0.0, 0.0
    astride = (cells.lower < epsilon) & (cells.upper > epsilon)
    # A mean of equal scores is rounded; the score itself is not.
    score = np.where(cells.upper > cells.lower, cells.mean, cells.lower)
    half = 0.25 * (cells.label_variance + cells.weight**2 * cells.gap**2)
    deviation = float(np.sqrt(np.maximum(half[astride], 0.0).sum()))
    return cells.select(score > epsilon), float(cells.weight[astride].sum()), deviation


def classes_of(view: View, epsilon: float | None) -> list[ClassRanges]:
    """Return each class's ranges of the probabilities above epsilon.

    Raises
    ------
    NoResultError
        Plain histograms, classes whose cells are not stored, or ties to split without rows.
    """
    split = TIES.of(view.pane_query) == "split"
    if split and not view.is_raw:
        raise NoResultError("needs_rows", "only ties of raw rows can be split")
    view.reject_histograms()
    return [
        _class_ranges(view, class_index, epsilon, split)
        for class_index in range(view.spec.n_classes)
    ]


def _class_ranges(view: View, class_index: int, epsilon: float | None, split: bool) -> ClassRanges:
    scope, bins = f"class:{class_index}", view.pane_query.bins
    if split:
        rows = view.row_cells(scope)
        return by_rank(above(rows.select(rows.weight > 0), epsilon)[0], bins)
    cells, astride, deviation = above(view.cells_of(scope).together(), epsilon)
    found = by_mass(cells, bins, deviation)
    if not astride or not len(found.weight):
        return replace(found, error_bound=1.0) if astride else found
    # Without that cell, or with all of it, every cut moves by at most its weight.
    return replace(
        found, error_bound=min(found.error_bound + 4.0 * astride / float(found.weight.min()), 1.0)
    )


def _padded(tables: list[ClassRanges], name: str) -> Floats:
    result = np.zeros((len(tables), max(1, *(len(table.weight) for table in tables))))
    for row, table in zip(result, tables, strict=True):
        row[: len(table.weight)] = getattr(table, name)
    return result


def _epsilon_of(view: View, thresholded: bool) -> float | None:
    return float(EPSILON.of(view.pane_query)) if thresholded else None


def _made(view: View, thresholded: bool) -> list[ClassRanges]:
    return view.once(
        ("ranges", thresholded), lambda: classes_of(view, _epsilon_of(view, thresholded))
    )


def _reader(thresholded: bool) -> Callable[[View], MetricValue | None]:
    def read(view: View) -> MetricValue | None:
        tables = _made(view, thresholded)
        epsilon, bins = _epsilon_of(view, thresholded), view.pane_query.bins
        if not any(len(table.weight) for table in tables):
            if not len(view.cells_of("class:0").together()):
                return None
            detail = f"no probability of any class is above epsilon={epsilon:g}"
            raise NoResultError("nothing_above_epsilon", detail)
        by_class = mean_gap(_padded(tables, "weight"), _padded(tables, "gap"))
        extra = {"bins": bins, "by_class": by_class.tolist(), "ties": TIES.of(view.pane_query)}
        if epsilon is not None:
            extra["epsilon"] = epsilon
        if not view.is_raw:
            extra["error_bound"] = float(np.mean([table.error_bound for table in tables]))
            # Orders of rows in cells of different classes are independent.
            squares = [table.error_estimate**2 for table in tables]
            extra["error_estimate"] = float(np.sqrt(np.sum(squares)) / len(tables))
        return MetricValue(float(by_class.mean()), extra)

    return read


def _null(thresholded: bool) -> Callable[[View, MetricValue, int], NullReference]:
    def null(view: View, reading: MetricValue, seed: int) -> NullReference:
        tables = _made(view, thresholded)
        weight, variance = _padded(tables, "weight"), _padded(tables, "null_variance")
        free = gap_null(lambda w, g: mean_gap(w, g).mean(axis=-1), weight, variance, seed)
        return of_dependent_classes(free, effective_classes(variance.sum(axis=1)))

    return null


_NO_RANGES = ClassRanges(np.zeros(0), np.zeros(0), np.zeros(0), 0.0)
METRICS = (
    FormulaMetric(
        slug="nixon_ace",
        title="Adaptive calibration error over classes",
        needs=("classes",),
        formula="(1/(K R)) Σ_k Σ_r |freq_k(r) - conf_k(r)|, R ranges of equal mass",
        search_words={
            "ACE of Nixon": "",
            "ACE (Nixon)": "",
            "adaptive calibration error over classes": "",
        },
        source="Nixon, Dusenberry, Zhang, Jerfel, Tran (CVPR workshops 2019)",
        options=("bins",),
        own_options=(TIES,),
        read=_reader(False),
        no_interval="equal_mass_not_replicated",
        null=_null(False),
    ),
    FormulaMetric(
        slug="tace",
        title="Thresholded adaptive calibration error over classes",
        needs=("classes",),
        formula="nixon_ace over probabilities above epsilon",
        search_words={"TACE": "", "thresholded adaptive calibration error": ""},
        source="Nixon, Dusenberry, Zhang, Jerfel, Tran (CVPR workshops 2019)",
        options=("bins",),
        own_options=(EPSILON, TIES),
        read=_reader(True),
        no_interval="equal_mass_not_replicated",
        null=_null(True),
    ),
)
