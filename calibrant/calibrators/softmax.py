"""Mean NLL of multinomial logistic maps as a function of their parameters, and its minimum with diagnostics of optimality.

The map is the softmax of one linear form per class: over all log-probabilities and an intercept, or over the class's own
log-probability and an intercept (`own`). Some coefficients are free, shared or fixed; some may have a quadratic penalty.

Arrays are (n_classes, n): sums over classes then run along complete rows of memory, which is several times faster than
sums of ten numbers each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from calibrant.calibrators.labelled_rows import LabelledRows
from calibrant.calibrators.solver import EVERYWHERE, Mask, Minimum, minimise
from calibrant.core.arrays import Floats, Ints

MAX_CURVED = 600


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

    @cached_property
    def _places(self) -> tuple[Ints, Ints]:
        """Places of the free coefficients, by their parameter, and where in these each parameter's begin."""
        free = np.flatnonzero(self.place.ravel() >= 0)
        order = np.argsort(self.place.ravel()[free], kind="stable")
        return free[order], np.flatnonzero(np.diff(np.sort(self.place.ravel()[free]), prepend=-1))

    def collected(self, values: Floats) -> Floats:
        """Sum values (n_classes * n_features, ...) over the places of each free parameter, (n_parameters, ...)."""
        places, starts = self._places
        chosen = values[places]
        is_shared = len(starts) < len(places)
        return np.asarray(np.add.reduceat(chosen, starts, axis=0) if is_shared else chosen)


class SoftmaxPoints:
    """Rows as input of all forms: log-probabilities (n_classes, n), weights, and their root.

    Parameters
    ----------
    rows : LabelledRows, some of them with weight
    inputs : float64 (n, n_classes), finite log-probabilities
    """

    def __init__(self, rows: LabelledRows, inputs: Floats) -> None:
        self.x = np.ascontiguousarray(inputs.T)
        self.share = np.ascontiguousarray(rows.share.T)
        self.weight, self.unit = rows.weight, rows.unit
        self.root_weight = np.sqrt(rows.weight)
        self.total = float(rows.weight.sum())
        self.k, self.n = self.x.shape

    @cached_property
    def own_features(self) -> Floats:
        """Each class's own log-probability and 1, (n_classes, 2, n)."""
        return np.stack([self.x, np.ones((self.k, self.n))], axis=1)

    @cached_property
    def all_features(self) -> Floats:
        """For each class all log-probabilities and 1, (n_classes, n_classes + 1, n)."""
        features = np.vstack([self.x, np.ones(self.n)])
        return np.broadcast_to(features, (self.k, *features.shape))


@dataclass(frozen=True)
class _Evaluated:
    """Results at some parameters, cached because value, gradient and Hessian are requested separately."""

    parameters: Floats
    probabilities: Floats
    value: float
    gradient: Floats


class SoftmaxObjective:
    """Penalised mean NLL of one form on some points, with derivatives."""

    def __init__(self, points: SoftmaxPoints, form: LinearForm) -> None:
        self.points, self.form = points, form
        self.features = points.own_features if form.own else points.all_features
        self._observed = self._summed(points.share)
        self._last: _Evaluated | None = None

    def value_and_gradient(self, parameters: Floats) -> tuple[float, Floats]:
        """Return the penalised mean NLL and its gradient."""
        found = self._at(parameters)
        return found.value, found.gradient

    def probabilities(self, parameters: Floats) -> Floats:
        """Return probabilities, (n_classes, n)."""
        return self._at(parameters).probabilities

    def hessian(self, parameters: Floats) -> Floats:
        """Return the Hessian of the penalised mean NLL, (n_parameters, n_parameters)."""
        form, points, p = self.form, self.points, self.probabilities(parameters)
        every = self.features * (p * points.root_weight)[:, None]
        rows = form.collected(every.reshape(-1, points.n))
        within = np.zeros(2 * form.place.shape)
        for k, own in enumerate(every):
            # Where a probability is 0, so are all terms of its class.
            within[k, :, k] = (own * points.root_weight) @ self.features[k].T
        size = form.place.size
        squares = form.collected(form.collected(within.reshape(size, size)).T)
        return (squares - rows @ rows.T) / points.total + np.diag(2.0 * form.penalty)

    def unit_slopes(self, at: Floats) -> Floats:
        """Return the slopes of the summed NLL of each unit, the penalty left out; (n_parameters, n_units)."""
        points, place = self.points, self.form.place
        residual = self.probabilities(at) * points.weight - points.share
        by_unit = np.zeros((self.form.n_parameters, int(points.unit.max()) + 1))
        for k, feature in zip(*np.nonzero(place >= 0), strict=True):
            slopes = self.features[k, feature] * residual[k]
            by_unit[place[k, feature]] += np.bincount(points.unit, slopes)
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
        squares = np.stack([each**2 @ self.points.weight for each in self.features])
        scale = np.sqrt(self.form.collected(squares.ravel() / self.points.total))
        return np.where(scale > 0, scale, 1.0)

    def _at(self, parameters: Floats) -> _Evaluated:
        if self._last is None or not np.array_equal(self._last.parameters, parameters):
            self._last = self._evaluated(np.array(parameters))
        return self._last

    def _evaluated(self, parameters: Floats) -> _Evaluated:
        form, points = self.form, self.points
        coefficients = form.coefficients(parameters)
        z = (coefficients[:, None] @ self.features)[:, 0]
        top = z.max(axis=0)
        z -= top
        power = np.exp(z, out=z)
        norm = power.sum(axis=0)
        power /= norm
        nll = float(points.weight @ (np.log(norm) + top))
        nll -= float((coefficients * self._observed).sum())
        slope = self._summed(power * points.weight) - self._observed
        moved = form.deviations(parameters)
        value = nll / points.total + float(form.penalty @ moved**2)
        gradient = form.collected(slope.ravel() / points.total) + 2.0 * form.penalty * moved
        return _Evaluated(parameters, power, value, gradient)

    def _summed(self, weights: Floats) -> Floats:
        """Return sums of features by class with weights (n_classes, n); (n_classes, n_features)."""
        return np.asarray((self.features @ weights[:, :, None])[:, :, 0])


def fit_softmax(objective: SoftmaxObjective) -> Minimum:
    """Return the parameters of minimal mean NLL plus penalty."""
    form = objective.form
    return minimise(objective, form.start, form.bounds or EVERYWHERE)
