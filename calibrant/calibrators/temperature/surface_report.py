"""Report of the temperature surface: losses of a model of two classes over one temperature per class."""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.logit_cells import LogitCells
from calibrant.accumulators.logits import Logits
from calibrant.accumulators.named_cases import Cases
from calibrant.calibrators.temperature.logit_surface import (
    LogitCellLosses,
    error_estimates,
    merged,
)
from calibrant.calibrators.temperature.losses import (
    EceOptions,
    TwoClassLosses,
    reject_other_than_two,
)
from calibrant.calibrators.temperature.surface import loss_surface
from calibrant.core.arrays import Floats
from calibrant.core.batch import Batch
from calibrant.core.documents import Result
from calibrant.core.view import NoResultError, View

LOWEST, HIGHEST, POINTS = 0.25, 10.0, 20
# Points per class at which errors are estimated.
_ESTIMATED = 5
NO_LOGITS = "logits_not_kept"


def surface_report(
    view: View, *, points: int = POINTS, least: float = 0.0, case: str | None = None
) -> Result:
    """Return NLL, Brier and ECE over a temperature for class 0 and one for class 1.

    Parameters
    ----------
    view : of two classes; exact from raw rows or a complete stored sample, else from cells of logits
    points : temperatures per class, in equal ratios from 0.25 to 10
    least : smallest bin of ECE
    case : one case alone (figures 6 to 10 of the paper)

    Returns
    -------
    dict as `loss_surface`, with `source` ("rows", "sample", "cells" or "case"), n, `n_used`, raters and bins. From cells also
    `nll_error_bound`, a proved bound in the shape of `nll`, and `error_estimate` of each loss, the largest over the surface. Both
    are None where the surface is exact.

    Raises
    ------
    CalibrationInputError
        Another number of classes.
    NoResultError
        No labelled prediction, plain histograms, predictions without logits (`logits_not_kept`), or an unknown case.
    """
    reject_other_than_two(view.spec.n_classes)
    pane_query = view.pane_query
    options = EceOptions(pane_query.bins, least)
    if not view.counts["n_labelled"]:
        raise NoResultError("no_data", "no labelled prediction is in the window")
    grid = np.geomspace(LOWEST, HIGHEST, points)
    about = {
        "raters": pane_query.raters,
        "bins": pane_query.bins,
        "n": view.counts["n_labelled"],
        "n_ratings": view.counts["n_ratings"],
        "nll_error_bound": None,
        "error_estimate": None,
    }
    if view.batch_sums is not None:
        batch = view.batch_sums.complete_batch
        return about | _of_rows(batch, "rows", view.counts["n_labelled"], grid, options, view)
    view.reject_histograms()
    part = view.pane["logits"]
    assert isinstance(part, Logits)
    if case is not None:
        table = _table_of_case(view, part, case)
        return about | {"case": case} | _of_cells(table, "case", grid, options, view)
    sample = view.pane.sample.batch() if view.pane.keeps("sample") else None
    if sample is not None and sample.n == view.counts["n_labelled"] and sample.is_logits:
        return about | _of_rows(sample, "sample", sample.n, grid, options, view)
    _reject_missing(view, part)
    return about | _of_cells(merged(part.tables.values()), "cells", grid, options, view)


def _of_rows(
    batch: Batch, source: str, n: int, grid: Floats, options: EceOptions, view: View
) -> Result:
    if not batch.is_logits:
        detail = "the rows are probabilities; two temperatures need the logits of both classes"
        raise NoResultError(NO_LOGITS, detail)
    losses = TwoClassLosses.of_batch(batch, options, view.pane_query.raters)
    return {"source": source, "n_used": n, **loss_surface(losses, grid, grid)}


def _of_cells(
    table: LogitCells, source: str, grid: Floats, options: EceOptions, view: View
) -> Result:
    losses = LogitCellLosses(table, view.policy, options)
    bound = [[losses.nll_error(np.array([t0, t1])) for t0 in grid] for t1 in grid]
    some = np.geomspace(LOWEST, HIGHEST, _ESTIMATED)
    places = [np.array([t0, t1]) for t0 in some for t1 in some]
    return {
        "source": source,
        "n_used": int(table.counts[0].sum()),
        **loss_surface(losses, grid, grid),
        "nll_error_bound": bound,
        "error_estimate": error_estimates(table, view.policy, options, places),
    }


def _reject_missing(view: View, part: Logits) -> None:
    """Reject a window of which some labelled predictions have no logits.

    Raises
    ------
    NoResultError
        As described.
    """
    rows, n = part.n_rows(), view.counts["n_labelled"]
    if rows["cells"] == n:
        return
    if rows["probabilities"]:
        detail = f"{rows['probabilities']} of {n} labelled predictions came as probabilities"
    elif rows["outside"]:
        detail = f"{rows['outside']} of {n} labelled predictions have a logit beyond 2^20"
    else:
        detail = f"panes of an older format hold {n - rows['cells']} of {n} labelled predictions"
    raise NoResultError(NO_LOGITS, f"{detail}; two temperatures need the logits of all")


def _table_of_case(view: View, part: Logits, case: str) -> LogitCells:
    """Return the cells of one case.

    Raises
    ------
    NoResultError
        No such case is stored, or not with the logits of all of its predictions.
    """
    cases = view.pane["cases"]
    assert isinstance(cases, Cases)
    known = cases.tables.get(case) if case else None
    table = part.tables.get(case) if case else None
    if known is None:
        raise NoResultError("unknown_case", f"no table is stored for case {case[:60]!r}")
    places, counts, _ = known.filled()
    top = places - cases.layout.top_place(0)
    n = int(counts[0, (top >= 0) & (top < view.spec.n_classes)].sum())
    n_stored = 0 if table is None else int(table.counts[0].sum())
    if table is None or n_stored != n:
        detail = f"logits of {n_stored} of the {n} predictions of case {case[:60]!r} are stored; two temperatures need all"
        raise NoResultError(NO_LOGITS, detail)
    return table
