"""Losses of a model of two classes over one temperature per class, from a window's state or from rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from calibrant.calibrators.temperature.losses import (
    EceOptions,
    RowLosses,
    TwoClassLosses,
    refuse_other_than_two,
)
from calibrant.calibrators.temperature.surface import loss_surface
from calibrant.core.view import NotAnswerable, View
from calibrant.estimators.roc import roc_cells
from calibrant.segmentation.case_errors import case_errors
from calibrant.segmentation.case_tables import CELLS

LOWEST, HIGHEST, POINTS = 0.25, 10.0, 20


def surface_answer(
    view: View, *, points: int = POINTS, least: float = 0.0, case: str | None = None
) -> dict[str, Any]:
    """Return NLL, Brier and ECE over a temperature for class 0 and one for class 1.

    Parameters
    ----------
    view : of two classes; exact from raw rows, else from the stored sample if that has logits, else from cells
    points : temperatures per class, in equal ratios from 0.25 to 10
    least : smallest bin of ECE
    case : one case alone, from its stored table (figures 6 to 10 of the paper)

    Returns
    -------
    dict as `loss_surface`, with `source` ("rows", "sample", "cells" or "case"), n, `n_used`, raters, bins, and
    `logits`: "sent", or "log_probabilities" if nothing else is known of both classes' logits

    Raises
    ------
    CalibrationInputError
        Another number of classes.
    NotAnswerable
        No labelled prediction, histograms that cannot represent class 1, or a case without a stored table.
    """
    refuse_other_than_two(view.spec.n_classes)
    question = view.question
    options = EceOptions(question.bins, least)
    losses, about = _losses(view, options) if case is None else _losses_of_case(view, case, options)
    if not about["n_used"]:
        raise NotAnswerable("no_data", "no labelled prediction is in the window")
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


def _losses_of_case(
    view: View, case: str, options: EceOptions
) -> tuple[TwoClassLosses, dict[str, Any]]:
    asked = replace(
        view.question, bins=CELLS, options={"background": "in", "membership": "hard"}, own_bins=True
    )
    cases = case_errors(View(view.pane, asked))
    if case not in cases.names:
        raise NotAnswerable("unknown_case", f"no table is stored for case {case[:60]!r}")
    one = cases.counted.of_cases(np.array([cases.names.index(case)]))
    weight, confidence, right = (each[0, 1] for each in (one.weight, one.confidence, one.correct))
    filled = weight > 0
    mean = np.clip(confidence[filled] / weight[filled], 0.0, 1.0)
    losses = TwoClassLosses.of_scores(mean, weight[filled], right[filled], options)
    return losses, {
        "source": "case",
        "case": case,
        "logits": "log_probabilities",
        "n_used": round(float(weight.sum())),
    }
