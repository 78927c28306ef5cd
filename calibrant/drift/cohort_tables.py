"""Unit tables of a detector: from the rows of a cohort, or from a sealed pane, if the pane contains them.

The alarm monitors the probability of a class as sent, or mapped by the active calibration map. A map applies to the complete row,
to the top label, to class 1 of two, or to one class. If it does not apply to the subject of the bets, the probability stays as sent.

A pane stores sums by unit of the model's own score, as sent. For a class, or under a map, there are cells without units.
They form a unit-weighted table only if each prediction is its own unit and has weight one. Otherwise the sums by unit are
mapped at the mean score of each of 60 bins. Plain histograms count in addition to predictions if they give each unit weight one.
A pane does not contain classes whose predictions share units, a map that needs complete rows, or the labels of one rater. Rows
retained by id do: all rows of a unit in the cohort share the unit's weight of one, for any class and any map.
"""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.units import UNIT_BINS
from calibrant.calibrators.applying import apply
from calibrant.calibrators.map_method import map_methods
from calibrant.core.arrays import Bools, Floats, Ints, ratio
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums
from calibrant.core.documents import FittedMap
from calibrant.core.errors import CalibrationInputError
from calibrant.core.grid import equal_width_bin
from calibrant.core.histogram_fields import SUM_TOLERANCE
from calibrant.core.label_policies import POLICIES
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.drift.unit_tables import DRIFT_BINS, UnitTable, merged, unit_table
from calibrant.raters.label_coverage import label_counts

OWN_SCORE = "score"


def class_of(scope: str, task: str) -> int | None:
    """Return the class of a scope: of "class:INDEX" the index, of "score" 1 if the task is binary, else None, each row's top class.

    >>> class_of("score", "binary"), class_of("score", "multiclass"), class_of("class:3", "multiclass")
    (1, None, 3)
    """
    if scope != OWN_SCORE:
        return int(scope.partition(":")[2])
    return 1 if task == "binary" else None


def scores_of(batch: Batch, scope: str, fitted: FittedMap | None = None) -> tuple[Floats, Ints]:
    """Return each row's score and its class.

    fitted : a map as returned by `calibrators.fit`; None for probabilities as sent

    Returns: score float64 (n,) in [0, 1], class int64 (n,)
    """
    class_index = class_of(scope, batch.task)
    full = fitted if fitted is not None and fitted["scope"] == "full" else None
    probabilities = batch.probabilities if full is None else apply(full, batch)
    top = np.argmax(probabilities, axis=1)
    chosen = top if class_index is None else np.full(batch.n, class_index)
    score = probabilities[np.arange(batch.n), chosen]
    if fitted is not None and full is None and (side := side_of(fitted, class_index)):
        mapped = apply(fitted, batch)
        score = mapped if side > 0 else 1.0 - mapped
    return np.clip(score, 0.0, 1.0), chosen.astype(np.int64)


def scalar(fitted: FittedMap, scope: str, task: str, score: Floats) -> Floats | None:
    """Return mapped scores from the scores alone, (n,) to (n,); None if the map needs complete rows."""
    if fitted["scope"] == "full":
        return None
    side = side_of(fitted, class_of(scope, task))
    if not side:
        return score
    method = map_methods()[fitted["method"]]
    mapped = method.at_scores(fitted["parameters"], score if side > 0 else 1.0 - score)
    return np.clip(mapped if side > 0 else 1.0 - mapped, 0.0, 1.0)


def side_of(fitted: FittedMap, class_index: int | None) -> int:
    """Return 1 if a map of one probability applies to this class (None: the top label), -1 to its complement, else 0."""
    if fitted["scope"] == "top_label":
        return int(class_index is None)
    named = 1 if fitted["scope"] == "positive" else fitted.get("class")
    if class_index == named:
        return 1
    return -1 if fitted["scope"] == "positive" and class_index == 0 else 0


def row_table(
    batch: Batch, scope: str, raters: str, fitted: FittedMap | None = None, bins: int = DRIFT_BINS
) -> UnitTable:
    """Return the unit-weighted table of a complete cohort's rows.

    batch : Batch, each row of the cohort once; `units` (or cases) name what is independent
    fitted : active calibration map, None for scores as sent

    >>> columns = {"confidences": [0.9, 0.85, 0.1], "labels": [1, 0, 0], "units": ["a", "a", "b"]}
    >>> table = row_table(Batch.from_columns(columns, task="binary").batch, "score", "mean")
    >>> table.weight[[1, 12, 13]].tolist(), table.n_units, table.labelled.sum().tolist()
    ([1.0, 0.5, 0.5], 2.0, 3.0)
    """
    batch_sums = BatchSums(batch)
    score, class_index = scores_of(batch, scope, fitted)
    everywhere = equal_width_bin(score, bins)
    known = batch_sums.labelled
    place, score, class_index = everywhere[known], score[known], class_index[known]
    omega, label = _weights(batch_sums, raters), _labels(batch_sums, class_index, raters)
    return UnitTable(
        _summed(place, omega, bins),
        _summed(place, omega * score, bins),
        _summed(place, omega * label, bins),
        _squared(batch_sums.unit_index, place, omega, bins),
        _summed(everywhere, 1.0 / _unit_size(batch), bins),
        _summed(everywhere, np.ones(batch.n), bins),
        _summed(place, np.ones(len(place)), bins),
    )


def _summed(place: Ints, values: Floats | Bools, bins: int) -> Floats:
    return np.bincount(place, values, bins).astype(np.float64)


def _unit_size(batch: Batch) -> Floats:
    """Return the number of rows that share each row's unit, including unlabelled ones."""
    if not batch.has_units:
        return np.ones(batch.n)
    index = np.unique(batch.unit_hash, return_inverse=True)[1]
    return np.bincount(index)[index].astype(np.float64)


def _weights(batch_sums: BatchSums, raters: str) -> Floats:
    """Return each labelled row's share of its unit: by rows, under `pooled` by ratings."""
    if raters != POLICIES[0]:
        return np.asarray(1.0 / batch_sums.unit_size)
    ratings = batch_sums.n_ratings.astype(np.float64)
    return np.asarray(ratings / np.bincount(batch_sums.unit_index, ratings)[batch_sums.unit_index])


def _labels(batch_sums: BatchSums, class_index: Ints, raters: str) -> Floats:
    """Return each labelled row's label of its class, in [0, 1]."""
    correct = batch_sums.correct_ratings
    correct = correct.where(correct.class_index == class_index[correct.row])
    named = {"majority": correct.majority, "single": correct.single}
    return _summed(correct.row, named.get(raters, correct.share), batch_sums.n)


def _squared(unit: Ints, place: Ints, omega: Floats, bins: int) -> Floats:
    """Per bin, the sum over units of the square of the unit's weight in it."""
    pair, index = np.unique(unit * bins + place, return_inverse=True)
    return _summed(pair % bins, _summed(index, omega, len(pair)) ** 2, bins)


EDGES = ("right", "left")


def pane_table(
    pane: Pane, scope: str, raters: str, fitted: FittedMap | None = None
) -> UnitTable | None:
    """Return the table of a pane's predictions, with their counts by bin of the score as sent; None if the pane does not contain it.

    fitted : calibration map; of sums of several units, each bin's units are at its mapped mean score
    """
    if scope == OWN_SCORE and fitted is None:
        return unit_table(pane, raters)
    counts = pane.counts
    is_single = counts["n_units"] == counts["n_labelled"] and (
        raters != POLICIES[0] or counts["n_ratings"] == counts["n_labelled"]
    )
    table = _cell_table(pane, scope, raters, fitted) if is_single else None
    if table is None and scope == OWN_SCORE:
        fine = unit_table(pane, raters, UNIT_BINS)
        mapped = _mapped(pane, scope, fitted, fine.mean_confidence)
        table = None if mapped is None else fine.moved(mapped, DRIFT_BINS)
    return None if table is None else table.counted(label_counts(pane))


def _cell_table(pane: Pane, scope: str, raters: str, fitted: FittedMap | None) -> UnitTable | None:
    """Return units at the mapped mean scores of cells, whose width is at most 1/3600 (of a class 1/1200)."""
    named = pane.spec.default_scope if scope == OWN_SCORE else scope
    try:
        cells = View(pane, PaneQuery(bins=DRIFT_BINS, raters=raters, scope=named)).cells_of(named)
    except (NoResultError, CalibrationInputError):
        return None
    cells = cells.select(cells.weight > 0)
    mapped = None if (cells.weight != cells.count).any() else _mapped(pane, scope, fitted, cells.mean)  # fmt: skip
    return None if mapped is None else UnitTable.at_scores(mapped, cells.weight, cells.correct)


def _mapped(pane: Pane, scope: str, fitted: FittedMap | None, score: Floats) -> Floats | None:
    return score if fitted is None else scalar(fitted, scope, pane.spec.task, score)


def has_histograms(pane: Pane) -> bool:
    """Whether a pane holds plain histograms of any kind."""
    return any(not block.is_empty for block in pane.histograms.blocks.values())


def posted_table(
    pane: Pane, scope: str, raters: str, fitted: FittedMap | None = None, bins: int = DRIFT_BINS
) -> UnitTable | None:
    """Return the unit-weighted table of a pane's plain histograms.

    A client that reduces at the edge to a count and two sums per bin sends no units. If its counts add up to no more than its
    stated number of units (`n_units`), each unit has weight one. Otherwise pixels or ratings would count as units.

    Parameters
    ----------
    raters : label policy; if no histogram has it, histograms of pooled ratings are used
    fitted : calibration map; a cell of the grid is mapped at its mean score
    bins : of the score; a cell is in the bin of its mean score

    Returns: UnitTable; None if there are no histograms of the scope, their counts exceed their stated units,
    or the map takes complete rows.

    >>> from calibrant.core.histogram import Histogram
    >>> from calibrant.core.spec import PaneSpec
    >>> pane = Pane(PaneSpec("binary", 2, 2))
    >>> one = {"kind": "positive", "bins": 2, "count": [3, 1], "sum_confidence": [0.6, 0.9], "sum_correct": [1, 1]}
    >>> pane.fill_histogram(Histogram.from_fields(one | {"n_units": 4}, pane.spec))
    >>> table = posted_table(pane, "score", "mean", bins=5)
    >>> table.weight.tolist(), table.correct.tolist(), table.labelled.tolist()
    ([3.0, 0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0, 1.0], [3.0, 0.0, 0.0, 0.0, 1.0])
    >>> pane.fill_histogram(Histogram.from_fields(one | {"n_units": 1}, pane.spec))
    >>> posted_table(pane, "score", "mean") is None
    True
    """
    keys = _keys(pane, scope, raters)
    if not keys:
        return None
    histograms = pane.histograms
    weight, confidence, correct = np.sum([histograms.table(key) for key in keys], axis=0)
    _, numbers, unstated, units = np.sum([histograms.blocks[key].counts for key in keys], axis=0)
    if weight.sum() > units.sum() * (1.0 + SUM_TOLERANCE):
        return None
    mean = np.clip(ratio(confidence, weight), 0.0, 1.0)
    mapped = _mapped(pane, scope, fitted, mean)
    if mapped is None:
        return None
    numbers = np.where(unstated == 0, numbers, np.rint(weight))
    rated = np.trunc(_summed(equal_width_bin(mapped, bins), numbers, bins))
    return UnitTable.at_scores(mapped, weight, correct, bins).counted([rated, rated])


def cohort_table(
    pane: Pane, scope: str, raters: str, fitted: FittedMap | None = None
) -> UnitTable | None:
    """Return the table of a pane's predictions and plain histograms, as `pane_table`; None if it cannot be computed."""
    parts = [posted_table(pane, scope, raters, fitted)]
    if pane.counts["n_predictions"] or not has_histograms(pane):
        parts = [pane_table(pane, scope, raters, fitted), *parts]
        if parts[0] is None:
            return None
    found = [each for each in parts if each is not None]
    return merged(found) if found else None


def _keys(pane: Pane, scope: str, raters: str) -> list[str]:
    """Return the keys of a scope's histograms under the policy, or of pooled ratings if there are none."""
    index = class_of(scope, pane.spec.task)
    own = "top_label|" if index is None else "positive|"
    kind = own if scope == OWN_SCORE else f"class|{index}"
    blocks = pane.histograms.blocks
    for policy in (raters, POLICIES[0]):
        keys = (f"{kind}|{policy}|{edges}" for edges in EDGES)
        found = [key for key in keys if key in blocks and not blocks[key].is_empty]
        if found:
            return found
    return []
