"""Common steps of maps fitted to complete rows: which rows, reasons against a fit, its diagnostics, and losses before and after."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibrant.calibrators.cell_fits import CLIP
from calibrant.calibrators.labelled_rows import (
    LabelledRows,
    about_sample,
    event_losses,
    labelled_rows,
    row_losses,
)
from calibrant.calibrators.softmax import ROWS_A_PARAMETER, LinearForm
from calibrant.calibrators.solver import Minimum
from calibrant.core.arrays import Floats
from calibrant.core.documents import Parameters, Result
from calibrant.core.grid import equal_width_bin
from calibrant.core.view import NoResultError, View

ECE_BINS = 15
Losses = dict[str, float | None]
# Scales of Brier scores of two classes: as the metric `brier`, or half of it.
SUMMED, ONE_CLASS = "sum over classes", "one class"


def rows_of(view: View, most: int | None = None) -> tuple[LabelledRows, Result | None]:
    """Return the rows on which a view can be fitted, and their share of all rows; None if they are all.

    Parameters
    ----------
    view : View
    most : maximum number of rows of a sample. Rows are sorted by the hash of their ids, so that the first ones
            are a uniform subsample.

    Raises
    ------
    NoResultError
        The window contains plain histograms, or its panes store no sample.
    """
    view.reject_histograms()
    if view.batch_sums is not None:
        return labelled_rows(view.batch_sums.complete_batch, view.policy), None
    about = about_sample(view.pane)
    if about is None:
        detail = "panes with this number of classes store no sample of complete rows"
        raise NoResultError("not_kept", detail)
    batch = view.pane.sample.batch()
    if most is not None and batch.n > most:
        batch = batch.take(np.arange(most))
    return labelled_rows(batch, view.policy), about


def clipped(logits: Floats, clip: float = CLIP) -> Floats:
    """Return log-probabilities clipped below at that of `clip`; lower logarithms carry no information."""
    return np.maximum(logits, np.log(clip))


def why_none(rows: LabelledRows, form: LinearForm, inputs: Floats) -> str | None:
    """Return the reason why a form cannot be fitted to rows with weight; None if a fit can be tried."""
    if not len(rows):
        return "no_labels"
    if (rows.share.sum(axis=0) > 0).sum() < 2:
        return "one_class"
    if np.ptp(inputs, axis=0).max() < 1e-12:
        return "constant_scores"
    if rows.n_units < ROWS_A_PARAMETER * form.n_parameters:
        return "few_rows"
    return None


def parameter_details(
    form: LinearForm,
    fit: Minimum,
    named: Callable[[Floats], Parameters],
    curvature: float | None,
    spread: Floats,
) -> Result:
    """Return the diagnostics of a fit: loss at its optimum, gradient, curvature, and standard errors by name."""
    errors = None
    if np.isfinite(spread).all():
        each = np.where(form.place >= 0, spread[np.maximum(form.place, 0)], 0.0)
        errors = {name: value for name, value in named(each).items() if name != "clip"}
    return {
        "converged": fit.converged,
        "iterations": fit.iterations,
        "gradient_norm": fit.gradient_norm,
        "objective_after": fit.value,
        "least_curvature": curvature,
        "at_bound": not fit.free.all(),
        "standard_errors": errors,
        "standard_error_method": None if errors is None else "sandwich by unit",
    }


def scope_losses(
    rows: LabelledRows, probabilities: Floats, scope: str, brier: str = ONE_CLASS
) -> dict[str, Floats]:
    """Return NLL and Brier sums of each row: over all classes for `full`, and for `positive` if `brier` is `SUMMED`; else of class 1."""
    if scope == "full" or brier == SUMMED:
        return row_losses(rows, probabilities)
    return event_losses(rows.share[:, 1], rows.weight, np.clip(probabilities[:, 1], 0.0, 1.0))


def losses_of(
    rows: LabelledRows, probabilities: Floats, scope: str, sums: dict[str, Floats] | None = None
) -> Losses:
    """Return mean NLL and Brier, and ECE of the top label of `full`, else of class 1; `sums` are `scope_losses`."""
    sums = sums or scope_losses(rows, probabilities, scope)
    place, class_index = np.arange(len(rows)), np.ones(len(rows), np.int64)
    if scope == "full":
        class_index = np.argmax(probabilities, axis=1)
    score = np.clip(probabilities[place, class_index], 0.0, 1.0)
    return mean_losses(sums, score, rows.share[place, class_index], rows.weight)


def mean_losses(sums: dict[str, Floats], score: Floats, correct: Floats, weight: Floats) -> Losses:
    """Return means of sums of losses, and the ECE (15 equal bins, right edges) of scores; None without data or where infinite."""
    total = float(weight.sum())
    if not total > 0.0:
        return dict.fromkeys(("nll", "brier", "ece"))
    gap = np.bincount(equal_width_bin(score, ECE_BINS), correct - weight * score, ECE_BINS)
    found = {name: float(values.sum()) / total for name, values in sums.items()}
    found["ece"] = float(np.abs(gap).sum()) / total
    return {name: value if np.isfinite(value) else None for name, value in found.items()}
