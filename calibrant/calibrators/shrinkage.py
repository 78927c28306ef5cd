"""Maps with several parameters per class, shrunk to a common temperature T.

Coefficients shrink to those of T: slopes to 1/T, all others to 0. The penalty is a factor times the mean square of the deviations,
slopes in units of 1/T. The factor is the one of `STRENGTHS`, or T alone, with the lowest NLL left out by unit. Each unit is left out
in turn, to second order: the change of its loss is g' H^-1 g, with g the sum of its slopes and H the Hessian of the penalised loss.
This is Takeuchi's criterion with units as observations. T is among the candidates, so the NLL left out is never above T's.

A class with fewer than `MIN_CLASS_UNITS` units among its labels keeps T. A fit needs `UNITS_A_PARAMETER` units per free parameter.

Source
------
Takeuchi, Suri-Kagaku 153 (1976); leaving out to second order: Beirami, Razaviyayn, Shahrampour, Tarokh (NeurIPS 2017).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.temperature import BETAS
from calibrant.calibrators.cell_fits import CLIP
from calibrant.calibrators.labelled_rows import LabelledRows
from calibrant.calibrators.map_method import FitResult, Options
from calibrant.calibrators.softmax import (
    MAX_CURVED,
    LinearForm,
    SoftmaxObjective,
    SoftmaxPoints,
    fit_softmax,
)
from calibrant.calibrators.solver import Mask, Minimum
from calibrant.core.arrays import Floats
from calibrant.core.documents import Parameters, Result

UNITS_A_PARAMETER = 20
MIN_CLASS_UNITS = 20
# Factors of the mean square of the deviations, in the mean NLL, from T almost alone to almost none.
STRENGTHS = (100.0, 10.0, 1.0, 0.1, 1e-2, 1e-3, 1e-5)
# Numbers that the slopes of units take at most: 64 MiB.
MAX_SLOPES = 1 << 23
# Multiplications of one Hessian, at most: some tenths of a second. Never fewer rows than the parameters need.
MAX_HESSIAN = 2.5e8

MakeForm = Callable[[Mask, float], LinearForm]
NameParameters = Callable[[Floats], Parameters]


@dataclass(frozen=True)
class _Candidate:
    """A fit with its strength, None for T alone, and the loss of each unit when it is left out."""

    strength: float | None
    objective: SoftmaxObjective
    fit: Minimum
    left_out: Floats

    def curvature_and_errors(self) -> tuple[float | None, Floats]:
        """Return curvature and standard errors; T alone has none and 0."""
        if self.strength is None:
            return None, np.zeros(len(self.fit.parameters))
        return self.objective.curvature_and_errors(self.fit.parameters, self.fit.free)


def clipped(logits: Floats, clip: float = CLIP) -> Floats:
    """Return log-probabilities clipped below at that of `clip`; lower logarithms carry no information."""
    return np.maximum(logits, np.log(clip))


def temperature_form(n_classes: int) -> LinearForm:
    """Return the form with one inverse temperature, shared by all classes."""
    place = np.stack([np.zeros(n_classes, np.int64), np.full(n_classes, -1)], axis=1)
    bounds = float(BETAS[0]), float(BETAS[-1])
    return LinearForm(True, place, np.zeros((n_classes, 2)), np.zeros(1), np.ones(1), bounds)


def solve_shrunk(
    rows: LabelledRows, make: MakeForm, named: NameParameters, options: Options
) -> FitResult:
    """Fit a form, or return the reason why there is no fit.

    Parameters
    ----------
    rows : LabelledRows
    make : classes that have parameters of their own, and 1/T, to a form whose penalty sums to 1 per unit square of all deviations
    named : coefficients (n_classes, n_features) to parameters by name
    options : `regularisation` (0: chosen) and `temperature` (None: fitted to the rows)
    """
    rows = rows.take(np.flatnonzero(rows.weight > 0))
    reason = why_none(rows)
    if reason is not None:
        return FitResult(None, reason)
    own = units_of_classes(rows) >= MIN_CLASS_UNITS
    form = make(own, 1.0)
    details = _counted(rows, form, own)
    if form.n_parameters > MAX_CURVED:
        return FitResult(None, "too_many_classes", details)
    if not form.n_parameters or rows.n_units < details["n_units_needed"]:
        return FitResult(None, "few_rows", details)
    rows = rows.take(np.arange(min(len(rows), max_rows(form, len(rows) / rows.n_units))))
    points = SoftmaxPoints(rows, clipped(rows.logits))
    beta = 1.0 / options.temperature if options.temperature else _common_beta(points)
    best = _best(points, make(own, beta), beta, options.regularisation)
    if best is None:
        return FitResult(None, "not_converged", details)
    coefficients = best.objective.form.coefficients(best.fit.parameters)
    details |= parameter_details(best.objective.form, best.fit, named, *best.curvature_and_errors())
    at_temperature = best.objective.value_and_gradient(make(own, beta).start)[0]
    details |= {"temperature": 1.0 / beta, "regularisation": best.strength}
    details["objective_before"] = at_temperature
    details["left_out"] = _left_out(points, best, beta)
    if not best.fit.free.all():
        return FitResult(None, "at_bound", details | {"standard_errors": None})
    return FitResult(named(coefficients), None, details, _warnings(best, own))


def max_rows(form: LinearForm, rows_a_unit: float) -> int:
    """Return the number of rows to which a form is fitted at most. Rows are in the order of their hashes: a uniform part."""
    slopes = MAX_SLOPES // form.n_parameters
    k, features = form.place.shape
    # Forms of their own class's log-probability need 2 K sums for a Hessian, others sums over pairs of classes.
    each = (2 * k) ** 2 if form.own else 0.5 * (k * features) ** 2
    needed = int(np.ceil(2 * UNITS_A_PARAMETER * form.n_parameters * rows_a_unit))
    return max(needed, min(slopes, int(MAX_HESSIAN / each)))


def units_of_classes(rows: LabelledRows) -> NDArray[np.int64]:
    """Return the number of units with a rating of each class, int64 (n_classes,)."""
    row, class_index, _ = rows.rated
    pairs = np.unique(rows.unit[row] * rows.n_classes + class_index)
    return np.bincount(pairs % rows.n_classes, minlength=rows.n_classes).astype(np.int64)


def _counted(rows: LabelledRows, form: LinearForm, own: Mask) -> Result:
    return {
        "n_parameters": form.n_parameters,
        "n_units_needed": UNITS_A_PARAMETER * max(form.n_parameters, 1),
        "n_units_fitted": rows.n_units,
        "classes_at_temperature": np.flatnonzero(~own).tolist(),
        "at_bound": False,
    }


def _common_beta(points: SoftmaxPoints) -> float:
    objective = SoftmaxObjective(points, temperature_form(points.k))
    return float(fit_softmax(objective).parameters[0])


def _best(
    points: SoftmaxPoints, form: LinearForm, beta: float, strength: float
) -> _Candidate | None:
    """Return the candidate with the lowest loss left out; None if no fit converged."""
    candidates = [] if strength else [_alone(points, form, beta)]
    start = form.start
    for each in (strength,) if strength else STRENGTHS:
        objective = SoftmaxObjective(
            points, replace(form, penalty=each * form.penalty, start=start)
        )
        fit = fit_softmax(objective)
        if not fit.converged:
            continue
        start = fit.parameters
        candidates.append(
            _Candidate(each, objective, fit, left_out_losses(objective, fit.parameters))
        )
    return min(candidates, key=lambda one: float(one.left_out.sum()), default=None)


def _alone(points: SoftmaxPoints, form: LinearForm, beta: float) -> _Candidate:
    """Return T alone, in the coefficients of the form."""
    objective = SoftmaxObjective(points, form)
    value, _ = objective.value_and_gradient(form.start)
    fit = Minimum(form.start, value, 0.0, 0, np.ones(form.n_parameters, np.bool_))
    common = SoftmaxObjective(points, temperature_form(points.k))
    return _Candidate(None, objective, fit, left_out_losses(common, np.array([beta])))


def left_out_losses(objective: SoftmaxObjective, at: Floats) -> Floats:
    """Return the loss of each unit under parameters fitted without it, to second order; float64 (n_units,)."""
    points = objective.points
    probabilities = objective.probabilities(at)
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = -np.where(points.share > 0, points.share * np.log(probabilities), 0.0).sum(axis=0)
    by_unit = np.bincount(points.unit, losses)
    slopes = objective.unit_slopes(at)
    hessian = objective.hessian(at) * points.total
    moved = np.linalg.pinv(hessian, hermitian=True, rcond=1e-13) @ slopes
    return np.asarray(by_unit + np.einsum("pu,pu->u", slopes, moved))


def _left_out(points: SoftmaxPoints, best: _Candidate, beta: float) -> dict[str, float]:
    """Return the mean NLL left out, of the map and of T, and its gain over T with the standard error by unit."""
    common = left_out_losses(SoftmaxObjective(points, temperature_form(points.k)), np.array([beta]))
    difference = common - best.left_out
    weight = np.bincount(points.unit, points.weight)
    gain = float(difference.sum() / points.total)
    spread = float(((difference - gain * weight) ** 2).sum())
    n_units = int((weight > 0).sum())
    return {
        "nll": float(best.left_out.sum() / points.total),
        "temperature_nll": float(common.sum() / points.total),
        "gain": gain,
        "gain_standard_error": float(
            np.sqrt(n_units / max(n_units - 1, 1) * spread) / points.total
        ),
    }


def _warnings(best: _Candidate, own: Mask) -> list[str]:
    warnings = [] if own.all() else ["classes_at_temperature"]
    return [*warnings, "shrunk_to_temperature"] if best.strength is None else warnings


def why_none(rows: LabelledRows) -> str | None:
    """Return the reason why no form can be fitted to rows with weight; None if a fit can be tried."""
    if not len(rows):
        return "no_labels"
    if (rows.share.sum(axis=0) > 0).sum() < 2:
        return "one_class"
    if np.ptp(clipped(rows.logits), axis=0).max() < 1e-12:
        return "constant_scores"
    if rows.n_units < 2:
        return "few_rows"
    return "separable" if rows.is_all_right else None


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
