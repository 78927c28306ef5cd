"""Mean NLL of multinomial logistic maps as a function of their parameters, and its minimum with diagnostics of optimality.

The map is the softmax of one linear form per class: over all log-probabilities and an intercept, or over the class's own
log-probability and an intercept (`own`). Some coefficients are free, shared or fixed; some may have a quadratic penalty.

Arrays are (n_classes, n): sums over classes then run along complete rows of memory, which is several times faster than
sums of ten numbers each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrant.calibrators.labelled_rows import LabelledRows
from calibrant.calibrators.solver import EVERYWHERE, Mask, Minimum, minimise
from calibrant.core.arrays import Floats, Ints

MAX_CURVED = 600
ROWS_A_PARAMETER = 2


@dataclass(frozen=True)
class LinearForm:
    """Coefficients of a linear form per class. Axis 0 is the class of the form; the last feature is the intercept.

    Attributes
    ----------
    own : whether a class's form reads only its own log-probability
    place : int64 (n_classes, n_features), index of the free parameter at that place, -1 if fixed
    fixed : float64 (n_classes, n_features), values if fixed
    penalty : float64 (n_parameters,), factor of the square of each free parameter in the mean loss
    start : float64 (n_parameters,)
    centre : float64 (n_parameters,) or None: from where the squares count. Default: from 0.
    bounds : minimum and maximum of every free parameter, or None
    """

    own: bool
    place: Ints
    fixed: Floats
    penalty: Floats
    start: Floats
    bounds: tuple[float, float] | None = None
    centre: Floats | None = None

    def deviations(self, parameters: Floats) -> Floats:
        """Return the parameters less their centre."""
        return parameters if self.centre is None else parameters - self.centre

    @property
    def n_parameters(self) -> int:
        return len(self.start)

    def coefficients(self, parameters: Floats) -> Floats:
        """Return the coefficients, (n_classes, n_features)."""
        free = self.place >= 0
        return np.asarray(np.where(free, parameters[np.where(free, self.place, 0)], self.fixed))

    def collected(self, values: Floats) -> Floats:
        """Sum values (n_classes, n_features) over the places of each free parameter, (n_parameters,)."""
        free = self.place >= 0
        return np.bincount(self.place[free], values[free], self.n_parameters).astype(np.float64)


class SoftmaxPoints:
    """Rows as input of all forms: log-probabilities (n_classes, n), weights, and sums that no parameter changes.

    Parameters
    ----------
    rows : LabelledRows, some of them with weight
    inputs : float64 (n, n_classes), finite log-probabilities
    """

    def __init__(self, rows: LabelledRows, inputs: Floats) -> None:
        self.x = np.ascontiguousarray(inputs.T)
        self.share = np.ascontiguousarray(rows.share.T)
        self.weight, self.unit = rows.weight, rows.unit
        self.total = float(rows.weight.sum())
        self.k, self.n = self.x.shape
        # Buffer for what `DiagonalObjective` computes at every step: allocating it again costs more than the computation.
        self.moved, self.weighted = np.empty((2, self.k, self.n)), np.empty((2, self.k, self.n))


@dataclass(frozen=True)
class _Evaluated:
    """Results at some parameters, cached because value, gradient and Hessian are requested separately."""

    parameters: Floats
    probabilities: Floats
    value: float
    gradient: Floats


class SoftmaxObjective:
    """Penalised mean NLL of one form on some points, with derivatives.

    `DiagonalObjective` overrides methods for forms with `own`.
    """

    def __init__(self, points: SoftmaxPoints, form: LinearForm) -> None:
        self.points, self.form = points, form
        self._everything = np.vstack([points.x, np.ones(points.n)])
        self._observed = points.share @ self._everything.T
        self._last: _Evaluated | None = None

    def value_and_gradient(self, parameters: Floats) -> tuple[float, Floats]:
        """Return the penalised mean NLL and its gradient."""
        found = self._at(parameters)
        return found.value, found.gradient

    def _at(self, parameters: Floats) -> _Evaluated:
        if self._last is None or not np.array_equal(self._last.parameters, parameters):
            self._last = self._evaluated(np.array(parameters))
        return self._last

    def _evaluated(self, parameters: Floats) -> _Evaluated:
        form, points = self.form, self.points
        coefficients = form.coefficients(parameters)
        z = self.linear(coefficients)
        top = z.max(axis=0)
        z -= top
        power = np.exp(z, out=z)
        norm = power.sum(axis=0)
        power /= norm
        nll = float(points.weight @ (np.log(norm) + top)) - float(
            (coefficients * self._observed).sum()
        )
        slope = self.expected(power) - self._observed
        moved = form.deviations(parameters)
        value = nll / points.total + float(form.penalty @ moved**2)
        gradient = form.collected(slope / points.total) + 2.0 * form.penalty * moved
        return _Evaluated(parameters, power, value, gradient)

    def probabilities(self, parameters: Floats) -> Floats:
        """Return probabilities, (n_classes, n)."""
        return self._at(parameters).probabilities

    def linear(self, coefficients: Floats) -> Floats:
        """Return the linear forms of every row, (n_classes, n)."""
        return np.asarray(coefficients @ self._everything)

    def expected(self, p: Floats) -> Floats:
        """Return weighted sums of features by class under probabilities (n_classes, n); (n_classes, n_features)."""
        return np.asarray((p * self.points.weight) @ self._everything.T)

    def features(self, class_index: int) -> Floats:
        """Return the features of the form of a class, (n_features, n)."""
        return self._everything

    def squares(self) -> Floats:
        """Return sums of squared features, (n_classes, n_features)."""
        everything = self._everything**2 @ self.points.weight
        return np.broadcast_to(everything, (self.points.k, len(everything)))

    def hessian(self, parameters: Floats) -> Floats:
        """Return the Hessian of the penalised mean NLL, (n_parameters, n_parameters)."""
        hessian = self.likelihood_hessian(self.probabilities(parameters)) / self.points.total
        return hessian + np.diag(2.0 * self.form.penalty)

    def likelihood_hessian(self, p: Floats) -> Floats:
        """Return the Hessian of the summed NLL under probabilities (n_classes, n)."""
        place, x = self.form.place, self._everything
        hessian = np.zeros((self.form.n_parameters, self.form.n_parameters))
        # A class has all of its coefficients, or none.
        free = np.flatnonzero(place[:, 0] >= 0).tolist()
        for one in free:
            weighted = p[one] * self.points.weight
            for other in (each for each in free if each >= one):
                block = (x * (weighted * ((one == other) - p[other]))) @ x.T
                hessian[np.ix_(place[one], place[other])] = block
                hessian[np.ix_(place[other], place[one])] = block.T
        return hessian

    def unit_slopes(self, at: Floats) -> Floats:
        """Return the slopes of the summed NLL of each unit, the penalty left out; (n_parameters, n_units)."""
        points = self.points
        residual = self.probabilities(at) * points.weight - points.share
        n_units = int(points.unit.max()) + 1
        by_unit = np.zeros((self.form.n_parameters, n_units))
        for class_index in range(points.k):
            features, places = self.features(class_index), self.form.place[class_index]
            for feature, place in zip(features, places, strict=True):
                if place >= 0:
                    slopes = feature * residual[class_index]
                    by_unit[place] += np.bincount(points.unit, slopes, n_units)
        return by_unit

    def curvature_and_errors(self, at: Floats, free: Mask) -> tuple[float, Floats]:
        """Return minimal curvature in standardised parameters, and standard errors by unit, a sandwich."""
        hessian = self.hessian(at)[np.ix_(free, free)]
        by_unit = self.unit_slopes(at)[free]
        inverse = np.linalg.pinv(hessian, hermitian=True, rcond=1e-13)
        meat = by_unit @ by_unit.T / self.points.total**2
        errors = np.full(len(at), np.nan)
        errors[free] = np.sqrt(np.maximum(np.diag(inverse @ meat @ inverse), 0.0))
        scale = self._scale()[free]
        values = np.linalg.eigvalsh(hessian / np.outer(scale, scale))
        return float(values[0]) if len(values) else 0.0, errors

    def _scale(self) -> Floats:
        """Return the root mean square of each parameter's features."""
        scale = np.sqrt(self.form.collected(self.squares() / self.points.total))
        return np.where(scale > 0, scale, 1.0)


class DiagonalObjective(SoftmaxObjective):
    """SoftmaxObjective of forms that read only their own class's log-probability: no sum over pairs of classes is needed."""

    def __init__(self, points: SoftmaxPoints, form: LinearForm) -> None:
        self.points, self.form = points, form
        own = np.einsum("kn,kn->k", points.share, points.x)
        self._observed = np.stack([own, points.share.sum(axis=1)], axis=1)
        self._last = None
        places = form.place.T.ravel()
        self._pick = (places == np.arange(form.n_parameters)[:, None]).astype(np.float64)
        first = int(self._pick[0].argmax())
        self._run = slice(first, first + form.n_parameters)
        self._is_run = np.array_equal(self._pick, np.eye(len(places))[self._run])

    def linear(self, coefficients: Floats) -> Floats:
        return self.points.x * coefficients[:, :1] + coefficients[:, 1:]

    def expected(self, p: Floats) -> Floats:
        points = self.points
        np.multiply(p, points.x, out=points.moved[0])
        return np.stack([points.moved[0] @ points.weight, p @ points.weight], axis=1)

    def features(self, class_index: int) -> Floats:
        return np.stack([self.points.x[class_index], np.ones(self.points.n)])

    def squares(self) -> Floats:
        own = self.points.x**2 @ self.points.weight
        return np.stack([own, np.full(self.points.k, self.points.total)], axis=1)

    def likelihood_hessian(self, p: Floats) -> Floats:
        points, k = self.points, self.points.k
        moved, weighted = points.moved, points.weighted
        np.multiply(p, points.x, out=moved[0])
        moved[1] = p
        cross, alone = moved @ points.weight
        np.multiply(moved, points.weight, out=weighted)
        own = np.einsum("kn,kn->k", weighted[0], points.x)
        each = np.eye(k)
        squares = np.block([[each * own, each * cross], [each * cross, each * alone]])
        first, second = weighted.reshape(2 * k, -1), moved.reshape(2 * k, -1)
        if self._is_run:
            run = self._run
            return np.asarray(squares[run, run] - first[run] @ second[run].T)
        pick = self._pick
        return np.asarray(pick @ squares @ pick.T - (pick @ first) @ (pick @ second).T)


def objective_of(points: SoftmaxPoints, form: LinearForm) -> SoftmaxObjective:
    """Return the objective of the form on the points."""
    return DiagonalObjective(points, form) if form.own else SoftmaxObjective(points, form)


def fit_softmax(objective: SoftmaxObjective) -> Minimum:
    """Return the parameters of minimal mean NLL plus penalty."""
    form = objective.form
    return minimise(objective, form.start, form.bounds or EVERYWHERE)
