"""The losses of a model of two classes over one temperature for each, from a window's state or from rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant.roc import roc_cells
from calibrant.temperature_losses import (
    EceOptions,
    RowLosses,
    TwoClassLosses,
    refuse_other_than_two,
)
from calibrant.temperature_surface import loss_surface
from calibrant.view import NotAnswerable, View

LOWEST, HIGHEST, POINTS = 0.25, 10.0, 20


def surface_answer(view: View, *, points: int = POINTS, least: float = 0.0) -> dict[str, Any]:
    """NLL, Brier and ECE over a temperature for class 0 and one for class 1.

    Parameters
    ----------
    view : of two classes; from raw rows exact, else from the kept sample where that holds logits, else from cells
    points : temperatures a class, in equal ratios from 0.25 to 10
    least : smallest bin of ECE

    Returns
    -------
    dict as `loss_surface`, with `source` ("rows", "sample" or "cells"), n, `n_used`, raters, bins, and
    `logits`: "sent", or "log_probabilities" where nothing else is known of both classes' logits

    Raises
    ------
    CalibrationInputError
        Another number of classes.
    NotAnswerable
        No labelled prediction, or histograms that cannot speak of class 1.
    """
    refuse_other_than_two(view.spec.n_classes)
    question = view.question
    losses, about = _losses(view, EceOptions(question.bins, least))
    if not about["n_used"]:
        raise NotAnswerable("no_data", "no labelled prediction lies in the window")
    grid = np.geomspace(LOWEST, HIGHEST, points)
    return {
        "raters": question.raters,
        "bins": question.bins,
        "n": view.counts["n_labelled"],
        "n_ratings": view.counts["n_ratings"],
        **about,
        **loss_surface(losses, grid, grid),
    }


def _losses(view: View, options: EceOptions) -> tuple[TwoClassLosses, dict[str, Any]]:
    raters = view.question.raters
    if view.filling is not None:
        batch = view.filling.whole
        return TwoClassLosses.of_rows(RowLosses(batch, options, raters)), {
            "source": "rows",
            "logits": "sent" if batch.is_logits else "log_probabilities",
            "n_used": view.counts["n_labelled"],
        }
    if view.pane.keeps("sample"):
        batch = view.pane.sample.batch()
        if batch.is_logits and batch.n:
            about = {"source": "sample", "logits": "sent", "n_used": batch.n}
            return TwoClassLosses.of_rows(RowLosses(batch, options, raters)), about
    scope = "positive" if view.spec.task == "binary" else "class:1"
    cells, _ = roc_cells(view, scope)
    about = {"source": "cells", "logits": "log_probabilities", "n_used": int(cells.count.sum())}
    return TwoClassLosses.of_cells(cells, options), about
