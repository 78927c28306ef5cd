"""Losses of rows and cells under probabilities, their means, and the gain of one over another with its interval by unit."""

from __future__ import annotations

import numpy as np
import scipy

from calibrant.calibrators.labelled_rows import LabelledRows
from calibrant.core.arrays import Floats, Ints
from calibrant.core.documents import Result
from calibrant.core.grid import equal_width_bin

ECE_BINS = 15
# Means by loss, and sums of each row, (n,), by loss.
Losses = dict[str, float | None]
RowLosses = dict[str, Floats]
# Scales of Brier scores of two classes: as the metric `brier`, or half of it.
SUMMED, ONE_CLASS = "sum over classes", "one class"


def row_losses(rows: LabelledRows, probabilities: Floats) -> RowLosses:
    """Return NLL and Brier sums of each row, (n,) each; NLL is infinite if a rating has probability 0.

    Parameters
    ----------
    rows : LabelledRows
    probabilities : float64 (n, n_classes), rows that sum to 1
    """
    row, class_index, share = rows.rated
    chosen = probabilities[row, class_index]
    with np.errstate(divide="ignore"):
        nll = -np.bincount(row, share * np.log(chosen), len(rows))
    squares = np.einsum("nk,nk->n", probabilities, probabilities)
    rated = np.bincount(row, share * chosen, len(rows))
    return {"nll": nll, "brier": rows.weight * (squares + 1.0) - 2.0 * rated}


def event_losses(correct: Floats, weight: Floats, probability: Floats) -> RowLosses:
    """Return NLL and Brier sums of each row or cell for one event against its complement; of the shape of the arguments.

    Parameters
    ----------
    correct, weight : float64 of one shape, weight of the ratings for the event, and of all ratings
    probability : float64, of the event; NLL is infinite if a rating contradicts a probability of 0 or 1
    """
    incorrect = np.maximum(weight - correct, 0.0)
    incorrect = np.where(incorrect > 1e-12 * weight, incorrect, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        nll = -np.where(correct > 0, correct * np.log(probability), 0.0)
        nll -= np.where(incorrect > 0, incorrect * np.log1p(-probability), 0.0)
    return {"nll": nll, "brier": correct * (1.0 - probability) ** 2 + incorrect * probability**2}


def scope_losses(
    rows: LabelledRows,
    probabilities: Floats,
    scope: str,
    brier: str = ONE_CLASS,
    class_index: int | None = None,
) -> RowLosses:
    """Return NLL and Brier sums of each row: of `full`, and if `brier` is `SUMMED`, over all classes; else of one event.

    Parameters
    ----------
    rows : LabelledRows
    probabilities : float64 (n, n_classes), or (n,) of the event
    scope : "full"; "top_label", whose event is that the row's top class is right; "positive" or "class"
    brier : scale of Brier scores
    class_index : of the event of "class"
    """
    if scope == "full" or brier == SUMMED:
        return row_losses(rows, probabilities)
    place, event = np.arange(len(rows)), rows.top_class
    if scope != "top_label":
        event = np.full(len(rows), class_index if scope == "class" else 1)
    chosen = probabilities if probabilities.ndim == 1 else probabilities[place, event]
    return event_losses(rows.share[place, event], rows.weight, np.clip(chosen, 0.0, 1.0))


def losses_of(
    rows: LabelledRows, probabilities: Floats, scope: str, sums: RowLosses | None = None
) -> Losses:
    """Return mean NLL and Brier, and ECE of the top label of `full`, else of class 1; `sums` are `scope_losses`."""
    sums = sums or scope_losses(rows, probabilities, scope)
    place, class_index = np.arange(len(rows)), np.ones(len(rows), np.int64)
    if scope == "full":
        class_index = np.argmax(probabilities, axis=1)
    score = np.clip(probabilities[place, class_index], 0.0, 1.0)
    return mean_losses(sums, score, rows.share[place, class_index], rows.weight)


def mean_losses(sums: RowLosses, score: Floats, correct: Floats, weight: Floats) -> Losses:
    """Return means of sums of losses, and the ECE (15 equal bins, right edges) of scores; None without data or where infinite."""
    total = float(weight.sum())
    if not total > 0.0:
        return dict.fromkeys(("nll", "brier", "ece"))
    gap = np.bincount(equal_width_bin(score, ECE_BINS), correct - weight * score, ECE_BINS)
    return means_of(sums, total) | {"ece": float(np.abs(gap).sum()) / total}


def means_of(sums: RowLosses, total: float) -> Losses:
    """Return the means of sums of losses; None where infinite."""
    means = {name: float(values.sum()) / total for name, values in sums.items()}
    return {name: value if np.isfinite(value) else None for name, value in means.items()}


def mean_by_unit(values: Floats, weight: Floats, unit: Ints, ci: float) -> Result:
    """Return a weighted mean over rows with Student's interval from the variation across units.

    Parameters
    ----------
    values : float64 (n,), sums of each row, weight included
    weight : float64 (n,)
    unit : int64 (n,)
    ci : nominal coverage

    Returns
    -------
    dict with `value` and `interval`, None if a value is not finite or fewer than two units have weight
    """
    total = float(weight.sum())
    if not total > 0.0 or not np.isfinite(values).all():
        return {"value": None, "interval": None}
    value = float(values.sum()) / total
    by_unit, weights = np.bincount(unit, values), np.bincount(unit, weight)
    filled = weights > 0
    m = int(filled.sum())
    if m < 2:
        return {"value": value, "interval": None}
    spread = ((by_unit[filled] - value * weights[filled]) ** 2).sum()
    error = float(np.sqrt(m / (m - 1) * spread)) / total
    reach = float(scipy.special.stdtrit(m - 1, 0.5 + ci / 2.0)) * error
    return {"value": value, "interval": [value - reach, value + reach]}


def gain_by_unit(
    rows: LabelledRows, first: RowLosses, then: RowLosses, ci: float
) -> dict[str, Result]:
    """Return by loss the mean of the first losses of the rows minus the second, with its interval."""
    with np.errstate(invalid="ignore"):
        return {
            name: mean_by_unit(first[name] - then[name], rows.weight, rows.unit, ci)
            for name in first
        }
