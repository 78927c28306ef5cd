"""Multinomial logistic maps of log-probabilities, solved to the optimum with diagnostics of optimality.

The map is the softmax of one linear form per class: over all log-probabilities and an intercept, or over the class's own
log-probability and an intercept (`own`). Some coefficients are free, shared or fixed; some may have a quadratic
penalty. The loss is convex. Newton steps lead to the optimum, after L-BFGS if there are many parameters
or bounds. If the loss has no minimum, or many, the curvature shows it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.calibrators.softmax_objective import SoftmaxObjective

Floats = NDArray[np.float64]
GRADIENT_TOLERANCE = 1e-11
CONVERGED = 1e-7
FIRST_STEPS = 60
MAX_CURVED = 600
# Multiplications that L-BFGS and Newton may each use for a fit: a few seconds. A fit that has not converged by then reports it.
MAX_WORK = 2e10
ROWS_A_PARAMETER = 2


@dataclass(frozen=True)
class SoftmaxFit:
    """Optimum with its diagnostics; losses are per weight, the penalty included.

    Attributes
    ----------
    parameters : float64 (n_parameters,)
    objective_before, objective : at the identity (the form's start) and at the end
    gradient_norm : largest component of the gradient, of those without an active bound
    iterations : of L-BFGS and Newton together
    converged : whether the gradient is small enough
    at_bound : whether a parameter is at its bound
    least_curvature : minimal eigenvalue of the Hessian in standardised parameters; or None
    standard_errors : float64 (n_parameters,), sandwich by unit; None if not computed
    """

    parameters: Floats
    objective_before: float
    objective: float
    gradient_norm: float
    iterations: int
    converged: bool
    at_bound: bool
    least_curvature: float | None
    standard_errors: Floats | None


def fit_softmax(objective: SoftmaxObjective) -> SoftmaxFit:
    """Return the parameters of minimal mean NLL plus penalty.

    Source
    ------
    Liu, Nocedal (1989) for L-BFGS; sandwich: White (Econometrica 1982).
    """
    form = objective.form
    at, steps = form.start, 0
    if form.own and (form.bounds is None or form.n_parameters == 1):
        at, steps = objective.newton(at)
    if steps == 0 or not _has_converged(objective, at):
        at, more = _by_lbfgs(objective)
        steps += more
        if form.n_parameters <= MAX_CURVED:
            at, more = objective.newton(at, most=objective.newton_steps_for(MAX_WORK))
            steps += more
    value, gradient = objective.value_and_gradient(at)
    free = objective.inside(at, gradient)
    norm = float(np.abs(gradient[free]).max(initial=0.0))
    curvature, errors = None, None
    if form.n_parameters <= MAX_CURVED:
        curvature, errors = objective.curvature_and_errors(at, free)
    return SoftmaxFit(
        parameters=at,
        objective_before=objective.value_and_gradient(form.start)[0],
        objective=value,
        gradient_norm=norm,
        iterations=steps,
        converged=norm < CONVERGED,
        at_bound=not free.all(),
        least_curvature=curvature,
        standard_errors=errors,
    )


def _has_converged(objective: SoftmaxObjective, at: Floats) -> bool:
    gradient = objective.value_and_gradient(at)[1]
    return (
        float(np.abs(gradient[objective.inside(at, gradient)]).max(initial=0.0))
        < GRADIENT_TOLERANCE
    )


def _by_lbfgs(objective: SoftmaxObjective) -> tuple[Floats, int]:
    """Return parameters near the optimum, or at it if there are too many for Newton steps; work is bounded."""
    form, (there, back, slopes) = objective.form, objective.centred()
    most = max(FIRST_STEPS, objective.evaluations_for(MAX_WORK))

    def value_and_gradient(at: Floats) -> tuple[float, Floats]:
        value, gradient = objective.value_and_gradient(back(at))
        return value, slopes(gradient)

    found = scipy.optimize.minimize(
        value_and_gradient,
        there(form.start),
        jac=True,
        method="L-BFGS-B",
        bounds=None if form.bounds is None else [form.bounds] * form.n_parameters,
        options={
            "maxiter": FIRST_STEPS if form.n_parameters <= MAX_CURVED else most,
            "maxfun": most,
            "gtol": GRADIENT_TOLERANCE,
            "ftol": 0.0,
            "maxcor": 20,
        },
    )
    return back(np.asarray(found.x, np.float64)), int(found.nit)
