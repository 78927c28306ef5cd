"""Fit a calibration map to a view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from calibrant.accumulators.replicates import keeps_class_tables
from calibrant.calibrators import binned_maps
from calibrant.calibrators.applying import method_of
from calibrant.calibrators.candidate_comparison import CandidateComparison
from calibrant.calibrators.cell_fits import filled
from calibrant.calibrators.held_out import AtRows, SolveRows, held_out_class, held_out_rows
from calibrant.calibrators.labelled_rows import LabelledRows, rows_of
from calibrant.calibrators.map_losses import HOW, held_out, losses, own_scores
from calibrant.calibrators.map_method import REASONS, FitResult, MapMethod, Options, digest
from calibrant.calibrators.one_against_rest import (
    at_classes,
    solve_classes,
    solve_one,
    solve_rows,
    why_top_label,
)
from calibrant.calibrators.row_losses import SUMMED, losses_of
from calibrant.calibrators.temperature.fit import fit_temperature
from calibrant.core.arrays import Floats
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError, check_range
from calibrant.core.view import NoResultError, View

MIN_UNITS = 20


def fit(method: str, view: View, options: Options | None = None, evaluate: bool = True) -> Result:
    """Fit a calibration map to a view.

    Parameters
    ----------
    method : one of `MAPS`
    view : View; its query gives scope, label policy and `ci`. With raw rows the fit is to the rows.
    options : Options; those that the method does not read are ignored
    evaluate : whether to evaluate the map on held-out data, which takes further fits

    Returns
    -------
    dict of plain values: method, scope ("positive", "class", "top_label" or "full"), class, input, parameters, digest,
    n, before, after, heldout and diagnostics of the fit. `parameters` is None with a `reason` if there is no map; `before`
    and `after` are on the data of the fit, by `evaluation`; `heldout` may be None with a `heldout_reason`. `error_bound`
    bounds the error of fitting to cells instead of raw rows, in probability; of temperature it is relative.

    Raises
    ------
    CalibrationInputError
        Unknown method, a scope that it does not map, or options outside their range.

    Examples
    --------
    >>> from calibrant.core.batch import Batch
    >>> from calibrant.core.pane import Pane
    >>> from calibrant.core.query import PaneQuery
    >>> from calibrant.core.spec import PaneSpec
    >>> columns = {"confidences": [0.9] * 10 + [0.1] * 10, "labels": [1] * 8 + [0] * 10 + [1] * 2}
    >>> pane = Pane(PaneSpec("binary", 2))
    >>> pane.fill_batch(Batch.from_columns(columns).batch)
    >>> fitted = fit("isotonic", View(pane, PaneQuery()))
    >>> [round(value, 3) for value in fitted["parameters"]["y"]]
    [0.2, 0.8]
    """
    chosen = method_of(method)
    options = _checked(options or Options(), view)
    scope, class_index, fallback = _scope(chosen, view)
    result: Result = {
        "method": chosen.slug,
        "title": chosen.title,
        "source": chosen.source,
        "scope": scope,
        "class": class_index,
        "input": chosen.input,
        "objective": chosen.objective,
        "raters": view.pane_query.raters,
        "options": {
            name: value for name, value in asdict(options).items() if name in chosen.options
        },
        "fitted_to": "rows" if view.is_raw else "cells",
        **fallback,
    }
    try:
        if scope == "full" and chosen.is_of_scores:
            return _fitted_by_class(chosen, view, options, result, evaluate)
        if chosen.solve_rows is not None:
            return _fitted_to_rows(chosen, view, options, scope, result, evaluate)
        solved = solve_one(chosen, view, options)
        shown = _shown(chosen, view, options, scope, solved)
    except NoResultError as error:
        nothing = _finish(result, FitResult(None, error.reason), view)
        return nothing | {"detail": error.detail, "n_excluded": error.n_excluded}
    result |= shown
    if evaluate:
        result["heldout"], result["heldout_reason"] = _held_out(
            chosen, view, options, scope, solved
        )
    return _finish(result, solved, view)


def _checked(options: Options, view: View) -> Options:
    if options.binning not in ("equal_width", "equal_mass"):
        detail = f"Received binning {options.binning!r}; expected equal_width or equal_mass."
        raise CalibrationInputError.at("/binning", "one_of", detail)
    if options.regularisation and not 1e-8 <= options.regularisation <= 1e8:
        detail = f"Received regularisation={options.regularisation}; expected 0 (chosen by the data), or 1e-8 to 1e8."
        raise CalibrationInputError.at("/regularisation", "range", detail)
    check_range("knots", options.knots, 3, 30)
    check_range("bins", options.bins, 1, view.spec.grid)
    return options


def _scope(method: MapMethod, view: View) -> tuple[str, int | None, Result]:
    """Return scope and class as named in the result, and what to add to it if the requested map falls back to the top label."""
    kind, _, name = view.scope.partition(":")
    if kind == "top_label" and not method.is_of_scores:
        return "full", None, {}
    if kind == "top_label" and view.pane_query.scope is None:
        reason = why_top_label(view)
        if reason is None:
            return "full", None, {}
        fallback = {"scope": "full", "reason": reason, "detail": REASONS[reason]}
        return kind, None, {"fallback_of": fallback}
    if kind not in method.scopes:
        detail = f"Received scope {view.scope} for {method.slug}; expected one of {', '.join(method.scopes)}."
        raise CalibrationInputError.at("/scope", "one_of", detail)
    return kind, int(name) if name else None, {}


def _fitted_by_class(
    method: MapMethod, view: View, options: Options, result: Result, evaluate: bool
) -> Result:
    """Return the result of the map of each class against the rest, with losses on the rows that the view has."""
    solved = solve_classes(method, view, options)
    try:
        rows, sample = rows_of(view)
    except NoResultError as error:
        unknown = {"heldout_reason": solved.reason or error.reason}
        return _finish(result | unknown, solved, view)

    def at(parameters: Mapping[str, Any], logits: Floats) -> Floats:
        return at_classes(method, parameters, np.exp(logits))

    found = OfRows("full", rows, sample, partial(solve_rows, method, options=options), at)
    return _finish(result | found.losses(solved, view, evaluate), solved, view)


def _fitted_to_rows(
    method: MapMethod,
    view: View,
    options: Options,
    scope: str,
    result: Result,
    evaluate: bool,
) -> Result:
    """Return the result of a map that is fitted to rows: the stored sample's, or the raw ones."""
    rows, sample = rows_of(view)
    if sample is not None and not sample["complete"]:
        options = replace(options, temperature=_window_temperature(view))
    assert method.at_rows is not None
    solved = _solve_rows(method, rows, options)
    # The temperature is fitted again in each fold.
    in_fold = partial(_solve_rows, method, options=replace(options, temperature=None))
    found = OfRows(scope, rows, sample, in_fold, method.at_rows)
    result["fitted_to"] = "rows" if sample is None else "sample"
    return _finish(result | found.losses(solved, view, evaluate), solved, view)


def _solve_rows(method: MapMethod, rows: LabelledRows, options: Options) -> FitResult:
    assert method.solve_rows is not None
    return method.solve_rows(rows, options)


def _window_temperature(view: View) -> float | None:
    """Return the temperature of the complete window, of which the rows are a part."""
    found = fit_temperature(view.pane, raters=view.pane_query.raters)["temperature"]
    return None if found is None else float(found)


@dataclass(frozen=True)
class OfRows:
    """What the losses of a map are computed from: rows, their share of all (None: all), and how the map is fitted and applied."""

    scope: str
    rows: LabelledRows
    sample: Result | None
    solve: SolveRows
    at: AtRows

    def losses(self, solved: FitResult, view: View, evaluate: bool) -> Result:
        """Return losses before and after on the rows, and on held-out ones if `evaluate`."""
        rows, scope, after = self.rows, self.scope, None
        held_out: tuple[Result | None, str | None] = None, solved.reason
        if solved.parameters is not None:
            after = losses_of(rows, self.at(solved.parameters, rows.logits), scope)
            if evaluate:
                held_out = held_out_rows(self.solve, self.at, rows, scope, view.pane_query.ci)
        return {
            "sample": self.sample,
            "before": losses_of(rows, rows.probabilities, scope) if len(rows) else None,
            "after": after,
            "evaluation": _how(scope, "rows" if self.sample is None else "sample"),
            "heldout": held_out[0],
            "heldout_reason": held_out[1],
        }


def _how(scope: str, scores: str) -> Result:
    brier = {"brier": SUMMED} if scope == "full" else {}
    return HOW | brier | {"scores": scores}


def _shown(
    method: MapMethod, view: View, options: Options, scope: str, solved: FitResult
) -> Result:
    """Return losses before and after, on the data of the fit."""
    if scope == "full":
        how = _how(scope, "rows" if view.is_raw else solved.details.get("fitted_to", "profile"))
        pair = {name: solved.details.pop(name, None) for name in ("before", "after")}
        return pair | {"evaluation": how}
    how, cells = dict(HOW), None
    try:
        cells = filled(view.cells())
    except NoResultError:
        if method.slug != "histogram":
            raise
        table = binned_maps.width_table(view, options)
        bins = replace(table.cells, lower=table.edges[:-1], upper=table.edges[1:])
        cells, how["scores"] = filled(bins), "bin means"
    if view.is_raw:
        how["scores"] = "rows"
    after = None
    if solved.parameters is not None:
        after = losses(cells, method.at_scores(solved.parameters, own_scores(cells)))
    before = losses(cells, own_scores(cells)) if len(cells) else None
    return {"before": before, "after": after, "evaluation": how}


def _held_out(
    method: MapMethod, view: View, options: Options, scope: str, solved: FitResult
) -> tuple[Result | None, str | None]:
    if solved.parameters is None:
        return None, solved.reason
    try:
        if scope == "full":
            return _held_out_temperature(view)
        view.reject_histograms()
        if scope == "class" and not keeps_class_tables(view.spec):
            return held_out_class(method, view, options)
    except NoResultError as error:
        return None, error.reason
    return held_out(method, view, options)


def _held_out_temperature(view: View) -> tuple[Result | None, str | None]:
    """Return the held-out losses of the common temperature, on the stored sample or the raw rows, as in the recommendation."""
    reported = CandidateComparison(view).held_out_temperature("nll")
    return reported["heldout"], reported["heldout_reason"]


def _finish(result: Result, solved: FitResult, view: View) -> Result:
    counts = view.counts
    result = {
        "before": None,
        "after": None,
        "heldout": None,
        "heldout_reason": solved.reason,
    } | result
    warnings = list(solved.warnings)
    if solved.parameters is not None and counts["n_units"] < MIN_UNITS:
        warnings.append("few_units")
    return (
        result
        | solved.details
        | {
            "at_bound": solved.details.get("at_bound", False),
            "parameters": solved.parameters,
            "digest": digest(result | {"parameters": solved.parameters}),
            "reason": solved.reason,
            "detail": REASONS.get(solved.reason or ""),
            "warnings": warnings,
            "n": counts["n_labelled"],
            "n_predictions": counts["n_predictions"],
            "n_ratings": counts["n_ratings"],
            "n_units": counts["n_units"],
        }
    )
