"""Entry points of calibration maps: fit one to a view, apply one to a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from calibrant.accumulators.replicates import keeps_class_tables
from calibrant.accumulators.sample import Sample
from calibrant.calibrators import histogram
from calibrant.calibrators.base import REASONS, FitResult, Floats, MapMethod, Options, digest
from calibrant.calibrators.from_rows import (
    SUMMED,
    held_out_rows,
    losses_of,
    rows_of,
)
from calibrant.calibrators.held_out_losses import held_out_losses
from calibrant.calibrators.map_losses import HOW, held_out, losses, own_scores
from calibrant.calibrators.recommendation import CandidateComparison
from calibrant.calibrators.registry import map_methods
from calibrant.calibrators.rows import LabelledRows, log_probabilities
from calibrant.calibrators.temperature.fit import fit_temperature
from calibrant.core.batch import Batch
from calibrant.core.cells import Cells
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.spec import PaneSpec
from calibrant.core.view import NoResultError, View

MIN_UNITS = 20


def needs(method: str, spec: PaneSpec, scope: str | None = None) -> tuple[str, ...]:
    """Return the accumulators that `fit` reads.

    Parameters
    ----------
    method : one of `MAPS`
    spec : PaneSpec of the model
    scope : as in `PaneQuery`. Default: the model's own.

    Raises
    ------
    CalibrationInputError
        Unknown method.
    """
    kind = (scope or spec.default_scope).partition(":")[0]
    cells = {"class": "classes"}.get(kind, kind)
    wanted = dict.fromkeys(_method(method).needs)
    if kind == "class" and not keeps_class_tables(spec):
        wanted["sample"] = None
    available = [name for name in wanted if name != "sample" or Sample.applies(spec)]
    return ("counts", "histograms", "replicates", cells, *available)


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
    >>> from calibrant.core.pane import Pane
    >>> from calibrant.core.query import PaneQuery
    >>> columns = {"confidences": [0.9] * 10 + [0.1] * 10, "labels": [1] * 8 + [0] * 10 + [1] * 2}
    >>> pane = Pane(PaneSpec("binary", 2))
    >>> pane.fill_batch(Batch.from_columns(columns).batch)
    >>> fitted = fit("isotonic", View(pane, PaneQuery()))
    >>> [round(value, 3) for value in fitted["parameters"]["y"]]
    [0.2, 0.8]
    """
    chosen = _method(method)
    options = _checked(options or Options(), view)
    scope, class_index = _scope(chosen, view)
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
    }
    try:
        if chosen.solve_rows is not None:
            return _fitted_to_rows(chosen, view, options, scope, result, evaluate)
        solved = _solved(chosen, view, options)
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


def apply(fitted: Mapping[str, Any], batch: Batch) -> Floats:
    """Apply a map to a batch and return its probabilities.

    Parameters
    ----------
    fitted : the result of `fit`, or the same read from JSON: method, scope, class and parameters suffice
    batch : Batch

    Returns
    -------
    float64 (n,) for the scopes positive, top_label and class; (n, n_classes) with rows that sum to 1 for full.

    Raises
    ------
    CalibrationInputError
        Unknown method, no parameters, or a scope that the batch does not have.
    """
    method, parameters = _method(str(fitted.get("method"))), fitted.get("parameters")
    if not isinstance(parameters, Mapping):
        raise CalibrationInputError.at(
            "/parameters", "not_fitted", "the map has no parameters to apply"
        )
    scope = fitted.get("scope")
    if scope not in method.scopes:
        detail = f"Received scope {str(scope)[:60]} for {method.slug}; expected one of {', '.join(method.scopes)}."
        raise CalibrationInputError.at("/scope", "one_of", detail)
    if scope == "full":
        assert method.at_rows is not None
        return method.at_rows(parameters, log_probabilities(batch))
    if scope == "positive" and method.at is None and batch.n_classes == 2:
        assert method.at_rows is not None
        return np.asarray(method.at_rows(parameters, log_probabilities(batch))[:, 1])
    return method.at_scores(parameters, _score(fitted, batch))


def _method(slug: str) -> MapMethod:
    known = map_methods()
    if slug not in known:
        detail = f"Received method {slug[:60]!r}; expected one of {', '.join(known)}."
        raise CalibrationInputError.at("/method", "one_of", detail)
    return known[slug]


def _score(fitted: Mapping[str, Any], batch: Batch) -> Floats:
    p = batch.probabilities
    if fitted["scope"] == "top_label":
        return np.asarray(p.max(axis=1))
    class_index = 1 if fitted["scope"] == "positive" else fitted.get("class")
    if (
        type(class_index) is not int
        or not 0 <= class_index < batch.n_classes
        or (fitted["scope"] == "positive" and batch.n_classes != 2)
    ):
        detail = f"Received a batch of {batch.n_classes} classes for a map of {fitted['scope']} {class_index}. Apply it to the model's classes."
        raise CalibrationInputError.at("/class", "class_range", detail)
    return np.asarray(p[:, class_index])


def _checked(options: Options, view: View) -> Options:
    if options.binning not in ("equal_width", "equal_mass"):
        detail = f"Received binning {options.binning!r}; expected equal_width or equal_mass."
        raise CalibrationInputError.at("/binning", "one_of", detail)
    if options.regularisation and not 1e-8 <= options.regularisation <= 1e8:
        detail = f"Received regularisation={options.regularisation}; expected 0 (chosen by the data), or 1e-8 to 1e8."
        raise CalibrationInputError.at("/regularisation", "range", detail)
    if not 3 <= options.knots <= 30:
        detail = f"Received knots={options.knots}; expected 3 to 30."
        raise CalibrationInputError.at("/knots", "range", detail)
    if not 1 <= options.bins <= view.spec.grid:
        detail = f"Received bins={options.bins}; expected 1 to {view.spec.grid}."
        raise CalibrationInputError.at("/bins", "range", detail)
    return options


def _scope(method: MapMethod, view: View) -> tuple[str, int | None]:
    """Return scope and class as named in the result."""
    kind, _, name = view.scope.partition(":")
    if kind == "top_label" and "full" in method.scopes:
        return "full", None
    if kind not in method.scopes:
        detail = f"Received scope {view.scope} for {method.slug}; expected one of {', '.join(method.scopes)}."
        raise CalibrationInputError.at("/scope", "one_of", detail)
    return kind, int(name) if name else None


def _solved(method: MapMethod, view: View, options: Options) -> FitResult:
    if method.solve_view is not None:
        return method.solve_view(view, options)
    assert method.solve is not None
    return method.solve(_filled(view.cells()), options)


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
    assert method.solve_rows is not None and method.at_rows is not None
    solved = method.solve_rows(rows, options)
    after = None
    if solved.parameters is not None:
        after = losses_of(rows, method.at_rows(solved.parameters, rows.logits), scope)
    result |= {
        "fitted_to": "rows" if sample is None else "sample",
        "sample": sample,
        "before": losses_of(rows, rows.probabilities, scope) if len(rows) else None,
        "after": after,
        "evaluation": _how(scope, "rows" if sample is None else "sample"),
    }
    if not evaluate:
        return _finish(result, solved, view)
    result["heldout"], result["heldout_reason"] = None, solved.reason
    if solved.parameters is not None:
        result["heldout"], result["heldout_reason"] = _held_out_rows(
            method, rows, options, scope, view
        )
    return _finish(result, solved, view)


def _window_temperature(view: View) -> float | None:
    """Return the temperature of the complete window, of which the rows are a part."""
    found = fit_temperature(view.pane, raters=view.pane_query.raters)["temperature"]
    return None if found is None else float(found)


def _held_out_rows(
    method: MapMethod, rows: LabelledRows, options: Options, scope: str, view: View
) -> tuple[Result | None, str | None]:
    solve, at = method.solve_rows, method.at_rows
    assert solve is not None and at is not None
    # The temperature is fitted again in each fold.
    options = replace(options, temperature=None)
    return held_out_rows(lambda part: solve(part, options), at, rows, scope, view.pane_query.ci)


def _how(scope: str, scores: str) -> Result:
    brier = {"brier": SUMMED} if scope == "full" else {}
    return HOW | brier | {"scores": scores}


def _filled(cells: Cells) -> Cells:
    return cells.select(cells.weight > 0.0)


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
        cells = _filled(view.cells())
    except NoResultError:
        if method.slug != "histogram":
            raise
        table = histogram.width_table(view, options)
        bins = replace(table.cells, lower=table.edges[:-1], upper=table.edges[1:])
        cells, how["scores"] = _filled(bins), "bin means"
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
            return held_out_losses(method, view, options)
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
