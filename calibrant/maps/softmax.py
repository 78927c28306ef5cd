"""Multinomial logistic maps of log-probabilities, solved to the optimum with proof of it.

The map is softmax of one linear form a class: over all log-probabilities and an intercept, or over the class's own
log-probability and an intercept (`own`). Some coefficients are free, shared or fixed; a quadratic penalty may rest on
some. The loss is convex. L-BFGS comes near the optimum and Newton's steps end there; where the loss has no minimum, or
many, curvature tells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from calibrant.maps.rows import LabelledRows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
STILL = 1e-11
CONVERGED = 1e-7
FLAT = 1e-8
MOST_NEWTON = 40
MOST_CURVED = 600
ROWS_A_PARAMETER = 2


@dataclass(frozen=True)
class Form:
    """Which coefficients there are. Axis 0 is the class whose linear form it is, the last feature is the intercept.

    Attributes
    ----------
    own : whether a class's form reads its own log-probability alone
    place : int64 (n_classes, n_features), number of the free parameter that stands there, -1 where fixed
    fixed : float64 (n_classes, n_features), values where fixed
    penalty : float64 (n_parameters,), factor of the square of each free parameter in the mean loss
    start : float64 (n_parameters,)
    bounds : least and greatest value of every free parameter, or None
    n_gauge : directions of the parameters that no probability depends on
    """

    own: bool
    place: Ints
    fixed: Floats
    penalty: Floats
    start: Floats
    bounds: tuple[float, float] | None = None
    n_gauge: int = 0

    @property
    def n_parameters(self) -> int:
        return len(self.start)

    def coefficients(self, parameters: Floats) -> Floats:
        """(n_classes, n_features)."""
        free = self.place >= 0
        return np.asarray(np.where(free, parameters[np.where(free, self.place, 0)], self.fixed))

    def gathered(self, values: Floats) -> Floats:
        """Sums over the places of each free parameter, (n_parameters,), of values (n_classes, n_features)."""
        free = self.place >= 0
        return np.bincount(self.place[free], values[free], self.n_parameters).astype(np.float64)


@dataclass(frozen=True)
class SoftmaxFit:
    """An optimum and the proof of it; losses are per weight, the penalty included.

    Attributes
    ----------
    parameters : float64 (n_parameters,)
    objective_before, objective : at the identity (the form's start) and at the end
    gradient_norm : largest part of the gradient, of those not held by a bound
    iterations : of L-BFGS and Newton together
    converged : whether the gradient is small enough
    at_bound : whether a parameter lies at its bound
    least_curvature : least eigenvalue of the Hessian in standardised parameters, gauge left out; or None
    standard_errors : float64 (n_parameters,), sandwich by unit; None where not computed
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


def fit_softmax(rows: LabelledRows, inputs: Floats, form: Form) -> SoftmaxFit:
    """The parameters of least mean NLL plus penalty.

    Parameters
    ----------
    rows : LabelledRows, its shares
    inputs : float64 (n, n_classes), finite log-probabilities
    form : Form

    Returns
    -------
    SoftmaxFit

    Source
    ------
    Liu, Nocedal (1989) for L-BFGS; sandwich: White (Econometrica 1982).
    """
    problem = _Problem(rows, inputs, form)
    low_high = None if form.bounds is None else [form.bounds] * form.n_parameters
    found = minimize(
        problem.value_and_gradient,
        form.start,
        jac=True,
        method="L-BFGS-B",
        bounds=low_high,
        options={"maxiter": 5000, "maxfun": 10_000, "gtol": STILL, "ftol": 0.0, "maxcor": 20},
    )
    at, steps = np.asarray(found.x, np.float64), int(found.nit)
    if form.n_parameters <= MOST_CURVED:
        at, more = problem.polished(at)
        steps += more
    value, gradient = problem.value_and_gradient(at)
    free = problem.inside(at, gradient)
    norm = float(np.abs(gradient[free]).max(initial=0.0))
    curvature, errors = None, None
    if form.n_parameters <= MOST_CURVED:
        curvature, errors = problem.proof(at, free)
    return SoftmaxFit(
        parameters=at,
        objective_before=problem.value_and_gradient(form.start)[0],
        objective=value,
        gradient_norm=norm,
        iterations=steps,
        converged=norm < CONVERGED,
        at_bound=not free.all(),
        least_curvature=curvature,
        standard_errors=errors,
    )


def probabilities_of(logits: Floats) -> Floats:
    """Softmax of rows."""
    power = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(power / power.sum(axis=1, keepdims=True))


def linear(inputs: Floats, coefficients: Floats, own: bool) -> Floats:
    """The linear forms of every row, (n, n_classes)."""
    if own:
        return inputs * coefficients[:, 0] + coefficients[:, 1]
    return inputs @ coefficients[:, :-1].T + coefficients[:, -1]


class _Problem:
    def __init__(self, rows: LabelledRows, inputs: Floats, form: Form) -> None:
        self.rows, self.inputs, self.form = rows, inputs, form
        self.total = float(rows.weight.sum())
        self.n, self.k = inputs.shape

    def features(self, klass: int) -> Floats:
        """Of the form of a class, (n, n_features)."""
        read = self.inputs[:, [klass]] if self.form.own else self.inputs
        return np.column_stack([read, np.ones(self.n)])

    def residual(self, parameters: Floats) -> tuple[Floats, Floats]:
        """Probabilities, and weight times probabilities minus shares; (n, n_classes) each."""
        p = probabilities_of(linear(self.inputs, self.form.coefficients(parameters), self.form.own))
        return p, self.rows.weight[:, None] * p - self.rows.share

    def value_and_gradient(self, parameters: Floats) -> tuple[float, Floats]:
        form = self.form
        z = linear(self.inputs, form.coefficients(parameters), form.own)
        z = z - z.max(axis=1, keepdims=True)
        power = np.exp(z)
        norm = power.sum(axis=1)
        nll = self.rows.weight @ np.log(norm) - float((self.rows.share * z).sum())
        residual = self.rows.weight[:, None] * power / norm[:, None] - self.rows.share
        if form.own:
            slope = np.einsum("nk,nk->k", residual, self.inputs)[:, None]
        else:
            slope = residual.T @ self.inputs
        full = np.column_stack([slope, residual.sum(axis=0)]) / self.total
        value = float(nll) / self.total + float(form.penalty @ parameters**2)
        return value, form.gathered(full) + 2.0 * form.penalty * parameters

    def hessian(self, parameters: Floats) -> Floats:
        """Of the penalised mean loss, (n_parameters, n_parameters)."""
        return self._bend(self.residual(parameters)[0]) + np.diag(2.0 * self.form.penalty)

    def _bend(self, p: Floats) -> Floats:
        place, size = self.form.place, self.form.n_parameters
        bend = np.zeros((size, size))
        features = [self.features(klass) for klass in range(self.k)]
        used = [np.flatnonzero(place[klass] >= 0) for klass in range(self.k)]
        for one in range(self.k):
            for other in range(one, self.k):
                factor = p[:, one] * ((one == other) - p[:, other]) * self.rows.weight
                block = (features[one][:, used[one]].T * factor) @ features[other][:, used[other]]
                at, there = place[one, used[one]], place[other, used[other]]
                np.add.at(bend, (at[:, None], there[None, :]), block)
                if one != other:
                    np.add.at(bend, (there[:, None], at[None, :]), block.T)
        return bend / self.total

    def inside(self, at: Floats, gradient: Floats) -> NDArray[np.bool_]:
        """Parameters that no bound holds back."""
        if self.form.bounds is None:
            return np.ones(len(at), np.bool_)
        low, high = self.form.bounds
        return ~(((at <= low) & (gradient > 0)) | ((at >= high) & (gradient < 0)))

    def polished(self, at: Floats) -> tuple[Floats, int]:
        """Newton's steps, each as long as it lowers the loss or at least the gradient."""
        value, gradient = self.value_and_gradient(at)
        for step in range(MOST_NEWTON):
            free = self.inside(at, gradient)
            norm = float(np.abs(gradient[free]).max(initial=0.0))
            if norm < STILL * 1e-3:
                return at, step
            bend = self.hessian(at)[np.ix_(free, free)]
            move = np.zeros(len(at))
            move[free] = np.linalg.lstsq(bend, gradient[free], rcond=1e-13)[0]
            tried = at - move
            if self.form.bounds is not None:
                tried = np.clip(tried, *self.form.bounds)
            new_value, new_gradient = self.value_and_gradient(tried)
            smaller = (
                float(np.abs(new_gradient[self.inside(tried, new_gradient)]).max(initial=0.0))
                < norm
            )
            if not np.isfinite(new_value) or not (new_value < value or smaller):
                return at, step
            at, value, gradient = tried, new_value, new_gradient
        return at, MOST_NEWTON

    def proof(self, at: Floats, free: NDArray[np.bool_]) -> tuple[float, Floats | None]:
        """Least curvature in standardised parameters, and standard errors by unit."""
        bend = self.hessian(at)[np.ix_(free, free)]
        scale = self._scale()[free]
        values = np.linalg.eigvalsh(bend / np.outer(scale, scale))
        least = float(values[min(self.form.n_gauge, len(values) - 1)]) if len(values) else 0.0
        residual = self.residual(at)[1]
        scores = np.zeros((self.n, self.form.n_parameters))
        for klass in range(self.k):
            used = self.form.place[klass] >= 0
            np.add.at(
                scores.T,
                self.form.place[klass, used],
                (self.features(klass)[:, used] * residual[:, [klass]]).T,
            )
        by_unit = np.zeros((int(self.rows.unit.max()) + 1, self.form.n_parameters))
        np.add.at(by_unit, self.rows.unit, scores)
        inverse = np.linalg.pinv(bend, hermitian=True, rcond=1e-13)
        meat = by_unit[:, free].T @ by_unit[:, free] / self.total**2
        errors = np.full(len(at), np.nan)
        errors[free] = np.sqrt(np.maximum(np.diag(inverse @ meat @ inverse), 0.0))
        return least, errors

    def _scale(self) -> Floats:
        """Root mean square of each parameter's features."""
        squares = np.stack(
            [(self.rows.weight @ self.features(klass) ** 2) / self.total for klass in range(self.k)]
        )
        scale = np.sqrt(self.form.gathered(squares))
        return np.where(scale > 0, scale, 1.0)

    def is_collinear(self) -> bool:
        """Whether features alone, whatever the labels, leave a direction without curvature."""
        scale = self._scale()
        flat = self._bend(np.full((self.n, self.k), 1.0 / self.k)) + np.diag(
            2.0 * self.form.penalty
        )
        values = np.linalg.eigvalsh(flat / np.outer(scale, scale))
        return bool(values[min(self.form.n_gauge, len(values) - 1)] < FLAT / self.k)


def why_flat(rows: LabelledRows, inputs: Floats, form: Form, fit: SoftmaxFit) -> str | None:
    """The reason why an optimum is none: `separable`, `constant_scores` or `not_converged`; None where it is one."""
    if fit.least_curvature is not None and fit.least_curvature < FLAT and not fit.at_bound:
        return "constant_scores" if _Problem(rows, inputs, form).is_collinear() else "separable"
    return None if fit.converged else "not_converged"
